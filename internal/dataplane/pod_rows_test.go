package dataplane

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/packet"
)

// The rows of this file are what culvert_pod and culvert_uplink do otherwise than
// the journey, so that no golden file has it: into pods, into the kernel by
// culvert0, by the kernel's answers. Ports: the host's ends of two pods' veths, an
// uplink, one to other domains, and culvert1.
const (
	rowPod     = 50
	rowUplink  = 51
	rowForeign = 52
	rowEntry   = 53
	rowPeer    = 54
)

var rowPorts = []model.Port{{Name: "podveth", Ifindex: rowPod}, {Name: "up", Ifindex: rowUplink},
	{Name: "foreign", Ifindex: rowForeign}, {Name: "culvert1", Ifindex: rowEntry}, {Name: "peerveth", Ifindex: rowPeer}}

const rowConfig = `
interfaces: [{name: up, roles: [any]}, {name: foreign, roles: [edge]}]
domain: ["fc00::/16"]
encapsulation: {source: "fc00:1::1"}
sids:
  - {sid: "fc00:1:0:1::", behavior: End}
  - {sid: "fc00:1:0:2::", behavior: End, flavors: [USD]}
  - {sid: "fc00:1:0:3::", behavior: End.X, next_hop: "fd06::2"}
  - {sid: "fc00:1:0:4::", behavior: End.DT4, table: 254}
  - {sid: "fc00:1:0:6::", behavior: End.DT6, table: 254}
  - {sid: "fc00:1:0:7::", behavior: End.DT6, table: 254, allow_upper_layer: true}
  - {sid: "fc00:1:0:9::", behavior: End, allow_upper_layer: true}
  - {sid: "fc00:1:0:14::", behavior: End.DT4, table: 100}
  - {sid: "fc00:1:0:16::", behavior: End.DT6, table: 100}
  - {sid: "fc00:1:0:b1::", behavior: End.B6.Encaps.Red, policy: reached}
  - {sid: "fc00:1:0:b2::", behavior: End.B6.Encaps.Red, policy: resolved}
  - {sid: "fc00:1:0:b3::", behavior: End.B6.Encaps.Red, policy: unreachable}
  - {sid: "fc00:1:0:b4::", behavior: End.B6.Encaps.Red, policy: nowhere}
  - {sid: "fc00:1:0:b5::", behavior: End.B6.Encaps.Red, policy: narrow}
  - {sid: "fc00:1:0:b6::", behavior: End.B6.Encaps.Red, policy: empty}
  - {sid: "fcbb:bb00:1::/48", behavior: End, flavors: [NEXT-C-SID], block_length: 32}
  - {sid: "fcbb:bb00:6::/48", behavior: End.DT6, table: 254}
policies:
  - {name: reached, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:a::"]}]}
  - {name: resolved, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:b::"]}]}
  - {name: unreachable, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:c::"]}]}
  - {name: nowhere, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:d::"]}]}
  - {name: narrow, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:e::"]}]}
  - {name: tagged, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:1a::"]}]}
  - {name: tagged-twice, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:1b::"]}]}
  - {name: empty, behavior: H.Encaps.Red, segment_lists: [{segments: ["fc00:f::"]}]}
steering:
  - {prefix: 10.11.0.0/16, policy: reached}
  - {prefix: 10.12.0.0/16, policy: resolved}
  - {prefix: 10.13.0.0/16, policy: unreachable}
  - {prefix: 10.14.0.0/16, policy: nowhere}
  - {prefix: 10.15.0.0/16, policy: narrow}
  - {prefix: 10.16.0.0/16, policy: empty}
  - {prefix: 10.17.0.0/16, policy: tagged}
  - {prefix: 10.18.0.0/16, policy: tagged-twice}
  - {prefix: "fd11::/64", policy: reached}
  - {prefix: "fc00:1234::/64", policy: reached}
`

// rowHops are ready, behind tags; other next hops are what the kernel says.
var rowHops = []model.Adjacency{
	{Key: model.Key{NextHop: addr("fc00:1a::")}, Out: "up", MTU: 1500, Dst: model.MAC{2, 0, 0, 0, 6, 2}, VLAN: []model.VLAN{{TPID: 0x8100, ID: 7}}},
	{Key: model.Key{NextHop: addr("fc00:1b::")}, Out: "up", MTU: 1500, Dst: model.MAC{2, 0, 0, 0, 6, 2},
		VLAN: []model.VLAN{{TPID: 0x88a8, ID: 8}, {TPID: 0x8100, ID: 9}}},
}

