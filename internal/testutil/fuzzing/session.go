package fuzzing

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

// everything is a rate in kbit/s that no test run reaches: meters are asked and
// paid, and the outcome does not depend on the clock.
const everything = 4_000_000_000

// sessionSource makes sessions and their rules.
type sessionSource struct{ s Source }

func (s Source) ofSessions() sessionSource { return sessionSource{s} }

// sessions gives a network UEs with random rules.
func (src sessionSource) sessions(n *model.Network) {
	n.MSSClamp, n.Config.GTPU.MSSClamp = src.s.chance(70), len(n.Config.SIDs)%2 == 0
	n.UEPools = []netip.Prefix{prefix("10.46.0.0/24"), prefix("2001:db8:46::/56"), prefix("10.146.0.0/28")}
	n.Protected = []netip.Prefix{prefix("10.50.0.0/16"), prefix("3fff:50::/32"), prefix("10.2.2.8/29")}
	n.MayReach = []netip.Prefix{prefix("10.2.2.8/30"), prefix("10.50.1.0/24"), prefix("3fff:50:1::/48")}
	src.nats(n)
	for _, sid := range n.Config.SIDs {
		if (sid.Behavior == srv6.EndDT4 || sid.Behavior == srv6.EndDT6 || sid.Behavior == srv6.EndDT46) && src.s.chance(60) {
			n.SessionSIDs = append(n.SessionSIDs, model.SessionSID{SID: sid.SID, Slice: uint32(src.s.upTo(1, 2)), VPN: src.s.chance(30)})
		}
	}
	for i := range 3 {
		n.Slices = append(n.Slices, model.Slice{ID: uint32(i + 1), Up: pick(src.s, uint64(0), everything), Down: pick(src.s, uint64(0), everything)})
	}
	for i := range 16 {
		n.Sessions = append(n.Sessions, src.session(i))
	}
}

// ueAddresses are those of UE i: in a pool or outside, of one family or both,
// and perhaps a network behind it.
func (src sessionSource) ueAddresses(i int) []netip.Prefix {
	v4, v6 := prefix(fmt.Sprintf("10.46.0.%d/32", i)), prefix(fmt.Sprintf("2001:db8:46:%x::/64", i))
	if src.s.chance(20) {
		v4, v6 = prefix(fmt.Sprintf("172.16.0.%d/32", i)), prefix(fmt.Sprintf("3fff:0:0:%x::/64", i))
	}
	list := pick(src.s, []netip.Prefix{v4}, []netip.Prefix{v6}, []netip.Prefix{v4, v6}, []netip.Prefix{v4, v6})
	if src.s.chance(20) {
		list = append(list, pick(src.s, prefix(fmt.Sprintf("10.47.%d.0/28", i)), prefix(fmt.Sprintf("3fff:47:%x::/48", i))))
	}
	return list
}

// session i has one to four rules up and as many down.
func (src sessionSource) session(i int) model.Session {
	if i >= firstEthernet {
		return src.ethernetSession(i)
	}
	session := model.Session{ID: uint64(i + 1)}
	for range src.s.IntN(3) {
		session.Meters = append(session.Meters, pick(src.s, model.Meter{Rate: everything}, model.Meter{Packets: 65535, Period: time.Second}))
	}
	ue := src.ueAddresses(i + 1)
	teid := uint32(i+1) | uint32(src.s.upTo(1, 255))<<24
	if src.s.chance(20) {
		teid = 0xf0000000 | src.s.Uint32()
	}
	known := src.s.chance(80)
	for range src.s.upTo(1, pick(src.s, 1, 1, 4)) {
		r := src.rule(&session, model.Uplink, ue, known)
		r.TEID = teid
		if known && src.s.chance(95) {
			r.Sources = ue
		}
		session.Rules = append(session.Rules, r)
	}
	for range src.s.upTo(1, pick(src.s, 1, 1, 4)) {
		r := src.rule(&session, model.Downlink, ue, known)
		r.Destinations = ue
		if src.s.chance(15) {
			r.Destinations = ue[:1]
		}
		session.Rules = append(session.Rules, r)
	}
	if src.s.chance(25) { // downlink by N9
		r := src.rule(&session, model.Downlink, ue, known)
		r.TEID = uint32(i+100) | uint32(src.s.upTo(1, 255))<<24
		session.Rules = append(session.Rules, r)
	}
	src.atSID(&session, ue)
	src.group(&session)
	src.quotas(&session)
	return session
}

