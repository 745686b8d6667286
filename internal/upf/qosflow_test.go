package upf

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

// Of a session as Open5GS sets it up, whose dedicated QoS flow has a PDR with an SDF filter on
// the F-TEID of all others, the flow's packets take the policy of its class.
func TestQoSFlowsTakeTheirPolicies(t *testing.T) {
	n := newN4(t)
	policies := map[string]netip.Addr{"bulk": addr("2001:db8:1::1"), "voice": addr("2001:db8:2::1")}
	for name, sid := range policies {
		if err := n.path.Policies.Put(srpolicy.Policy{Name: name, SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{sid}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(n.path.Classes.Set([]string{"voice"}),
		n.path.Sessions.SetWays(class.SessionWays{{Slice: "a", Policy: "bulk", QFI: 1}: {Policy: "voice", Class: "voice"}})); err != nil {
		t.Fatal(err)
	}
	err := n.SetConfig(Config{Addresses: []netip.Addr{addr("10.200.0.8")}, Pools: []pool.Pool{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.60.0.0/22")}}},
		Slices: []slice.Slice{{Name: "a", NetworkInstance: "internet", N9: &slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, UplinkPolicy: "bulk"}}}})
	if err != nil {
		t.Fatal(err)
	}
	s := sample.Session(1)
	dedicated := s.PDRs[0]
	dedicated.ID, dedicated.Precedence, dedicated.QERs = 3, 1, []uint32{2}
	dedicated.PDI.QFIs = []uint8{1}
	dedicated.PDI.Filters = []session.Filter{{Protocol: 17, Remote: netip.MustParsePrefix("192.0.2.0/24")}}
	s.PDRs = append(s.PDRs, dedicated)
	s.QERs = append(s.QERs, session.QER{ID: 2, QFI: new(uint8(1))})
	if err := n.TakeTEID(dedicated.PDI.TEID); err != nil {
		t.Fatal(err)
	}
	if err := n.Establish(s); err != nil {
		t.Fatal(err)
	}
	n.leadsOut(t)
	for qfi, policy := range map[uint8]string{1: "voice", 9: "bulk"} {
		_, out, err := n.path.Frames.Test(packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.200.0.2"), Dst: addr("10.200.0.8")},
			packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: dedicated.PDI.TEID, Container: &packet.PDUSession{Type: 1, QFI: qfi}},
			packet.IPv4{Src: dedicated.PDI.UE[0].Addr(), Dst: addr("192.0.2.1")}, packet.UDP{Sport: 1000, Dport: 2000}, packet.Payload{Count: 20}), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := netip.AddrFrom16([16]byte(out[38:54])); got != policies[policy] {
			t.Errorf("QFI %d goes to %s, want %s of %q", qfi, got, policies[policy], policy)
		}
	}
	if c, err := n.path.Classes.Read("voice"); err != nil || c.Packets != 1 {
		t.Errorf("the class counts %+v, %v", c, err)
	}
}

// leadsOut gives all next hops a device.
func (n *n4) leadsOut(t *testing.T) {
	t.Helper()
	const device = 1 // the loopback interface: nothing is sent
	for _, do := range []func() error{func() error { return n.path.Ports.PutDevice(device) }, func() error { return n.path.Ports.Set(device, port.Port{}) }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, key := range n.path.Adjacencies.Keys() {
		if err := n.path.Adjacencies.SetNextHop(key, &adjacency.NextHop{Ifindex: device, MTU: 1500, Src: mac, Dst: mac}); err != nil {
			t.Fatal(err)
		}
	}
}