// rowRoutes are what the kernel answers from: one neighbour is there, one is to be
// resolved.
var rowRoutes = []string{
	"-4 addr add 10.6.0.1/24 dev up", "-6 addr add fd06::1/64 dev up",
	"-4 neigh add 10.6.0.2 dev up nud permanent lladdr 02:00:00:00:06:02",
	"-6 neigh add fd06::2 dev up nud permanent lladdr 02:00:00:00:06:02",
	"-6 route add fc00:a::/32 via fd06::2", "-6 route add fc00:b::/32 via fd06::9", "-6 route add unreachable fc00:c::/32",
	"-6 route add fc00:e::/32 via fd06::2 mtu lock 1300",
	"-4 route add 10.21.0.0/16 via 10.6.0.2 table 100", "-6 route add fd21::/64 via fd06::2 table 100",
	"-4 route add 10.22.0.0/16 via 10.6.0.9 table 100", "-6 route add fd22::/64 via fd06::9 table 100",
	"-4 route add unreachable 10.23.0.0/16 table 100", "-6 route add blackhole fd23::/64 table 100",
	"-4 route add 10.25.0.0/16 via 10.6.0.2 mtu lock 1300 table 100", "-6 route add fd25::/64 via fd06::2 mtu lock 1300 table 100",
	"-4 route add 10.26.0.0/16 via inet6 fd06::2 table 100", "-6 route add prohibit fd26::/64 table 100",
}

// rowPods are the node's pods, by the host's end.
var rowPods = map[int]pod.Pod{
	rowPod:  {Ifindex: rowPod, MAC: hostA, Addresses: addrs("10.2.2.2", "fd02::2")},
	rowPeer: {Ifindex: rowPeer, MAC: hostB, Addresses: addrs("10.1.1.1", "fd01::1")},
}

// newRowRig is a node whose tables and routes say all of that.
func newRowRig(t testing.TB) *rig {
	t.Helper()
	c, err := config.Parse([]byte(rowConfig))
	must(t, err)
	r := newRig(t)
	must(t, r.program(model.Network{Config: *c, Ports: rowPorts, Adjacencies: rowHops}))
	for _, p := range rowPods {
		must(t, r.d.Pods.Put(p))
	}
	must(t, r.d.Members.Put(overlay.Member{Prefix: prefix(insider + "/128")}))
	must(t, r.d.Members.Put(overlay.Member{Prefix: prefix("fd77::/48"), SIDs: true}))
	empty := r.d.Policies.Get("empty").Index()
	must(t, r.d.maps[abi.MapSrPolicy].Put(empty, &abi.SrPolicy{}))
	for _, line := range rowRoutes {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", line, err, out)
		}
	}
	return r
}

type layers = []packet.Layer

func ip4(src, dst string) packet.IPv4 { return packet.IPv4{Src: addr(src), Dst: addr(dst)} }
func ip6(src, dst string) packet.IPv6 { return packet.IPv6{Src: addr(src), Dst: addr(dst)} }

func hops4(p packet.IPv4, ttl uint8) packet.IPv4  { p.TTL = &ttl; return p }
func hops6(p packet.IPv6, hops uint8) packet.IPv6 { p.HopLimit = &hops; return p }
func class4(p packet.IPv4, tos uint8) packet.IPv4 { p.TOS = tos; return p }
func class6(p packet.IPv6, tc uint8) packet.IPv6  { p.Class = tc; return p }

func srhOf(left uint8, segments ...string) packet.SRH {
	return packet.SRH{Segments: addrs(segments...), Left: &left}
}

func of(parts ...any) layers {
	var all layers
	for _, p := range parts {
		switch p := p.(type) {
		case packet.Layer:
			all = append(all, p)
		case layers:
			all = append(all, p...)
		}
	}
	return all
}

// datagram is what is behind the IP header.
func datagram(octets int) layers {
	return layers{packet.UDP{Sport: 1000, Dport: 2000}, packet.Payload{Count: octets}}
}