// quotas has rules of some sessions share quotas. What a rule shares ends at once, after a few
// packets, or never.
func (src sessionSource) quotas(session *model.Session) {
	if src.s.chance(50) {
		return
	}
	for range src.s.upTo(1, 3) {
		q := model.Quota{Until: uint64(src.s.upTo(1, pick(src.s, 300, 5000, 1_000_000))), Refused: src.s.chance(40)}
		for i := range min(len(session.Rules), 8) {
			if src.s.chance(70) {
				q.Rules = append(q.Rules, session.Rules[i].ID)
			}
		}
		session.Quotas = append(session.Quotas, q)
	}
	for i := range session.Rules {
		if r := &session.Rules[i]; src.s.chance(80) {
			r.Shares, r.StopAt = true, uint64(src.s.IntN(pick(src.s, 300, 3000, 100_000)))
		}
	}
}

// group has the UEs of some sessions reach each other.
func (src sessionSource) group(session *model.Session) {
	if src.s.chance(30) {
		return
	}
	group := model.Group{UEToUE: pick(src.s, "", model.BetweenUEsRoute, model.BetweenUEsRoute, model.BetweenUEsN6), Slice: uint32(src.s.IntN(2))}
	if src.s.chance(20) {
		group.NetworkInstance = "ims"
	}
	for i := range session.Rules {
		session.Rules[i].Group = group
	}
}

// atSID has rules of some sessions apply to packets at the SIDs of a slice too.
func (src sessionSource) atSID(session *model.Session, ue []netip.Prefix) {
	if src.s.chance(40) {
		return
	}
	slice := uint32(src.s.upTo(1, 2))
	both := src.s.chance(20)
	uplink := src.s.chance(50)
	for i := range session.Rules {
		r := &session.Rules[i]
		if r.AtSID = (model.AtSID{Slice: slice}); both || (r.Direction == model.Uplink) == uplink {
			r.AtSID.UEs = slices.DeleteFunc(slices.Clone(ue), func(p netip.Prefix) bool { return p.Bits() != 32 && p.Bits() != 64 })
		}
	}
}

// Changed is one of a network's sessions as it shall be next: as a whole, or in
// one of its rules. It tells of no volumes: how often that is told again after
// a change is not defined.
func (s Source) Changed(n *model.Network) model.Session {
	old := n.Sessions[s.IntN(len(n.Sessions))]
	next := s.ofSessions().session(int(old.ID) - 1)
	if s.chance(60) && int(old.ID) <= firstEthernet {
		next = model.Session{ID: old.ID, Meters: old.Meters, Rules: slices.Clone(old.Rules)}
		r := &next.Rules[s.IntN(len(next.Rules))]
		other := s.ofSessions().rule(&next, r.Direction, slices.Concat(r.Sources, r.Destinations, []netip.Prefix{prefix("10.46.0.0/24")}), true)
		switch s.IntN(6) {
		case 0:
			r.Action = other.Action
		case 1:
			r.Forward = other.Forward
		case 2:
			r.Filters, r.QFIs = other.Filters, other.QFIs
		case 3:
			r.Rate, r.Meters, r.Duplicate = other.Rate, other.Meters, other.Duplicate
		case 4:
			r.Precedence, r.QFI, r.RQI, r.Container = other.Precedence, other.QFI, other.RQI, other.Container
		default:
			r.Action, r.Forward = model.ActionForward, other.Forward
		}
	}
	for i := range next.Rules {
		r := &next.Rules[i]
		r.NotifyAt, r.StopAt, r.RefusedNotifyAt, r.Shares = 0, 0, 0, false
	}
	next.Quotas = nil
	return next
}

