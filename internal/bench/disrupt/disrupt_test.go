package disrupt

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
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
		`with.n4_fast[1]: there is no "true"`:        func(d *Experiment) { d.N4Fast = []string{"on", "true"} },
		"with.n4_fast: none is chosen":               func(d *Experiment) { d.N4Fast = nil },
		"with.before: before is 0s":                  func(d *Experiment) { d.Before = 0 },
	} {
		d := New()
		break1(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// What SMFs notice is claimed as it is: the worst time counts, and what a machine loses by
// itself is held against those with the same n4_fast only.
func TestSignallingClaims(t *testing.T) {
	of := func(metric, event, fast string, samples ...float64) result.Measurement {
		return result.Measurement{Metric: metric, Labels: result.Labels{"event": event, "n4_fast": fast}, Samples: samples}
	}
	r := &result.Run{Measurements: []result.Measurement{
		of("n4_unanswered", "nothing", "on", 0, 0), of("n4_unanswered", "nothing", "off", 0, 0),
		of("n4_sent", "kill", "on", 100, 50), of("n4_unanswered", "kill", "on", 0, 0),
		of("n4_sent", "upgrade", "on", 70, 80), of("n4_unanswered", "upgrade", "on", 2, 3), of("n4_queue_full", "upgrade", "on", 5, 0),
		of("n4_sent", "kill", "off", 100, 50), of("n4_unanswered", "kill", "off", 40, 20),
	}}
	fast := []string{
		"kill, n4_fast on: each of 150 handovers was answered within T1, in 2 times.",
		"upgrade, n4_fast on: up to 3 handovers were not answered within T1; N4's queue was full for 5 messages: the CPU that receives them did something else.",
	}
	slow := "kill, n4_fast off: up to 40 handovers were not answered within T1."
	if got := New().Claims(r); !slices.Equal(got, append(slices.Clone(fast), slow)) {
		t.Errorf("%q", got)
	}
	r.Measurements[1].Samples[1] = 1
	if got := New().Claims(r); !slices.Equal(got, fast) {
		t.Errorf("a machine that loses requests to the daemon by itself: %q", got)
	}
}

// A run says at once where the data path left a request without an answer, and where the
// machine did; of the daemon it is expected while it is away.
func TestSignallingDoubts(t *testing.T) {
	r := outcome{Result: signalling.Result{Sent: 10, Unanswered: 2}}
	for _, c := range []struct {
		event, fast string
		full        int
		want        string
	}{
		{"kill", "on", 0, "kill, n4_fast on: 2 of 10 handovers were not answered within T1"},
		{"kill", "on", 3, "kill, n4_fast on: 2 of 10 handovers were not answered within T1; N4's queue was full for 3 messages: the CPU that receives them did something else"},
		{"kill", "off", 0, ""},
		{"nothing", "off", 0, "nothing, n4_fast off: 2 of 10 handovers were not answered within T1"},
	} {
		r.queueFull = c.full
		if got := strings.Join(r.doubts(c.event, c.fast), " "); got != c.want {
			t.Errorf("%s, n4_fast %s: %q, want %q", c.event, c.fast, got, c.want)
		}
	}
}
