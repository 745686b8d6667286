package kerneltest

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// comparison is one behaviour, told to the kernel and to the data path.
type comparison struct {
	name   string
	kernel string // route of ip(8)
	sid    *srv6.LocalSID
	policy []string // H.Encaps*: segments, first one first; B6: the same
	prefix []string // steered into the policy
	mode   srv6.Behavior
	// frame says that whole Ethernet frames are compared, steered by VLAN tag
	// in the data path and by destination in the kernel.
	frame bool
	// whole says that the Ethernet header is compared too: it is part of what
	// was carried.
	whole   bool
	samples []sample
	known   []difference
}

const (
	loopback = 1 // ifindex of the interface that frames seem to come in on
	tag      = 7 // of frames for H.Encaps.L2
)

func local(sid string, behavior srv6.Behavior, set ...func(*srv6.LocalSID)) *srv6.LocalSID {
	l := &srv6.LocalSID{SID: prefix(sid), Behavior: behavior}
	for _, f := range set {
		f(l)
	}
	return l
}

func flavors(f ...srv6.Flavor) func(*srv6.LocalSID) {
	return func(l *srv6.LocalSID) { l.Flavors = f }
}

func via(nextHop string) func(*srv6.LocalSID) {
	return func(l *srv6.LocalSID) { l.NextHop = addr(nextHop) }
}

func onLink(name string) func(*srv6.LocalSID) {
	return func(l *srv6.LocalSID) { l.Interface = name }
}

func table(n uint32) func(*srv6.LocalSID) {
	return func(l *srv6.LocalSID) { l.Table = n }
}

// TestAgainstKernel puts the same frames through the kernel's behaviours and
// through ours.
func TestAgainstKernel(t *testing.T) {
	k, d := newKernel(t), newDataPlane(t)
	supports(t, k)
	for _, c := range comparisons() {
		t.Run(c.name, func(t *testing.T) {
			k.route(t, c.kernel)
			configure(t, d, c)
			met := map[int]bool{}
			passed := 0
			for _, s := range c.samples {
				frame := ethernet(k.mac, s.packet)
				theirs, ours := k.forward(t, frame), culvert(t, d, c, frame)
				if ours != nil {
					passed++
				}
				judge(t, s.name, c.known, met, behindEthernet(theirs), behindEthernet(ours))
				if c.whole && theirs != nil && ours != nil && !bytes.Equal(theirs[:14], ours[:14]) {
					t.Errorf("%s: Ethernet header: kernel %x, culvert %x", s.name, theirs[:14], ours[:14])
				}
			}
			if passed == 0 {
				t.Error("the data path forwarded nothing: nothing was compared")
			}
			for i, known := range c.known {
				if !met[i] {
					t.Errorf("%q of %q does not differ any more (%s): take it off the list", known.field, known.when, known.why)
				}
			}
		})
	}
}

// ethernet puts a header before a packet.
func ethernet(dst packet.Hex, p []byte) []byte {
	kind := uint16(0x86dd)
	if p[0]>>4 == 4 {
		kind = 0x0800
	}
	return packet.Frame(packet.Ethernet{Dst: dst, Type: &kind}, packet.Payload{Data: p})
}

// behindEthernet is what is compared of a frame that left: all from the IP
// header on.
func behindEthernet(frame []byte) []byte {
	if frame == nil {
		return nil
	}
	return frame[14:]
}

