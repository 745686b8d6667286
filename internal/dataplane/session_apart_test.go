package dataplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/packet"
)

// asked is what a filter of a QoS flow asks for: packets of a protocol (0: any), with a remote
// address and a remote port (0: any).
type asked struct {
	protocol uint8
	remote   string
	port     uint16
}

func (a asked) filter() Filter {
	f := anyFilter
	f.Remote, f.AnyProtocol, f.Protocol = prefix(a.remote), a.protocol == 0, a.protocol
	if a.port != 0 {
		f.RemotePorts = [2]uint16{a.port, a.port}
	}
	return f
}

func (a asked) takes(protocol uint8, remote netip.Addr, port uint16) bool {
	return (a.protocol == 0 || a.protocol == protocol) && prefix(a.remote).Contains(remote) && (a.port == 0 || a.port == port)
}

// withFlows adds a rule for each, both ways, before those that take everything: 10 and up, 30 and up.
func withFlows(s Session, flows []asked) Session {
	for i, a := range flows {
		up, down := s.Rules[0], s.Rules[1]
		up.ID, up.Precedence, up.Filters = uint16(10+i), uint32(1+i), []Filter{a.filter()}
		down.ID, down.Precedence, down.Filters = uint16(30+i), uint32(1+i), []Filter{a.filter()}
		s.Rules = append(s.Rules, up, down)
	}
	return s
}

// takerOf is the rule that takes a packet: up the first, or down the second.
func takerOf(flows []asked, protocol uint8, remote netip.Addr, port uint16) [2]uint16 {
	for i, a := range flows {
		if a.takes(protocol, remote, port) {
			return [2]uint16{uint16(10 + i), uint16(30 + i)}
		}
	}
	return [2]uint16{1, 2}
}

// randomFlows are up to four of few networks, so that what they have in common is long or short.
func randomFlows(r *rand.Rand) (flows []asked) {
	for range 1 + r.IntN(4) {
		network := netip.AddrFrom4([4]byte{192, byte(r.IntN(2)), byte(r.IntN(256)), byte(r.IntN(256))})
		flows = append(flows, asked{
			[]uint8{0, 6, 17, 17}[r.IntN(4)], netip.PrefixFrom(network, []int{0, 1, 8, 15, 16, 17, 18, 19, 24, 32}[r.IntN(10)]).Masked().String(),
			[]uint16{0, 53}[r.IntN(2)],
		})
	}
	return flows
}

// TestFlowsTakeTheirPackets demands that each packet is taken by the first rule that asks for it, also
// where the head says what QoS flows have in common and sends all else past their filters.
func TestFlowsTakeTheirPackets(t *testing.T) {
	d := sessionRig(t, Options{})
	const teid = 7
	base, _, _ := d.limits.PDRRanges()
	rows := [][]asked{
		{{6, "198.51.100.0/24", 80}, {6, "198.51.101.0/24", 81}},
		{{0, "203.0.113.0/24", 0}, {17, "203.0.113.7/32", 0}},
		{{17, "0.0.0.0/0", 0}, {17, "10.0.0.0/8", 0}},
		{{6, "0.0.0.0/0", 53}, {17, "192.0.2.0/24", 0}}, // nothing in common
	}
	random, apart := rand.New(rand.NewPCG(1, 2)), 0
	for range 40 {
		rows = append(rows, randomFlows(random))
	}
	for _, flows := range rows {
		must(t, d.Sessions.Put(withFlows(plain(5, teid), flows)))
		settled(d)
		resolve(t, d)
		for _, head := range []uint32{teid, base + 5} {
			if d.sessionTables.PDR.Get(head).Forwarding&uint32(abi.ApartAPART) != 0 {
				apart++
			}
		}
		for _, remote := range remotesOf(flows) {
			for _, protocol := range []uint8{6, 17} {
				wantRule(t, d, teid, flows, protocol, remote)
			}
		}
		must(t, d.Sessions.Drop(5))
		settled(d)
	}
	if apart < len(rows) {
		t.Errorf("%d heads of %d say what flows have in common: the test shows little", apart, 2*len(rows))
	}
}

// remotesOf are the first and the last address of each network, those beside it, and one elsewhere.
func remotesOf(flows []asked) (list []netip.Addr) {
	list = append(list, addr("8.8.8.8"))
	for _, a := range flows {
		p := prefix(a.remote)
		last := p.Addr().As4()
		for bit := p.Bits(); bit < 32; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		for _, at := range []netip.Addr{p.Addr(), p.Addr().Prev(), netip.AddrFrom4(last), netip.AddrFrom4(last).Next()} {
			if at.IsValid() && at.IsGlobalUnicast() && at.As4()[0] != 0 && at.As4()[0] < 224 {
				list = append(list, at)
			}
		}
	}
	return list
}

// wantRule sends a packet both ways, and looks which rule counts it.
func wantRule(t *testing.T, d *DataPlane, teid uint32, flows []asked, protocol uint8, remote netip.Addr) {
	t.Helper()
	const port = 53
	layer := func(source, destination uint16) packet.Layer {
		if protocol == 6 {
			return packet.TCP{Sport: source, Dport: destination}
		}
		return packet.UDP{Sport: source, Dport: destination}
	}
	want := takerOf(flows, protocol, remote, port)
	for i, frame := range [][]byte{
		packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")}, packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: teid},
			packet.IPv4{Src: ue4(5), Dst: remote}, layer(5000, port), packet.Payload{Count: 100}),
		packet.Frame(packet.Ethernet{}, packet.IPv4{Src: remote, Dst: ue4(5)}, layer(port, 5000), packet.Payload{Count: 100}),
	} {
		before := volumes(t, d, 5)
		run(t, d, frame)
		taken := []uint16{}
		for rule, v := range volumes(t, d, 5) {
			if v.Packets != before[rule].Packets {
				taken = append(taken, rule)
			}
		}
		if fmt.Sprint(taken) != fmt.Sprint(want[i:i+1]) {
			t.Errorf("flows %v: protocol %d, remote %s, downlink %v: taken by %v, want %d", flows, protocol, remote, i == 1, taken, want[i])
		}
	}
}