var (
	toPod4  = of(ip4("10.1.1.1", "10.2.2.2"), datagram(20))
	toPod6  = of(ip6("fd01::1", "fd02::2"), datagram(20))
	inPod4  = of(podFrame, hops4(ip4("10.1.1.1", "10.2.2.2"), 63), datagram(20))
	inPod6  = of(podFrame, hops6(ip6("fd01::1", "fd02::2"), 63), datagram(20))
	gateway = packet.Hex{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

	podFrame = packet.Ethernet{Dst: packet.Hex(hostA), Src: gateway}
)

// podRow is a packet, and how it has to end.
type podRow struct {
	name string
	port int
	in   layers
	dst  packet.Hex // MAC; that of the port unless set
	src  packet.Hex // MAC; of a pod's port that of the pod unless set
	cut  int        // octets missing at the end

	end    string // forwarded, passed, or the reason of a drop
	out    layers // nil: unchanged
	counts []string
}

// macOf is the address of an interface.
func macOf(t testing.TB, ifindex int) packet.Hex {
	return packet.Hex(addressed(t, make([]byte, 14), ifindex)[:6])
}

var tcxVerdicts = map[string]uint32{"forwarded": tcxRedirect, "passed": tcxNext}

// frameAt is a frame as it arrives at a port, of a pod from its MAC.
func frameAt(t testing.TB, port int, in layers) []byte {
	t.Helper()
	if _, ok := in[0].(packet.Ethernet); !ok {
		in = of(packet.Ethernet{}, in)
	}
	frame := addressed(t, packet.Frame(in...), port)
	copy(frame[6:12], rowPods[port].MAC)
	return frame
}

func (r *rig) checkRow(t *testing.T, program *ebpf.Program, row *podRow) {
	t.Helper()
	frame := frameAt(t, row.port, row.in)
	copy(frame, row.dst)
	copy(frame[6:12], row.src)
	frame = frame[:len(frame)-row.cut]
	before := r.counters(t)
	verdict, out := runOn(t, program, frame, row.port)
	counted := since(before, r.counters(t))
	want, ok := tcxVerdicts[row.end]
	if !ok {
		want = tcxDrop
	}
	if verdict != want {
		t.Errorf("%s: verdict %d, want %d; counted %v", row.name, int32(verdict), want, counted)
	}
	wantOut := frame
	if row.out != nil {
		wantOut = packet.Frame(row.out...)
	}
	if want != tcxDrop && !bytes.Equal(withoutLabel(out, row.out), withoutLabel(wantOut, row.out)) {
		t.Errorf("%s: out comes\n%x, want\n%x", row.name, out, wantOut)
	}
	wantCounts := model.Counts{model.OutcomeName(model.Reason(row.end)): {Packets: 1, Bytes: uint64(len(frame))}}
	for _, name := range row.counts {
		octets := len(frame) - 14
		if strings.HasPrefix(name, "list ") {
			octets = len(wantOut) - layer3(row.out)
		}
		wantCounts[name] = model.Counter{Packets: 1, Bytes: uint64(octets)}
	}
	if diff := cmp.Diff(wantCounts, counted); diff != "" {
		t.Errorf("%s: counters (-want +got):\n%s", row.name, diff)
	}
}

// withoutLabel leaves out the flow label of a tunnel that was made: the golden
// files have it.
func withoutLabel(frame []byte, made layers) []byte {
	frame = bytes.Clone(frame)
	if at := layer3(made); len(made) > 2 && len(frame) > at+4 && isTunnel(made[1:]) {
		word := binary.BigEndian.Uint32(frame[at:])
		binary.BigEndian.PutUint32(frame[at:], word&^0xfffff)
	}
	return frame
}

// layer3 is where the packet of a frame begins.
func layer3(frame layers) int {
	if len(frame) == 0 {
		return 14
	}
	return 14 + 4*len(frame[0].(packet.Ethernet).VLAN)
}

func isTunnel(made layers) bool {
	_, outer := made[0].(packet.IPv6)
	_, in4 := made[1].(packet.IPv4)
	_, in6 := made[1].(packet.IPv6)
	return outer && (in4 || in6)
}

func sidCount(s string) string { return model.SIDName(netip.PrefixFrom(addr(s), 128)) }

const (
	nodeEnd, usd = "fc00:1:0:1::", "fc00:1:0:2::"
	hostSID      = "fc00:1:0:9::" // as a node's own address with sids: double
	dt4, dt6     = "fc00:1:0:4::", "fc00:1:0:6::"
	table4       = "fc00:1:0:14::"
	table6       = "fc00:1:0:16::"
	other        = "fc00:2::1" // a node
	insider      = "fd66::1"   // a node whose address is outside of the domain
	stranger     = "fd88::1"
	csid         = "fcbb:bb00:1::/48"
	csidDT6      = "fcbb:bb00:6::/48"
)

var noTunnel = packet.Hex{2, 0, 0, 0, 0, 0x77} // somebody else's MAC

func csidCount(s string) string { return model.SIDName(netip.MustParsePrefix(s)) }

var (
	nextFrame   = packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 6, 2}, Src: packet.Hex("source")}
	withoutMACs = packet.Ethernet{Dst: packet.Hex{0, 0, 0, 0, 0, 0}, Src: packet.Hex{0, 0, 0, 0, 0, 0}} // the kernel writes them
)