func (src sessionSource) rule(session *model.Session, d model.Direction, ue []netip.Prefix, known bool) model.Rule {
	r := model.Rule{ID: uint16(len(session.Rules) + 1), Precedence: uint32(src.s.IntN(4)), Direction: d, Forward: src.forwarding(d),
		Action: pick(src.s, model.ActionForward, model.ActionForward, model.ActionForward, model.ActionForward, model.ActionForward,
			model.ActionForward, model.ActionForward, model.ActionForward, model.ActionDrop, model.ActionGate, model.ActionBuffer, model.ActionFull),
		Duplicate: src.s.chance(8), QFI: uint8(src.s.IntN(64)),
		Container: pick(src.s, srv6.ContainerNone, srv6.ContainerDownlink, srv6.ContainerDownlink, srv6.ContainerUplink)}
	r.RQI = r.Container == srv6.ContainerDownlink && src.s.chance(30)
	if src.s.chance(20) {
		r.QFIs = []uint8{uint8(src.s.IntN(4)), uint8(src.s.IntN(64))}
	}
	if src.s.chance(50) {
		for range src.s.upTo(1, 3) {
			r.Filters = append(r.Filters, src.filter(ue, known))
		}
	}
	if src.s.chance(25) {
		r.Rate = everything
	}
	// The last meter is the session's, any other one a flow's.
	if last := len(session.Meters) - 1; last >= 0 && src.s.chance(50) {
		r.Meters = []int{last}
		if last > 0 && src.s.chance(50) {
			r.Meters = []int{0, last}
		}
	}
	if src.s.chance(15) {
		r.NotifyAt = uint64(src.s.upTo(1, pick(src.s, 3000, 50_000)))
	}
	if src.s.chance(20) {
		r.RefusedNotifyAt = uint64(src.s.upTo(1, 3000))
	}
	if src.s.chance(10) {
		r.StopAt = uint64(src.s.upTo(1, pick(src.s, 300, 3000, 100_000)))
	}
	return r
}

func (src sessionSource) forwarding(d model.Direction) model.Forwarding {
	f := model.Forwarding{Slice: uint32(src.s.IntN(4))}
	kinds := []model.ForwardingKind{model.ForwardTable, model.ForwardTable, model.ForwardVPN, model.ForwardGTPU, model.ForwardSRv6, model.ForwardPolicy}
	if d == model.Downlink {
		kinds = []model.ForwardingKind{model.ForwardGTPU, model.ForwardGTPU, model.ForwardGTPU, model.ForwardGTPU, model.ForwardSRv6, model.ForwardPolicy, model.ForwardTable, model.ForwardVPN}
	}
	switch f.Kind = pick(src.s, kinds...); f.Kind {
	case model.ForwardTable:
		f.Table, f.Internal = pick(src.s, uint32(0), 254, 100), src.s.chance(40)
		return f
	case model.ForwardVPN:
		f.VPN, f.Internal = uint8(src.s.upTo(1, 3)), src.s.chance(20) // 3 has no routes
	case model.ForwardGTPU:
		f.TEID = src.s.Uint32() | 1
		ends := pick(src.s, [2]string{"10.8.0.8", "10.3.0.2"}, [2]string{"2001:db8:8::8", "2001:db8:3::5"})
		f.Remote = ip(ends[0])
		if src.s.chance(30) {
			f.Source = ip(ends[1])
		}
	case model.ForwardSRv6:
		f.Remote = pick(src.s, ip("2001:db8:8::8"), ip("2001:db8:e7:1234::5"))
		if src.s.chance(50) {
			f.Source = ip("2001:db8:5::7")
		}
	case model.ForwardPolicy:
		f.Policy = src.s.tables().policy()
		f.Flow.Slice = "a"
		if src.s.chance(80) {
			f.Flow.QFI = new(uint8(src.s.IntN(4)))
		}
	}
	if (f.Kind == model.ForwardSRv6 || f.Kind == model.ForwardPolicy) && src.s.chance(30) {
		f.TEID, f.ArgsOffset = src.s.Uint32(), 88
	}
	if src.s.chance(20) {
		f.ToS, f.ToSMask = uint8(src.s.Uint32()), pick(src.s, uint8(0xfc), 0xff, 0x1c)
	}
	return f
}