// newDataPlane loads a data path with the routes that the kernel has.
func newDataPlane(t *testing.T) *dataplane.DataPlane {
	t.Helper()
	d, err := dataplane.Open(dataplane.Options{Limits: settings.Limits{
		SIDs: 64, Policies: 8, SegmentLists: 16, Tunnels: 64, Routes: 64, Adjacencies: 16}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { check(t, d.Close()) })
	check(t, d.SetSettings(settings.Settings{Source: addr(source), HopLimit: 64}))
	check(t, d.Ports.Set(loopback, port.Port{}))
	check(t, d.Ports.PutDevice(loopback))
	for _, table := range []uint32{254, 100} {
		check(t, d.Routes.Put(table, prefix("::/0"), []adjacency.Key{{NextHop: addr(gateway6)}}))
		check(t, d.Routes.Put(table, prefix("0.0.0.0/0"), []adjacency.Key{{NextHop: addr(gateway4)}}))
	}
	return d
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// configure tells the data path what c says, until the test ends. Every next
// hop is ready.
func configure(t *testing.T, d *dataplane.DataPlane, c comparison) {
	t.Helper()
	if c.policy != nil {
		check(t, d.Policies.Put(srpolicy.Policy{Name: c.name, Behavior: c.mode,
			SegmentLists: []srpolicy.SegmentList{{Segments: addrs(c.policy)}}}))
		t.Cleanup(func() { check(t, d.Policies.Delete(c.name)) })
	}
	var steering []srpolicy.Steering
	for _, p := range c.prefix {
		steering = append(steering, srpolicy.Steering{Prefix: prefix(p), Policy: c.name})
	}
	if c.frame {
		steering = append(steering, srpolicy.Steering{Interface: "lo", VLANs: []uint16{tag}, Policy: c.name})
	}
	for _, s := range steering {
		check(t, d.Steering.Put(s))
		t.Cleanup(func() { check(t, d.Steering.Delete(s)) })
	}
	if c.sid != nil {
		sid := *c.sid
		if c.policy != nil {
			sid.Policy = c.name
		}
		check(t, d.SIDs.Put(sid))
		t.Cleanup(func() { check(t, d.SIDs.Delete(sid.SID)) })
	}
	for _, key := range d.Adjacencies.Keys() {
		check(t, d.Adjacencies.SetNextHop(key, &adjacency.NextHop{Ifindex: loopback, MTU: 1500,
			Dst: net.HardwareAddr{2, 0, 0, 0, 0, 0xb}, Src: net.HardwareAddr{2, 0, 0, 0, 0, 0xa}}))
	}
}

// culvert is what the data path makes of a frame; nil where it keeps it.
func culvert(t *testing.T, d *dataplane.DataPlane, c comparison, frame []byte) []byte {
	t.Helper()
	if c.frame {
		tagged := append([]byte{}, frame[:12]...)
		frame = append(append(tagged, 0x81, 0, 0, tag), frame[12:]...)
	}
	verdict, out, err := d.Frames.Test(frame, loopback)
	switch {
	case err != nil:
		t.Fatal(err)
	case verdict == xdp.VerdictTX || verdict == xdp.VerdictRedirect:
		return out
	case verdict != xdp.VerdictDrop:
		t.Errorf("verdict %s", xdp.VerdictName(verdict))
	}
	return nil
}

func comparisons() []comparison {
	all := append(switching(), decapsulation()...)
	return append(all, headends()...)
}

func segmentsTo(sid string, n int) []string {
	return append([]string{"fc00:b::1", "fc00:c::1", "fc00:d::1"}[:n], sid)
}

// alternatives are samples with each number of segments still to go.
func alternatives(sid string) []sample {
	var out []sample
	for n := 1; n <= 3; n++ {
		for _, s := range outerFrames(sid, segmentsTo(sid, n), uint8(n)) {
			out = append(out, sample{fmt.Sprintf("%s, %d left", s.name, n), s.packet})
		}
	}
	return out
}

// switching are the behaviours that go by the outer header.
func switching() []comparison {
	const sid = "fc00:a:1::/64"
	route := func(action string) string {
		return "-6 route add " + sid + " encap seg6local action " + action + " dev out"
	}
	to := strings.TrimSuffix(sid, "/64")
	all := alternatives(to)
	compressed := append(outerFrames("fc00:a:1:b:c:d::", nil, 0), outerFrames("fc00:a:1:b::", []string{"fc00:b::1", "fc00:a:1:b::"}, 1)...)
	compressed = append(compressed, alternatives("fc00:a:1::")...)
	return []comparison{
		{name: "End", kernel: route("End"), sid: local(sid, srv6.End), samples: all},
		{name: "End with PSP", kernel: route("End flavors psp"), sid: local(sid, srv6.End, flavors(srv6.PSP)), samples: all},
		{name: "End with NEXT-C-SID",
			kernel: "-6 route add fc00:a:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev out",
			sid:    local("fc00:a:1::/48", srv6.End, flavors(srv6.NextCSID), func(l *srv6.LocalSID) { l.BlockLength = 32 }), samples: compressed},
		{name: "End.X", kernel: route("End.X nh6 " + gateway6), sid: local(sid, srv6.EndX, via(gateway6)), samples: all},
		{name: "End.T", kernel: route("End.T table 100"), sid: local(sid, srv6.EndT, table(100)), samples: all},
		{name: "End.B6.Encaps", kernel: route("End.B6.Encaps srh segs fc00:e::1,fc00:f::1"),
			sid:    local(sid, srv6.EndB6Encaps),
			policy: []string{"fc00:e::1", "fc00:f::1"}, mode: srv6.HEncaps, samples: all, known: knownOfB6},
	}
}

// decapsulation are the behaviours that go by the inner packet.
func decapsulation() []comparison {
	const sid = "fc00:a:2::/64"
	route := func(action string) string {
		return "-6 route add " + sid + " encap seg6local action " + action + " dev out"
	}
	to := strings.TrimSuffix(sid, "/64")
	four, six := carried(to, ends{dst4: "10.9.0.9"}), carried(to, ends{dst6: "2001:db8:9::9"})
	near := carried(to, ends{dst4: "10.2.0.9"})
	var frames []sample
	for _, in := range innerPackets(ends{"10.9.0.9", "2001:db8:9::9"}) {
		for n, segments := range [][]string{nil, {to}, {to, "fc00:c::1"}} {
			name := fmt.Sprintf("%s, %d segments", in.name, n)
			frames = append(frames, sample{name, outer(to, segments, 0, class(3), 1, 143, ethernet(nil, in.packet))})
		}
	}
	return []comparison{
		{name: "End.DX2", kernel: route("End.DX2 oif out"), sid: local(sid, srv6.EndDX2, onLink("out")), samples: frames, whole: true},
		{name: "End.DX4", kernel: route("End.DX4 nh4 " + nextHop4), sid: local(sid, srv6.EndDX4, via(nextHop4)), samples: four, known: knownOfDecapsulation4},
		{name: "End.DX4 by the destination", kernel: route("End.DX4 nh4 0.0.0.0"), sid: local(sid, srv6.EndDX4, onLink("out")), samples: near, known: knownOfDecapsulation4},
		{name: "End.DX6", kernel: route("End.DX6 nh6 " + gateway6), sid: local(sid, srv6.EndDX6, via(gateway6)), samples: six, known: knownOfDecapsulation},
		{name: "End.DT6", kernel: route("End.DT6 table 100"), sid: local(sid, srv6.EndDT6, table(100)), samples: six, known: knownOfDecapsulation},
	}
}

// headends are the ways into a policy.
func headends() []comparison {
	var out []comparison
	for _, mode := range []struct {
		name, ip string
		behavior srv6.Behavior
		frame    bool
	}{
		{"H.Encaps", "encap", srv6.HEncaps, false},
		{"H.Encaps.Red", "encap.red", srv6.HEncapsRed, false},
		{"H.Encaps.L2", "l2encap", srv6.HEncapsL2, true},
		{"H.Encaps.L2.Red", "l2encap.red", srv6.HEncapsL2Red, true},
	} {
		for n := 1; n <= 3; n++ {
			segments := []string{"fc00:b::1", "fc00:c::1", "fc00:d::1"}[:n]
			for _, family := range []struct {
				name, option, prefix string
				to                   ends
				packets, frames      []difference
			}{
				{"IPv4", "-4", "10.20.0.0/16", ends{dst4: "10.20.0.9"}, knownOfEncaps4, knownOfFrames4},
				{"IPv6", "-6", "2001:db8:20::/48", ends{dst6: "2001:db8:20::9"}, knownOfEncaps6, knownOfFrames6},
			} {
				c := comparison{
					name: fmt.Sprintf("%s of %s with %d segments", mode.name, family.name, n),
					kernel: fmt.Sprintf("%s route add %s encap seg6 mode %s segs %s dev out", family.option, family.prefix, mode.ip,
						strings.Join(segments, ",")),
					policy: segments, mode: mode.behavior, frame: mode.frame, samples: innerPackets(family.to), known: family.frames,
				}
				if !mode.frame {
					c.prefix, c.known = []string{family.prefix}, family.packets
				}
				out = append(out, c)
			}
		}
	}
	return out
}
