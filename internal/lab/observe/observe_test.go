package observe

import (
	"errors"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// views are a node before and after 10 packets of a SID, 8 of a policy with
// two lists, one drop.
func views() (before, after Node) {
	view := func(forwarded, drops, sid, first, second, sent uint64) Node {
		n := newNode()
		n.Packets = map[Kind]map[string]uint64{
			Outcome: {"forwarded": forwarded, "hop_limit": drops},
			SID:     {"fc00:1::/48": sid},
			Policy:  {"p": first + second},
			Metric:  {`m{policy="p"}`: sid},
			Slice:   {"a uplink": sid, "a downlink": first + second, "b uplink": 0, "b downlink": 0},
		}
		n.lists["p"], n.drops["hop_limit"], n.sentTo = []uint64{first, second}, true, sent
		return n
	}
	return view(5, 1, 5, 2, 2, 100), view(23, 2, 15, 8, 4, 119)
}

func TestCompareCounter(t *testing.T) {
	tests := []struct {
		name   string
		expect topology.CounterExpect
		want   string // in a problem; "" for none
	}{
		{"SID", topology.CounterExpect{SID: "fc00:1::/48"}, ""},
		{"SID, received", topology.CounterExpect{SID: "fc00:1::/48", Packets: "received"}, "counted 10 packets: 8 were received"},
		{"SID of nobody", topology.CounterExpect{SID: "fc00:2::/48"}, "no SID fc00:2::/48"},
		{"policy", topology.CounterExpect{Policy: "p", Packets: "received"}, ""},
		{"policy, sent", topology.CounterExpect{Policy: "p"}, "counted 8 packets: 10 were sent"},
		{"metric", topology.CounterExpect{Metric: `m{policy="p"}`}, ""},
		{"metric of nobody", topology.CounterExpect{Metric: `m{policy="q"}`}, `no metric m{policy="q"}`},
		{"policy of nobody", topology.CounterExpect{Policy: "q"}, "no policy q"},
		{"slice", topology.CounterExpect{Slice: "a", Direction: "uplink"}, ""},
		{"slice, downlink", topology.CounterExpect{Slice: "a", Direction: "downlink"}, "slice a downlink counted 8 packets: 10 were sent"},
		{"slice of nobody", topology.CounterExpect{Slice: "c", Direction: "uplink"}, "no slice c"},
		{"no packets", topology.CounterExpect{Slice: "b", Direction: "uplink", Packets: "none"}, ""},
		{"no packets, but some", topology.CounterExpect{Slice: "a", Direction: "uplink", Packets: "none"}, "counted 10 packets: none should be"},
		{"some", topology.CounterExpect{Outcome: "hop_limit", Packets: "some"}, ""},
		{"none", topology.CounterExpect{Outcome: "too_big", Packets: "some"}, "too_big did not count"},
		{"shares", topology.CounterExpect{Policy: "p", Packets: "received", Shares: []float64{75, 25}, Tolerance: 1}, ""},
		{"other shares", topology.CounterExpect{Policy: "p", Packets: "received", Shares: []float64{50, 50}, Tolerance: 20}, "list 0 got 75.0%"},
		{"other lists", topology.CounterExpect{Policy: "p", Packets: "received", Shares: []float64{100}}, "has 2 lists"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, after := views()
			o := report.Outcome{Sent: 10, Received: 8}
			compareCounter(tt.expect, before, after, &o)
			if got := strings.Join(o.Problems, "; "); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("problems %q: want %q", got, tt.want)
			}
		})
	}
}

func TestCompareAccount(t *testing.T) {
	before, after := views()
	var o report.Outcome
	compareAccount("n", before, after, &o)
	if len(o.Problems) > 0 || o.Detail[0] != "n: in 19 = out 18 + drops 1" {
		t.Errorf("%+v", o)
	}
	after.sentTo++
	o = report.Outcome{}
	compareAccount("n", before, after, &o)
	if len(o.Problems) != 1 || !strings.Contains(o.Problems[0], "20 frames were sent to it, its daemon injected 0, 19 have an outcome") {
		t.Errorf("%+v", o)
	}
}

// A frame that waits for a neighbour has an outcome when it comes, and another one when the
// daemon injects it.
func TestCompareAccountWithInjected(t *testing.T) {
	before, after := views()
	before.injected, after.injected, after.sentTo = 7, 9, after.sentTo-2
	var o report.Outcome
	compareAccount("n", before, after, &o)
	if len(o.Problems) > 0 || o.Detail[0] != "n: in 17 + injected 2 = out 18 + drops 1" {
		t.Errorf("%+v", o)
	}
}

// A node is looked at until no frame came meanwhile: on a busy machine that takes many looks.
func TestQuiet(t *testing.T) {
	broken := errors.New("no such link")
	for name, c := range map[string]struct {
		busy  int // looks in which a frame comes
		fails int // look that fails, from 1 on
		looks int
		sent  uint64
	}{
		"quiet":          {looks: 1, sent: 100},
		"busy":           {busy: 9, looks: 10, sent: 109},
		"never quiet":    {busy: 1000, looks: mostLooks, sent: 100 + mostLooks},
		"it cannot look": {busy: 9, fails: 3, looks: 3},
	} {
		sent, looks := uint64(100), 0
		v, now, err := quiet(func() (uint64, error) { return sent, nil }, func() (Node, error) {
			if looks++; looks <= c.busy {
				sent++
			}
			if looks == c.fails {
				return Node{}, broken
			}
			return Node{injected: uint64(looks)}, nil
		})
		if looks != c.looks || now != c.sent || (c.fails > 0) != errors.Is(err, broken) {
			t.Errorf("%s: %d looks, %d frames, %v", name, looks, now, err)
		}
		if c.fails == 0 && v.injected != uint64(c.looks) {
			t.Errorf("%s: the counters are not those of the last look", name)
		}
	}
}