// filter is one that frames of this generator have a good chance to meet.
func (src sessionSource) filter(ue []netip.Prefix, known bool) model.Filter {
	var f model.Filter
	if src.s.chance(40) {
		f.Remote = pick(src.s, prefix("10.2.2.0/24"), prefix("10.2.2.16/28"), prefix("10.0.0.0/8"), prefix("3fff::/16"), prefix("3fff::/124"),
			prefix("0.0.0.0/0"), prefix("::/0"), prefix("::ffff:0:0/96"))
	}
	if src.s.chance(15) && known {
		f.Local = pick(src.s, ue...)
	}
	if src.s.chance(50) {
		protocol := pick(src.s, uint8(6), 17, 17, 1, 58, 132, 50, 51)
		f.Protocol = &protocol
		if (protocol == 50 || protocol == 51) && src.s.chance(70) {
			spi := uint32(src.s.IntN(3))
			f.SPI = &spi
			return f
		}
	}
	ports := func() *[2]uint16 {
		low := src.s.upTo(1000, 1005)
		return pick(src.s, nil, nil, &[2]uint16{uint16(low), uint16(low + src.s.IntN(5))}, &[2]uint16{0, 2000}, &[2]uint16{1003, 65535})
	}
	f.RemotePorts, f.LocalPorts = ports(), ports()
	if src.s.chance(15) {
		f.ToS, f.ToSMask = pick(src.s, uint8(0xb8), 0x28), pick(src.s, uint8(0xfc), 0xff, 8)
	}
	if src.s.chance(8) {
		label := uint32(src.s.IntN(2))
		f.FlowLabel = &label
	}
	return f
}

// toSession is a frame for one of the rules of one of the sessions.
func (src frameSource) toSession() []packet.Layer {
	r := src.anyRule()
	if len(src.n.SessionSIDs) > 0 && src.s.chance(25) {
		dst := pick(src.s, src.n.SessionSIDs...).SID.Addr()
		if src.s.chance(30) {
			if of, ok := src.sessionSID(r.TEID); ok {
				dst = of
			}
		}
		outer := packet.IPv6{Src: src.s.address6("2001:db8:a::"), Dst: dst, HopLimit: src.s.hop(), Class: uint8(src.s.Uint32())}
		layers := []packet.Layer{outer}
		if src.s.chance(40) {
			layers = append(layers, src.srh(outer.Dst.As16(), 0))
		}
		return append(layers, src.forRule(r)...)
	}
	if r.TEID != 0 {
		return src.received(r)
	}
	return src.forRule(r)
}

func (src frameSource) anyRule() *model.Rule {
	session := src.n.Sessions[src.s.IntN(firstEthernet)]
	return &session.Rules[src.s.IntN(len(session.Rules))]
}

