package disrupt

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

func TestDisruptValidate(t *testing.T) {
	if err := New().Validate(); err != nil {
		t.Error(err)
	}
	for says, break1 := range map[string]func(*Experiment){
		`with.events[1]: there is no event "meteor"`: func(d *Experiment) { d.Events = []string{"kill", "meteor"} },
		"with.events: there is none":                 func(d *Experiment) { d.Events = nil },
		"with.rate: -1 is too little":                func(d *Experiment) { d.Rate = -1 },
		"with.share: 2 is no share of NDR":           func(d *Experiment) { d.Share = 2 },
		"with.entries: 0 is out of range":            func(d *Experiment) { d.Entries = 0 },
		"with.handovers: 0.5 is out of range":        func(d *Experiment) { d.Handovers = 0.5 },
		"with.handovers: 1e+06 is out of range":      func(d *Experiment) { d.Handovers = 1e6 },
		"with.before: before is 0s":                  func(d *Experiment) { d.Before = 0 },
	} {
		d := New()
		break1(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// What SMFs notice is claimed as it is: the worst time counts.
func TestSignallingClaims(t *testing.T) {
	of := func(metric, event string, samples ...float64) result.Measurement {
		return result.Measurement{Metric: metric, Labels: result.Labels{"event": event}, Samples: samples}
	}
	r := &result.Run{Measurements: []result.Measurement{
		of("n4_sent", "nothing", 10, 10), of("n4_unanswered", "nothing", 0, 0),
		of("n4_sent", "kill", 100, 50), of("n4_unanswered", "kill", 0, 0),
		of("n4_sent", "upgrade", 70, 80), of("n4_unanswered", "upgrade", 0, 3),
	}}
	want := []string{
		"kill: each of 150 handovers was answered within T1, in 2 times.",
		"upgrade: up to 3 handovers were not answered within T1.",
	}
	if got := New().Claims(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r.Measurements[1].Samples[1] = 1
	if got := New().Claims(r); len(got) > 0 {
		t.Errorf("a machine that loses requests by itself: %q", got)
	}
}