// bound is for a binding SID, with one more segment.
func bound(function string, inner ...packet.Layer) layers {
	sid := "fc00:1:0:" + function + "::"
	return of(ip6(other, sid), srhOf(1, "fc00:9::", sid), boundInner(inner))
}

// boundNext is what goes into the policy then.
func boundNext(function string) layers {
	return of(hops6(ip6(other, "fc00:9::"), 63), srhOf(0, "fc00:9::", "fc00:1:0:"+function+"::"), boundInner(nil))
}

func boundInner(inner layers) layers {
	if inner == nil {
		inner = datagram(20)
	}
	return of(ip6("fd01::1", "fd02::2"), inner)
}

var (
	options4  = packet.IPv4{Src: addr("10.1.1.1"), Dst: addr("10.2.2.2"), Options: packet.Hex{7, 7, 4, 0, 0, 0, 0, 0}}
	fragment4 = packet.IPv4{Src: addr("10.1.1.1"), Dst: addr("10.2.2.2"), Fragment: 0x2000}
	echo4     = packet.ICMP{Type: 8}
	error4    = of(packet.ICMP{Type: 3, Code: 4, Rest: 1300}, hops4(ip4("10.2.2.2", "10.1.1.1"), 9), datagram(0))
	echo6     = packet.ICMP{V6: true, Type: 129}
	error6    = of(packet.ICMP{V6: true, Type: 2, Rest: 1300}, ip6("fd02::2", "fd01::1"), datagram(0))
	fragment6 = packet.Extension{Kind: 44, Data: packet.Hex{0, 1, 0, 0, 0, 7}}
	options6  = packet.Extension{Kind: 60, Data: packet.Hex{1, 4, 0, 0, 0, 0}}
)

// taggedFrame is the frame of rowHops; the outermost tag is beside it.
func taggedFrame(inside ...uint16) packet.Ethernet {
	return packet.Ethernet{Dst: packet.Hex{2, 0, 0, 0, 6, 2}, Src: packet.Hex{0, 0, 0, 0, 0, 0}, VLAN: inside}
}

// tunnelTo is what goes into a policy of one segment.
func tunnelTo(eth packet.Ethernet, segment string, in layers) layers {
	return of(eth, ip6("fc00:1::1", segment), in)
}

