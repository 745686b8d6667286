package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// moves has BGP say what it says of node-2 while it has an address: its candidate path, which
// suggests the same binding SID as that of its other address, and the route to its pods.
func moves(h *observed.BGP, address string) {
	n := nodeOf(2)
	h.Put(bgp.Path{Advertised: srpolicy.Advertised{Color: overlay.ColorIPv4, Endpoint: addr(address), Distinguisher: 2, Preference: 100, BindingSID: n.BSID4,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: n.IPv4}}}, Source: bgp.Source{Node: addr("192.0.2.2")}})
	p := n.Prefixes[0]
	h.PutReach(overlay.Destination{Prefix: p}, []bgp.Route{{Reach: overlay.Reach{Prefix: p, Address: addr(address)}, Best: true}})
}

// A node that moves to another address has policies to both for a moment. Packets change over, the
// binding SID stays with one of them, and what it still sends from its former address is taken.
func TestNodeMovesByBGP(t *testing.T) {
	d := prepare(t, t.TempDir(), byBGPFile, newFake()).start(t, underlay())
	h := d.bgp(t)
	moves(h, "2001:db8::2")
	d.holds(t, "packets go to its address", func() bool { return d.firstOf(d.dp.steering["10.244.2.0/24"].Policy) != "" })
	d.dp.log()
	moves(h, "2001:db8::22")
	d.holds(t, "packets go to its other address", func() bool {
		return d.dp.steering["10.244.2.0/24"].Policy == "c4:2001:db8::22" && d.firstOf("c4:2001:db8::22") == "fc00:0:2:4::"
	})
	for _, call := range d.dp.log() {
		if strings.HasPrefix(call, "delete steering 10.244.2.0/24") {
			t.Errorf("in between packets went nowhere: %s", call)
		}
	}
	from := func(address string) bool {
		return slices.ContainsFunc(d.core.goal.Wanted.Members(d.core.goal.Self, nil, prefix("fc00::/32"), nil), func(m overlay.Member) bool { return m.Prefix.Addr() == addr(address) })
	}
	if !from("2001:db8::2") || !from("2001:db8::22") {
		t.Errorf("members: former address %t, new one %t", from("2001:db8::2"), from("2001:db8::22"))
	}
	h.Withdraw(srpolicy.Advertised{Color: overlay.ColorIPv4, Endpoint: addr("2001:db8::2"), Distinguisher: 2})
	d.holds(t, "the policy to its former address is gone", func() bool {
		_, there := d.dp.policies["c4:2001:db8::2"]
		return !there && d.dp.policies["c4:2001:db8::22"].BindingSID == nodeOf(2).BSID4
	})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.ForgetLeft(time.Now().Add(observed.LeftTime)) }})
	d.holds(t, "its former address is nobody's", func() bool { return !from("2001:db8::2") && from("2001:db8::22") })
}