// received is a G-PDU, or now and then an End Marker, for a rule.
func (src frameSource) received(r *model.Rule) []packet.Layer {
	var layers []packet.Layer
	if src.s.chance(30) {
		layers = append(layers, packet.IPv6{Src: src.s.address6("2001:db8:9::"), Dst: ip("2001:db8:3::1"), HopLimit: src.s.hop(), Class: uint8(src.s.Uint32())})
	} else {
		layers = append(layers, packet.IPv4{Src: src.s.address4("10.0.0.0"), Dst: ip("10.3.0.1"), TTL: src.s.hop(), TOS: uint8(src.s.Uint32())})
	}
	g := packet.GTPU{TEID: r.TEID}
	if src.s.chance(4) {
		g.TEID ^= 1 << src.s.IntN(32)
	}
	if src.s.chance(70) {
		g.Container = &packet.PDUSession{Type: uint8(pick(src.s, 0, 1, 1, 1, 2)), QFI: uint8(src.s.IntN(4)), RQI: src.s.chance(20)}
		if len(r.QFIs) > 0 && src.s.chance(70) {
			g.Container.QFI = pick(src.s, r.QFIs...)
		}
	}
	if src.s.chance(10) {
		g.Sequence = new(uint16)
	}
	layers = append(layers, packet.UDP{Sport: uint16(src.s.upTo(2150, 2154)), Dport: 2152})
	if src.s.chance(5) {
		kind := uint8(254)
		g.Type = &kind
		return append(layers, g, packet.Payload{Count: pick(src.s, 0, 0, 4)})
	}
	return append(append(layers, g), src.forRule(r)...)
}

// forRule is a packet that a rule takes, as far as one can be made.
func (src frameSource) forRule(r *model.Rule) []packet.Layer {
	var f model.Filter
	if len(r.Filters) > 0 && src.s.chance(85) {
		f = pick(src.s, r.Filters...)
	}
	local := append(append([]netip.Prefix{}, r.Sources...), r.Destinations...)
	v4 := src.s.chance(60)
	if len(local) > 0 {
		v4 = pick(src.s, local...).Addr().Is4()
	}
	for _, p := range []netip.Prefix{f.Remote, f.Local} {
		if p.IsValid() {
			v4 = p.Addr().Is4()
		}
	}
	here, there := src.localAddress(local, f.Local, v4), src.remoteAddress(f.Remote, v4)
	sender, receiver := here, there
	if r.Direction == model.Downlink {
		sender, receiver = there, here
	}
	tos := uint8(src.s.Uint32())
	if f.ToSMask != 0 && src.s.chance(80) {
		tos = f.ToS
	}
	upper := src.upperOf(f, r.Direction, !v4)
	if v4 {
		return append([]packet.Layer{packet.IPv4{Src: sender, Dst: receiver, TTL: src.s.hop(), TOS: tos, ID: uint16(src.s.Uint32()),
			Fragment: pick(src.s, uint16(0x4000), 0x4000, 0x4000, 0, 0x2000, 5)}}, upper...)
	}
	label := uint32(src.s.IntN(2))
	if f.FlowLabel != nil {
		label = *f.FlowLabel
	}
	return append([]packet.Layer{packet.IPv6{Src: sender, Dst: receiver, HopLimit: src.s.hop(), Class: tos, FlowLabel: label}}, upper...)
}