var podRows = []podRow{
	// Whose it is.
	{name: "another host's frame", port: rowPeer, dst: noTunnel, in: of(toPod4), end: "passed"},
	{name: "another host's frame, from the kernel", port: rowEntry, dst: noTunnel, in: of(toPod4), end: "forwarded", out: inPod4},
	{name: "a broadcast frame", port: rowPeer, dst: packet.Hex{255, 255, 255, 255, 255, 255}, in: of(toPod4), end: "passed"},
	{name: "a multicast frame, from the kernel", port: rowEntry, dst: packet.Hex{0x33, 0x33, 0, 0, 0, 1}, in: of(toPod6), end: "passed"},
	{name: "to nobody", in: of(ip4("10.2.2.2", "192.0.2.1"), datagram(20)), end: "passed"},
	{name: "to nobody, from the kernel", port: rowEntry, in: of(ip6("fd02::2", "2001:db8::1"), datagram(20)), end: "passed"},
	{name: "to a SID", in: of(ip6("fd02::2", dt6), toPod6), end: "sr_domain_edge"},
	{name: "to a steered part of the domain", in: of(ip6("fd02::2", "fc00:1234::1"), datagram(20)), end: "sr_domain_edge"},
	{name: "from the domain", in: of(ip6(other, "fd02::2"), datagram(20)), end: "pod_source"},
	{name: "from the domain, from the kernel", port: rowEntry, in: of(ip6(other, "fd02::2"), datagram(20)), end: "forwarded",
		out: of(podFrame, hops6(ip6(other, "fd02::2"), 63), datagram(20))},

	// Into a pod of this node.
	{name: "a pod, IPv4", port: rowPeer, in: of(toPod4), end: "forwarded", out: inPod4},
	{name: "a pod, IPv6", port: rowPeer, in: of(toPod6), end: "forwarded", out: inPod6},
	{name: "a pod, TTL 1", port: rowPeer, in: of(hops4(ip4("10.1.1.1", "10.2.2.2"), 1), datagram(20)), end: "passed"},
	{name: "a pod, hop limit 0", port: rowPeer, in: of(hops6(ip6("fd01::1", "fd02::2"), 0), datagram(20)), end: "passed"},
	{name: "a pod, cut short", port: rowPeer, in: of(toPod6), cut: 1, end: "passed"},

	// Into a policy, by the kernel's answer.
	{name: "a policy", in: of(ip4("10.2.2.2", "10.11.0.1"), datagram(20)), end: "forwarded", counts: []string{"list reached 0"},
		out: tunnelTo(nextFrame, "fc00:a::", of(hops4(ip4("10.2.2.2", "10.11.0.1"), 63), datagram(20)))},
	{name: "a policy, IPv6", in: of(ip6("fd02::2", "fd11::1"), datagram(20)), end: "forwarded", counts: []string{"list reached 0"},
		out: tunnelTo(nextFrame, "fc00:a::", of(hops6(ip6("fd02::2", "fd11::1"), 63), datagram(20)))},
	{name: "a policy in the domain, from the kernel", port: rowEntry, in: of(ip6("fd02::2", "fc00:1234::1"), datagram(20)), end: "forwarded",
		out: tunnelTo(nextFrame, "fc00:a::", of(hops6(ip6("fd02::2", "fc00:1234::1"), 63), datagram(20))), counts: []string{"list reached 0"}},
	{name: "a policy, unresolved", in: of(ip4("10.2.2.2", "10.12.0.1"), datagram(20)), end: "forwarded", counts: []string{"list resolved 0"},
		out: tunnelTo(withoutMACs, "fc00:b::", of(hops4(ip4("10.2.2.2", "10.12.0.1"), 63), datagram(20)))},
	{name: "a policy to nowhere that is known", in: of(ip4("10.2.2.2", "10.13.0.1"), datagram(20)), end: "unreachable"},
	{name: "a policy without a route", in: of(ip4("10.2.2.2", "10.14.0.1"), datagram(20)), end: "no_route"},
	{name: "a policy, MTU", in: of(ip4("10.2.2.2", "10.15.0.1"), datagram(1300-67)), end: "passed"},
	{name: "a policy, MTU, from the kernel", port: rowEntry, in: of(ip4("10.2.2.2", "10.15.0.1"), datagram(1300-67)), end: "too_big"},
	{name: "a policy, MTU is met", in: of(ip4("10.2.2.2", "10.15.0.1"), datagram(1300-68)), end: "forwarded", counts: []string{"list narrow 0"},
		out: tunnelTo(nextFrame, "fc00:e::", of(hops4(ip4("10.2.2.2", "10.15.0.1"), 63), datagram(1300-68)))},
	{name: "a policy behind a tag", in: of(ip4("10.2.2.2", "10.17.0.1"), datagram(20)), end: "forwarded", counts: []string{"list tagged 0"},
		out: tunnelTo(taggedFrame(), "fc00:1a::", of(hops4(ip4("10.2.2.2", "10.17.0.1"), 63), datagram(20)))},
	{name: "a policy behind two tags", in: of(ip4("10.2.2.2", "10.18.0.1"), datagram(20)), end: "forwarded", counts: []string{"list tagged-twice 0"},
		out: tunnelTo(taggedFrame(9), "fc00:1b::", of(hops4(ip4("10.2.2.2", "10.18.0.1"), 63), datagram(20)))},
	{name: "a policy without lists", in: of(ip4("10.2.2.2", "10.16.0.1"), datagram(20)), end: "no_segment_list"},
}

