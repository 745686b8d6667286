package traffic

import (
	"context"
	"testing"
	"time"
)

// Two pairs at the same interfaces: each counts its own packets, and finds those
// of the other neither changed nor nobody's.
func TestTogether(t *testing.T) {
	o := joined(t)
	a := open(t, o)
	o.With = a
	b := open(t, o)
	other := plain4()
	other.Inner.Source, other.Size, other.Flows = addr("198.51.100.2"), 1000, 64 // streams that the first has not
	trials := [2]Trial{
		{Template: plain4(), Rate: 5000, Duration: 100 * time.Millisecond},
		{Template: other, Rate: 5000, Duration: 100 * time.Millisecond},
	}
	for range 2 {
		list, err := Together(context.Background(), [2]*Pair{a, b}, trials)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range list {
			if o.Sent == 0 || o.Sent < 250 && !o.AtLimit || o.Received != o.Sent || o.Lost+o.Corrupt+o.Duplicated+o.Reordered+o.Unexpected+o.Returned != 0 || len(o.Faults) > 0 {
				t.Errorf("pair %d: %+v", i, o)
			}
			if want := o.Received * uint64(len(trials[i].Template.build(max(64, trials[i].Template.Size)).data)); o.Octets != want {
				t.Errorf("pair %d received %d octets, want %d", i, o.Octets, want)
			}
		}
		if d := int64(list[0].Sent) - int64(list[1].Sent); d < -1 || d > 1 {
			t.Errorf("%d and %d packets were sent: they did not take turns", list[0].Sent, list[1].Sent)
		}
	}
	trials[0].Rate = 4 * trials[1].Rate
	list, err := Together(context.Background(), [2]*Pair{a, b}, trials)
	if err != nil {
		t.Fatal(err)
	}
	if d := int64(list[0].Sent) - 4*int64(list[1].Sent); d < 0 || d > 4 || list[1].Sent == 0 || list[0].Lost+list[1].Lost != 0 {
		t.Errorf("%d and %d packets were sent, want 4 of the first for each of the second: %+v", list[0].Sent, list[1].Sent, list)
	}
	// Alone, the first sends all of its packets itself.
	if alone := whole(t, a, trials[0]); alone.Received != alone.Sent || alone.Sent < 250 && !alone.AtLimit {
		t.Errorf("alone: %+v", alone)
	}
}

func TestTogetherErrors(t *testing.T) {
	o := joined(t)
	a := open(t, o)
	o.With = a
	b := open(t, o)
	trial := Trial{Template: plain4(), Rate: 1000, Duration: time.Second}
	faster := trial
	faster.Rate = 2000
	changing := trial
	changing.Later = 2000
	for _, tt := range []struct {
		pairs  [2]*Pair
		trials [2]Trial
	}{
		{[2]*Pair{b, a}, [2]Trial{trial, trial}},
		{[2]*Pair{a, b}, [2]Trial{trial, faster}},
		{[2]*Pair{a, b}, [2]Trial{faster, {Template: plain4(), Rate: 1500, Duration: time.Second}}},
		{[2]*Pair{a, b}, [2]Trial{faster, {Template: plain4(), Duration: time.Second}}},
		{[2]*Pair{a, b}, [2]Trial{changing, trial}},
		{[2]*Pair{a, b}, [2]Trial{trial, {Rate: 1000, Duration: time.Second}}},
	} {
		if _, err := Together(context.Background(), tt.pairs, tt.trials); err == nil {
			t.Errorf("%+v: no error", tt.trials)
		}
	}
}
