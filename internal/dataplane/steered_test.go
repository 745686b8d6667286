package dataplane

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// A packet of the daemon's own takes the policy that its destination is steered into, and none
// where nothing steers it.
func TestInjectSteered(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Policies.Put(srpolicy.Policy{Name: "p", Source: addr("2001:db8::1"), SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{addr("2001:db8:e::1")}}}}))
	must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("203.0.113.0/24"), Policy: "p"}))
	must(t, d.Steering.PutLocal(single(addr("203.0.113.9"))))
	for a, want := range map[string]bool{"203.0.113.5": true, "203.0.113.9": false, "203.0.114.5": false} {
		if got := d.Steering.Leads(addr(a)); got != want {
			t.Errorf("%s is steered: %v", a, got)
		}
	}
	about := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("192.0.2.1"), Dst: addr("203.0.113.5")}, packet.ICMP{Type: 11})
	resolve(t, d)
	wantReason(t, d, "the daemon's own", frameOf(about[14:]), "forwarded")
	if d.InjectSteered(nil) == nil {
		t.Error("nothing is sent")
	}
}