// runRows sends rows through a program, which come in by a port unless they name one:
// as packets that the kernel knows as ones in a tunnel, and as others.
func runRows(t *testing.T, name string, rows []podRow, port int) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		program := podProgramsOf(t, r.d)[name]
		for _, p := range []*ebpf.Program{program, tunnelled(t, program)} {
			for _, row := range rows {
				if row.port == 0 {
					row.port = port
				}
				row.out = r.sourced(t, row.out)
				r.checkRow(t, p, &row)
			}
		}
	})
}

// TestPodRows runs the rows through culvert_pod.
func TestPodRows(t *testing.T) {
	runRows(t, abi.ProgCulvertPod, podRows, rowPod)
}

// wholeContext is struct __sk_buff as far as to what it says of many packets in
// one.
type wholeContext struct {
	skbContext
	_        [30]uint32
	Segments uint32
	_        [2]uint32
	GSO      uint32
}

// TestLargestOfMany: of many packets in one it is the largest that has to fit. From
// a pod one that does not fit is the kernel's. Of one that fits no tunnel can be
// made or taken off here, where the kernel is not told what the parts are: the
// reason is another.
func TestLargestOfMany(t *testing.T) {
	tcp := func(options int) layers {
		return of(packet.TCP{Sport: 1, Dport: 2, Options: make(packet.Hex, options)}, packet.Payload{Count: 3000})
	}
	options := packet.IPv4{Src: addr("10.2.2.2"), Dst: addr("10.15.0.1"), Options: make(packet.Hex, 8)}
	pod, uplink := abi.ProgCulvertPod, abi.ProgCulvertUplink
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		for _, c := range []struct {
			name, program string
			port          int
			in            layers
			fits          uint32 // the largest gso_size: the MTU is 1300, from a pod 40 octets are pushed
			otherwise     string
		}{
			{"UDP", pod, rowPod, of(ip4("10.2.2.2", "10.15.0.1"), datagram(3000)), 1300 - 40 - 28, "passed"},
			{"TCP", pod, rowPod, of(ip4("10.2.2.2", "10.15.0.1"), tcp(0)), 1300 - 40 - 40, "passed"},
			{"TCP with options", pod, rowPod, of(ip4("10.2.2.2", "10.15.0.1"), tcp(12)), 1300 - 40 - 52, "passed"},
			{"TCP behind IPv4 options", pod, rowPod, of(options, tcp(12)), 1300 - 40 - 60, "passed"},
			{"TCP from the kernel", pod, rowEntry, of(ip4("10.2.2.2", "10.15.0.1"), tcp(12)), 1300 - 40 - 52, "too_big"},
			{"TCP by a table", uplink, rowUplink, of(ip6(other, table4), ip4("10.1.1.1", "10.25.0.1"), tcp(12)), 1300 - 52, "too_big"},
			{"TCP over IPv6 by a table", uplink, rowUplink, of(ip6(other, table6), srhOf(0, table6), ip6("fd01::1", "fd25::1"), tcp(12)), 1300 - 72, "too_big"},
		} {
			for size, end := range map[uint32]string{c.fits: "headroom", c.fits + 1: c.otherwise, 0xffff: c.otherwise} {
				if got := r.endOfMany(t, c.program, c.in, c.port, size); got != end {
					t.Errorf("%s, gso_size %d: %s, want %s", c.name, size, got, end)
				}
			}
		}
	})
}

// endOfMany runs a program on three packets in one, of which each but the last has
// `size` octets of payload, and says how they were counted.
func (r *rig) endOfMany(t *testing.T, program string, in layers, port int, size uint32) (end string) {
	t.Helper()
	frame := frameAt(t, port, in)
	before := r.counters(t)
	_, err := podProgramsOf(t, r.d)[program].Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+100),
		Context: wholeContext{skbContext: skbContext{Ifindex: uint32(port)}, Segments: 3, GSO: size}})
	must(t, err)
	for name, c := range since(before, r.counters(t)) {
		if end != "" || c != (model.Counter{Packets: 3, Bytes: uint64(len(frame))}) {
			t.Errorf("gso_size %d: %s counts %+v", size, name, c)
		}
		end = strings.TrimPrefix(name, "outcome ")
	}
	return end
}

