package designs

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// TestEventClaims: what a design loses by an event is claimed where it is more than without,
// and that nothing was lost, of three rounds or more.
func TestEventClaims(t *testing.T) {
	lost := func(design, event string, samples ...float64) result.Measurement {
		return result.Measurement{Metric: metricLost, Labels: result.Labels{"design": design, "event": event}, Samples: samples}
	}
	late := func(design string, samples ...float64) result.Measurement {
		return result.Measurement{Metric: metricP99, Labels: result.Labels{"design": design, "event": heavy, "ue": heavy}, Samples: samples}
	}
	r := &result.Run{Measurements: []result.Measurement{
		lost(dpOffload, doubled, 9, 8, 7), lost(dpOffload, atFull, 1, 2, 3),
		lost(cpOffload, doubled, 9, 8, 3), lost(cpOffload, atFull, 1, 2, 3),
		lost(steerOffload, rescale, 0, 0, 0), lost(steerOffload, noRescale, 4, 0, 0),
		lost(softUPF, doubled, 0, 0), lost(softUPF, atFull, 0, 0),
		late(steerOffload, 10, 11, 12), late(softUPF, 20, 22, 24),
	}}
	want := []string{
		"The paper finds that SteerOffload's latency of a heavy UE is 7 times SoftUPF's, on several cores. Our interval is not comparable (one core): SteerOffload is 0.50 times SoftUPF's (0.50 to 0.50).",
		"DPOffload loses 8 packets while the load doubles (7 to 9), more than without that.",
		"SteerOffload loses no packet while it gets a second core and gives it back, in 3 times.",
	}
	if got := (&Experiment{}).Claims(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, j := range Paper().Judge(r) {
		if j.Verdict != result.NotMeasured && (j.Verdict != result.NotComparable || j.Why != "one core") {
			t.Errorf("%s: %s: %s", j.Says, j.Verdict, j.Why)
		}
	}
}

// TestEventFigures: there is one for what is measured of the chosen designs, and none of
// what handovers lost.
func TestEventFigures(t *testing.T) {
	for _, tt := range []struct {
		designs, events, want []string
	}{
		{Names(), EventNames(), []string{"designs_events_lost", "designs_events_gap", "designs_events_reordered", "designs_heavy"}},
		{[]string{"dp"}, []string{rescale}, nil},
		{[]string{"dp"}, []string{heavy}, []string{"designs_heavy"}},
		{[]string{steer}, []string{rescale}, []string{"designs_events_lost", "designs_events_gap", "designs_events_reordered"}},
		{[]string{both}, []string{rescale}, []string{"designs_events_lost", "designs_events_gap", "designs_events_reordered"}},
		{Names(), nil, nil},
	} {
		var ids []string
		for _, f := range (&Experiment{Designs: tt.designs, Events: tt.events}).eventFigures() {
			ids = append(ids, f.ID)
		}
		if !slices.Equal(ids, tt.want) {
			t.Errorf("%q of %q: %q, want %q", tt.events, tt.designs, ids, tt.want)
		}
	}
	r := &result.Run{Measurements: []result.Measurement{
		{Metric: metricLost, Labels: result.Labels{"design": dpOffload, "offered": "0.5"}},
		{Metric: metricLost, Labels: result.Labels{"design": dpOffload, "event": doubled}},
		{Metric: metricLost, Labels: result.Labels{"design": dpOffload, "event": heavy, "ue": "others"}},
	}}
	for _, f := range (&Experiment{Designs: Names(), Events: EventNames()}).Figures() {
		if n := len(r.Select(f.Metric, f.Where)); f.Metric == metricLost && n != 1 {
			t.Errorf("%s shows %d of three measurements, want its one", f.ID, n)
		}
	}
}

// TestPacketsOf: the first UE's packets are its own, and all others' are not its.
func TestPacketsOf(t *testing.T) {
	sent, _ := signalling.Uplink(64)
	l := &load{bench: &bench{Experiment: &Experiment{}}, sent: sent}
	first, rest := l.of(0, 1), l.of(1, 63)
	if one := first.Template; one.UEs != 1 || one.TEIDs != 1 || one.Inner.Source != sent.Inner.Source || one.Outer.TEID != sent.Outer.TEID {
		t.Errorf("the first UE: %+v", one)
	}
	if o := rest.Template; o.UEs != 63 || o.TEIDs != 63 || o.Inner.Source != sent.Inner.Source.Next() || o.Outer.TEID != sent.Outer.TEID+1 || rest.Expect.Inner.Source != o.Inner.Source {
		t.Errorf("the others: %+v", o)
	}
}
