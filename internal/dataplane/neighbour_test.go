package dataplane

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// inside is a packet in an IPv6 packet to a SID, in a frame.
func inside(sid, src, dst string) []byte {
	from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	inner, next := make([]byte, 40), byte(41)
	if from.Is4() {
		inner, next = make([]byte, 20), 4
		inner[0], inner[3], inner[8], inner[9] = 0x45, 20, 64, 253
		copy(inner[12:], from.AsSlice())
		copy(inner[16:], to.AsSlice())
	} else {
		inner[0], inner[6], inner[7] = 0x60, 59, 64
		copy(inner[8:], from.AsSlice())
		copy(inner[24:], to.AsSlice())
	}
	frame := make([]byte, 14+40, 14+40+len(inner))
	copy(frame[6:], []byte{2, 0, 0, 0, 0, 9})
	binary.BigEndian.PutUint16(frame[12:], 0x86dd)
	frame[14], frame[18+1], frame[20], frame[21] = 0x60, byte(len(inner)), next, 64
	copy(frame[22:], netip.MustParseAddr("2001:db8::1").AsSlice())
	copy(frame[38:], netip.MustParseAddr(sid).AsSlice())
	return append(frame, inner...)
}

// A neighbour that the kernel has not resolved is asked for by the daemon, in a
// table other than main; the record says which one it is, and which packet an
// error would be about.
func TestNeighbourIsHandedUp(t *testing.T) {
	ns := netns.New(t)
	ns.Sysctl(t, "net.ipv4.ip_forward", "1")
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	in, _ := netns.Veth(t, ns, "in", ns, "in-peer")
	out, _ := netns.Veth(t, ns, "out", ns, "out-peer")
	for _, route := range []string{
		"10.20.0.0/24 dev out table 100", "10.20.0.0/24 dev out", "10.30.0.0/16 via 10.20.0.9 dev out onlink table 100",
		"10.40.0.0/16 via inet6 fe80::9 dev out table 100", "2001:db8:20::/64 dev out table 100", "2001:db8:20::/64 dev out",
	} {
		ns.IP(t, "route add "+route)
	}
	ns.Do(t, func() {
		r := newRig(t)
		must(t, r.d.SetSettings(testSettings()))
		must(t, r.d.Ports.Set(in.Index, port.Port{}))
		must(t, r.d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:a:100::/40"), Behavior: srv6.EndDT46, Table: 100}))
		must(t, r.d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:a:200::/40"), Behavior: srv6.EndDT46, Table: 254}))
		for _, c := range []struct{ src, dst, hop string }{
			{"10.50.0.1", "10.20.0.7", "10.20.0.7"},
			{"10.50.0.1", "10.30.0.7", "10.20.0.9"},
			{"10.50.0.1", "10.40.0.7", "fe80::9"},
			{"2001:db8:50::1", "2001:db8:20::7", "2001:db8:20::7"},
		} {
			frame := inside("fc00:a:100::", c.src, c.dst)
			verdict, same, err := r.d.Frames.Test(frame, in.Index)
			must(t, err)
			got := r.takePunts(1)
			if verdict != xdp.VerdictDrop || !bytes.Equal(same, frame) || len(got) != 1 {
				t.Fatalf("to %s: %s, %d records", c.dst, xdp.VerdictName(verdict), len(got))
			}
			p := got[0]
			if p.Kind != event.PuntNeighbour || p.NextHop != addr(c.hop) || p.Egress != out.Index || p.Ifindex != in.Index || p.L3 != 14+40 ||
				p.Table != 100 || !bytes.Equal(p.Data, frame) {
				t.Errorf("to %s: %+v", c.dst, p)
			}
		}
		// In main the kernel asks, if only it can send there, or nothing filters; of no route
		// nobody can; beyond the limit nobody does.
		inMain := inside("fc00:a:200::", "10.50.0.1", "10.20.0.7")
		r.ends(t, in.Index, inMain, "passed")
		must(t, r.d.Ports.PutDevice(out.Index))
		r.ends(t, in.Index, inMain, "slow_path")
		if got := r.takePunts(1); len(got) != 1 || got[0].Kind != event.PuntNeighbour || got[0].NextHop != addr("10.20.0.7") || !bytes.Equal(got[0].Data, inMain) {
			t.Errorf("in main: %+v", got)
		}
		r.ends(t, in.Index, packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.50.0.1"), Dst: addr("10.20.0.7")}, packet.ICMP{Type: 8}), "passed")
		r.ends(t, in.Index, inside("fc00:a:200::", "2001:db8:50::1", "2001:db8:20::7"), "passed")
		r.ends(t, in.Index, inside("fc00:a:100::", "10.50.0.1", "10.99.0.7"), "no_route")
		if got := r.takePunts(1); len(got) != 1 || got[0].Kind != event.PuntICMP || got[0].Type != 1 || got[0].Code != 0 || got[0].L3 != 14+40 {
			t.Errorf("no route: %+v", got)
		}
		none := testSettings()
		none.ErrorsPerSecond = 0
		must(t, r.d.SetSettings(none))
		r.ends(t, in.Index, inside("fc00:a:100::", "10.50.0.1", "10.20.0.7"), "no_neighbour")
		r.ends(t, in.Index, inMain, "passed")
		if got := r.takePunts(0); len(got) != 0 {
			t.Errorf("records that nobody wants: %+v", got)
		}
	})
}

// Where the kernel forwards nothing it looks nothing up. The daemon then finds the route of what
// is pushed, and within the limit only.
func TestRouteIsHandedUp(t *testing.T) {
	ns := netns.New(t)
	in, _ := netns.Veth(t, ns, "in", ns, "in-peer")
	netns.Veth(t, ns, "out", ns, "out-peer")
	ns.IP(t, "route add 2001:db8:20::/64 dev out")
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "0")
	ns.Do(t, func() {
		r := newRig(t)
		must(t, r.d.SetSettings(testSettings()))
		must(t, r.d.Ports.Set(in.Index, port.Port{}))
		must(t, r.d.Policies.Put(srpolicy.Policy{Name: "p", Source: addr("2001:db8::1"), SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{addr("2001:db8:20::7")}}}}))
		must(t, r.d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.77.0.0/16"), Policy: "p"}))
		frame := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.50.0.1"), Dst: addr("10.77.0.1")}, packet.ICMP{Type: 8})
		r.ends(t, in.Index, frame, "slow_path")
		got := r.takePunts(1)
		if len(got) != 1 || got[0].Kind != event.PuntNeighbour || got[0].Egress != 0 || got[0].NextHop != addr("2001:db8:20::7") || got[0].L3 != 14 {
			t.Fatalf("%+v", got)
		}
		none := testSettings()
		none.ErrorsPerSecond = 0
		must(t, r.d.SetSettings(none))
		r.ends(t, in.Index, frame, "no_forwarding")
	})
}

// ends runs a frame, which must be counted as outcome.
func (r *rig) ends(t *testing.T, ifindex int, frame []byte, outcome string) {
	t.Helper()
	before, err := r.d.Outcomes()
	must(t, err)
	_, _, err = r.d.Frames.Test(frame, ifindex)
	must(t, err)
	after, err := r.d.Outcomes()
	must(t, err)
	for i, reason := range reason.All() {
		counted := after[i].Packets - before[i].Packets
		if wanted := reason.String() == outcome; wanted != (counted == 1) {
			t.Errorf("%s: %d packets, want 1 of %s", reason, counted, outcome)
		}
	}
}
