package disrupt

import (
	"strings"
	"testing"
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
		"with.before: before is 0s":                  func(d *Experiment) { d.Before = 0 },
	} {
		d := New()
		break1(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
