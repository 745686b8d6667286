package sourcesink

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func params() *Params { return Kind.New().(*Params) }

// 100 kB are two datagrams, every 80 ms at 10 Mbit/s; what UDP can say is one.
func TestPieces(t *testing.T) {
	for datagram, want := range map[int]struct {
		count, octets int
		interval      time.Duration
	}{
		100_000: {2, 50_000, 80 * time.Millisecond},
		65_527:  {1, 65_527, 52_421_600 * time.Nanosecond},
		65_528:  {2, 32_764, 52_422_400 * time.Nanosecond},
		1250:    {1, 1250, time.Millisecond},
	} {
		p := params()
		p.Datagram = datagram
		if count, octets := p.pieces(); count != want.count || octets != want.octets || p.interval() != want.interval {
			t.Errorf("%d octets: %d datagrams of %d, every %v; want %+v", datagram, count, octets, p.interval(), want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := params().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Params){
		`with.encapsulations[0]: there is no "mpls"`: func(p *Params) { p.Encapsulations = []string{"mpls"} },
		"with.encapsulations":                        func(p *Params) { p.Encapsulations = nil },
		"with.rate: 0 is out of range":               func(p *Params) { p.Rate = 0 },
		"with.datagram: 99 is out of range":          func(p *Params) { p.Datagram = 99 },
		"with.time: 10ms is out of range":            func(p *Params) { p.Time = experiment.Duration(10 * time.Millisecond) },
	} {
		p := params()
		change(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// GTP-U is measured whatever is asked for; the plan is as long as what is measured.
func TestPlan(t *testing.T) {
	p := params()
	all, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	p.Encapsulations = []string{"enhanced"}
	two, err := p.Plan()
	if err != nil || len(p.measured()) != 2 || p.measured()[0].name != "gtpu" || 2*two.Points[0].Takes != all.Points[0].Takes {
		t.Errorf("%v: %v of %v, %v", p.measured(), two, all, err)
	}
}

// Shares are of the time that passed, and of GTP-U's in the same round; only what differs for
// certain is claimed.
func TestSamples(t *testing.T) {
	p := params()
	p.Encapsulations = []string{"traditional", "enhanced"}
	run := &result.Run{Version: result.Version, Figures: p.Figures()}
	byLabel := map[string]*result.Measurement{}
	for round := range 9 {
		more := time.Duration(round) * time.Millisecond
		for _, s := range samples(p.measured(), []usage{
			{source: 20 * time.Millisecond, sink: 20 * time.Millisecond, took: 10 * time.Second, packets: 10_000},
			{source: 10*time.Millisecond + more/10, sink: 20 * time.Millisecond, took: 10 * time.Second, packets: 10_000},
			{source: 16*time.Millisecond + more, sink: 20 * time.Millisecond, took: 10 * time.Second, packets: 10_000},
		}) {
			key := s.Metric + s.Labels[labelEncapsulation] + s.Labels[labelEnd]
			if byLabel[key] == nil {
				byLabel[key] = &result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit}
			}
			m := byLabel[key]
			m.Samples, m.Baseline = append(m.Samples, s.Value), append(m.Baseline, *s.Baseline)
		}
	}
	for key, want := range map[string]float64{
		"cpuSRv6 (1 SID)source": 0.1, "cpuGTP-Usink": 0.2, "cpu_totalGTP-U": 0.4, "packet_nsSRv6 (1 SID)sink": 2000,
	} {
		if m := byLabel[key]; m == nil || m.Samples[0] != want {
			t.Errorf("%s: %+v, want %v first", key, m, want)
		}
	}
	for _, m := range byLabel {
		run.Measurements = append(run.Measurements, *m)
	}
	if err := run.Check(); err != nil {
		t.Error(err)
	}
	claims := strings.Join(p.Claims(run), "\n")
	if !strings.Contains(claims, "SRv6 (1 SID) takes 0.76 (") || strings.Contains(claims, "2 SIDs") {
		t.Errorf("claims:\n%s", claims)
	}
}