// in is an address of a prefix: its first ones, mostly.
func (s Source) in(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		if s.chance(20) {
			b[i/8] |= 1 << (7 - i%8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (src frameSource) localAddress(of []netip.Prefix, filter netip.Prefix, v4 bool) netip.Addr {
	if filter.IsValid() && filter.Addr().Is4() == v4 && src.s.chance(80) {
		return src.s.in(filter)
	}
	if src.s.chance(92) {
		for range 4 {
			if len(of) == 0 {
				break
			}
			if p := pick(src.s, of...); p.Addr().Is4() == v4 {
				return src.s.in(p)
			}
		}
	}
	if v4 {
		return src.s.address4(pick(src.s, "10.46.0.0", "172.16.0.0", "10.77.0.0", "169.254.0.0", "127.0.0.0"))
	}
	return src.s.address6(pick(src.s, "2001:db8:46::", "2001:db8:46:3::", "fe80::", "3fff::", "::ffff:10.46.0.0"))
}

// remoteAddress is mostly somewhere in the world, and now and then something
// that UEs may not reach.
func (src frameSource) remoteAddress(filter netip.Prefix, v4 bool) netip.Addr {
	if filter.IsValid() && filter.Addr().Is4() == v4 && filter.Bits() > 0 && src.s.chance(70) {
		return src.s.in(filter)
	}
	if src.s.chance(15) { // another UE
		r := src.anyRule()
		for _, p := range r.Destinations {
			if p.Addr().Is4() == v4 {
				return src.s.in(p)
			}
		}
	}
	if v4 {
		return src.s.address4(pick(src.s, "10.2.2.0", "10.2.2.0", "10.2.2.0", "10.9.0.0", "10.3.0.0", "10.50.0.0", "10.46.0.0", "10.146.0.0", "224.0.0.0",
			"169.254.0.0", "255.255.255.0", "127.0.0.0", "0.0.0.0", "240.0.0.0"))
	}
	return src.s.address6(pick(src.s, "3fff::", "3fff::", "3fff::", "3fff:50::", "2001:db8:3::", "2001:db8:46::", "2001:db8:1:9::", "ff02::", "fe80::",
		"::ffff:10.2.2.0", "fc00::"))
}

// begin makes a segment begin a connection, mostly with an MSS somewhere among
// the options.
func (src frameSource) begin(t *packet.TCP) {
	flags := pick(src.s, uint8(0x02), 0x02, 0x12, 0x03, 0xc2)
	t.Flags = &flags
	for range src.s.IntN(6) {
		t.Options = append(t.Options, pick(src.s, packet.Hex{1}, packet.Hex{1}, packet.Hex{4, 2}, packet.Hex{3, 3, 7},
			packet.Hex{8, 10, 1, 2, 3, 4, 5, 6, 7, 8}, packet.Hex{2, 4, byte(src.s.IntN(40)), byte(src.s.Uint32())})...)
	}
	if src.s.chance(70) {
		t.Options = append(t.Options, 2, 4, byte(src.s.IntN(40)), byte(src.s.Uint32()))
	}
	if src.s.chance(10) {
		t.Options = append(t.Options, pick(src.s, packet.Hex{0}, packet.Hex{2}, packet.Hex{2, 3, 5}, packet.Hex{9, 0}, packet.Hex{9, 60})...)
	}
	t.Options = t.Options[:min(len(t.Options), 40)]
	if src.s.chance(10) {
		length := uint8(src.s.IntN(16))
		t.Length = &length
	}
}

// upperOf is an upper layer for a filter.
func (src frameSource) upperOf(f model.Filter, d model.Direction, v6 bool) []packet.Layer {
	protocol := pick(src.s, uint8(6), 6, 6, 17, 17, 1, 132)
	if f.Protocol != nil && src.s.chance(90) {
		protocol = *f.Protocol
	}
	port := func(want *[2]uint16) uint16 {
		if want == nil || src.s.chance(10) {
			return uint16(src.s.upTo(999, 1010))
		}
		return pick(src.s, want[0], want[1], want[0], want[1], want[0]-1, want[1]+1)
	}
	sport, dport := port(f.LocalPorts), port(f.RemotePorts)
	if d == model.Downlink {
		sport, dport = dport, sport
	}
	size := packet.Payload{Count: src.payload()}
	switch protocol {
	case 6:
		t := packet.TCP{Sport: sport, Dport: dport, Partial: src.s.chance(30)}
		if src.s.chance(60) {
			src.begin(&t)
		}
		return []packet.Layer{t, size}
	case 17:
		return []packet.Layer{packet.UDP{Sport: sport, Dport: dport, Partial: src.s.chance(20)}, size}
	case 1, 58:
		return []packet.Layer{packet.ICMP{V6: v6, Type: uint8(pick(src.s, 8, 128, 133))}, size}
	}
	spi := byte(src.s.IntN(3))
	data := []byte{0, 0, 0, spi, 0, 0, 0, byte(src.s.IntN(3)), 0, 0, 0, 1}
	if protocol == 132 {
		data = []byte{byte(sport >> 8), byte(sport), byte(dport >> 8), byte(dport), 0, 0, 0, 0, 0, 0, 0, 0}
	}
	return []packet.Layer{packet.Payload{Data: data[:pick(src.s, len(data), len(data), len(data), len(data), 4, 3, 8, 7)], Proto: protocol}}
}