// answers are packets to the pod that conntrack can be asked about or not. Inside
// of both tunnels they begin with the IP header.
var answers = []struct {
	name string
	in   layers
	asks bool
}{
	{"UDP", of(toPod4), true},
	{"UDP over IPv6", of(toPod6), true},
	{"TCP", of(ip4("10.1.1.1", "10.2.2.2"), packet.TCP{Sport: 1, Dport: 2}), true},
	{"IPv4 options", of(options4, datagram(20)), true},
	{"an echo request", of(ip4("10.1.1.1", "10.2.2.2"), echo4), true},
	{"an echo reply over IPv6", of(ip6("fd01::1", "fd02::2"), echo6), true},
	{"a fragment", of(fragment4, datagram(20)), false},
	{"a fragment of an echo", of(fragment4, echo4), false},
	{"a fragment over IPv6", of(ip6("fd01::1", "fd02::2"), fragment6, datagram(20)), false},
	{"options over IPv6", of(ip6("fd01::1", "fd02::2"), options6, datagram(20)), false},
	{"an ICMP error", of(ip4("10.1.1.1", "10.2.2.2"), error4), false},
	{"an ICMP error about a fragment", of(ip4("10.1.1.1", "10.2.2.2"), packet.ICMP{Type: 3, Code: 4}, fragment4, datagram(0)), false},
	{"an ICMPv6 error", of(ip6("fd01::1", "fd02::2"), error6), false},
	{"an ICMPv6 error about a fragment", of(ip6("fd01::1", "fd02::2"), packet.ICMP{V6: true, Type: 2}, ip6("fd02::2", "fd01::1"), fragment6), false},
	{"no ICMP header", of(ip4("10.1.1.1", "10.2.2.2"), packet.Payload{Proto: 1}), false},
	{"SCTP", of(ip4("10.1.1.1", "10.2.2.2"), packet.Payload{Count: 12, Proto: 132}), false},
}

// spent is a packet with one hop less.
func spent(in layers) layers {
	in = slices.Clone(in)
	switch p := in[0].(type) {
	case packet.IPv4:
		in[0] = hops4(p, 63)
	case packet.IPv6:
		in[0] = hops6(p, 63)
	}
	return in
}

// TestAnswerRows: what is for a pod goes into it; where the kernel translates
// flows, it gets what conntrack cannot be asked about, by culvert0 where that is
// there, with the hop that it will spend.
func TestAnswerRows(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		uplink, pod := podProgramsOf(t, r.d)[abi.ProgCulvertUplink], podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		entry := abi.Overlay{Entry: 153, Translates: 1, Mac: [6]uint8{2, 0, 0, 0, 0, 0xc0}}
		for _, o := range []abi.Overlay{{}, {Translates: 1}, entry} {
			must(t, r.d.maps[abi.MapOverlay].Put(uint32(0), &o))
			for _, a := range answers {
				sid := dt6
				if _, ok := a.in[0].(packet.IPv4); ok {
					sid = dt4
				}
				in := podRow{name: "uplink: " + a.name, port: rowUplink, in: of(ip6(other, sid), a.in), counts: []string{sidCount(sid)}}
				own := podRow{name: "pod: " + a.name, port: rowPeer, in: a.in}
				switch {
				case a.asks || o.Translates == 0:
					in.end, in.out = "forwarded", of(podFrame, spent(a.in))
					own.end, own.out = in.end, in.out
				case o.Entry != 0:
					in.end, in.out = "forwarded", of(packet.Ethernet{Dst: o.Mac[:], Src: gateway}, a.in)
					own.end = "passed"
				default:
					in.end, in.out = "passed", of(packet.Ethernet{Dst: macOf(t, rowUplink)}, a.in)
					own.end = "passed"
				}
				r.checkRow(t, uplink, &in)
				r.checkRow(t, pod, &own)
			}
		}
	})
}
