package fuzzing

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

// links are those of Ethernet sessions: nothing else is steered from there.
var links = []model.Link{{Interface: "n6", VLAN: 88}, {Interface: "pod", VLAN: 89}}

// firstEthernet is the first session, from 0, of those that are.
const firstEthernet = 13

// mac is one of a few hosts, or of somebody else.
func (s Source) mac() packet.Hex {
	if s.chance(8) {
		return pick(s, packet.Hex{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, packet.Hex{1, 0, 0x5e, 0, 0, 1}, packet.Hex{0, 0, 0, 0, 0, 0}, packet.Hex{0x45, 0, 0, 60, 0, 0})
	}
	return packet.Hex{2, 0, 0, 0, 1, byte(s.IntN(6))}
}

// ethernetSession has rules for frames both ways.
func (s Source) ethernetSession(i int) model.Session {
	session := model.Session{ID: uint64(i + 1)}
	teid, link := uint32(i+1)|uint32(s.upTo(1, 255))<<24, links[i%len(links)]
	add := func(d model.Direction, change func(*model.Rule)) {
		r := s.rule(&session, d, nil, false)
		for r.Forward.Kind == model.ForwardTable {
			r.Forward = s.forwarding(d)
		}
		if r.Forward.Kind != model.ForwardGTPU {
			r.Forward.TEID, r.Forward.ArgsOffset = s.Uint32()|1, uint8(s.upTo(1, 88))
		}
		r.Ethernet = true
		for n := range r.Filters {
			r.Filters[n] = s.frameFilter()
		}
		change(&r)
		session.Rules = append(session.Rules, r)
	}
	for range s.upTo(1, 3) {
		add(model.Uplink, func(r *model.Rule) {
			r.TEID = teid
			if s.chance(75) {
				r.Forward = model.Forwarding{Kind: model.ForwardLink, Link: link, Slice: r.Forward.Slice}
				r.QFI, r.RQI, r.Container = 0, false, model.ContainerNone
			}
		})
	}
	for range s.upTo(1, 3) {
		add(model.Downlink, func(r *model.Rule) { r.Link = link })
	}
	if s.chance(40) {
		add(model.Downlink, func(r *model.Rule) { r.TEID = uint32(i+100) | uint32(s.upTo(1, 255))<<24 })
	}
	return session
}

func (s Source) frameFilter() model.Filter {
	f, e := model.Filter{}, &model.FrameFilter{}
	if s.chance(40) {
		f, e.IP = s.filter(nil, false), true
	}
	address := func() *model.MAC {
		if s.chance(70) {
			return nil
		}
		m := model.MAC(s.mac())
		if m == (model.MAC{}) {
			return nil
		}
		return &m
	}
	id := func() *uint16 {
		v := uint16(s.IntN(3))
		return pick(s, nil, nil, nil, &v)
	}
	e.Source, e.Destination, e.CTag, e.STag = address(), address(), id(), id()
	if e.Source != nil && s.chance(30) {
		e.SourceTo = &model.MAC{2, 0, 0, 0, byte(s.IntN(3)), byte(s.IntN(6))}
	}
	if e.Destination != nil && s.chance(30) {
		e.DestinationTo = &model.MAC{2, 0, 0, 0, byte(s.IntN(3)), byte(s.IntN(6))}
	}
	if s.chance(30) {
		v := pick(s, uint16(0x0800), 0x86dd, 0x88f7, 0x8100)
		e.EtherType = &v
	}
	f.Frame = e
	return f
}

// frame is one of a host: with an IP packet, or another payload.
func (s Source) frame(vlan ...uint16) []packet.Layer {
	eth := packet.Ethernet{Dst: s.mac(), Src: s.mac(), VLAN: vlan}
	if len(vlan) < 2 && s.chance(30) {
		eth.VLAN = append(eth.VLAN, uint16(s.IntN(3)))
	}
	if s.chance(25) {
		kind := pick(s, uint16(0x88f7), 0x0800, 0x9999)
		eth.Type = &kind
		return []packet.Layer{eth, packet.Payload{Count: s.upTo(0, 80)}}
	}
	return append([]packet.Layer{eth}, s.inner(pick(s, 4, 6))...)
}

// toEthernet is a frame for an Ethernet session, from its UE or to it.
func (s Source) toEthernet(n *model.Network) []byte {
	session := &n.Sessions[s.upTo(firstEthernet, len(n.Sessions)-1)]
	r := &session.Rules[s.IntN(len(session.Rules))]
	var layers []packet.Layer
	if r.TEID == 0 {
		layers = s.frame(r.Link.VLAN)
	} else if dst, is := s.sessionSID(n, r.TEID); is && s.chance(40) {
		layers = append(layers, packet.Ethernet{}, packet.IPv6{Src: s.address6("2001:db8:a::"), Dst: dst, HopLimit: s.hop(), Class: uint8(s.Uint32())})
		if s.chance(30) {
			layers = append(layers, s.srh(dst.As16(), 0))
		}
		layers = append(layers, s.frame()...)
	} else {
		layers = append([]packet.Layer{packet.Ethernet{}}, s.tunnelled(r)...)
		layers = append(layers, s.frame()...)
	}
	frame := packet.Frame(layers...)
	return frame[:min(len(frame), maxFrame)]
}

// sessionSID is a SID for sessions with an argument that says the TEID; false:
// there is none with room for it.
func (s Source) sessionSID(n *model.Network, teid uint32) (netip.Addr, bool) {
	for _, sid := range n.SessionSIDs {
		args := srv6.ArgsMobSession{QFI: uint8(s.IntN(4)), R: s.chance(50), TEID: teid}
		if dst, err := args.Put(sid.Addr(), sid.Bits()); err == nil {
			return dst, true
		}
	}
	return netip.Addr{}, false
}

// tunnelled are the headers of a G-PDU for a rule.
func (s Source) tunnelled(r *model.Rule) []packet.Layer {
	g := packet.GTPU{TEID: r.TEID}
	if s.chance(60) {
		g.Container = &packet.PDUSession{Type: uint8(s.IntN(2)), QFI: uint8(s.IntN(4))}
	}
	outer := packet.Layer(packet.IPv4{Src: s.address4("10.0.0.0"), Dst: ip("10.3.0.1"), TTL: s.hop(), TOS: uint8(s.Uint32())})
	if s.chance(40) {
		outer = packet.IPv6{Src: s.address6("2001:db8:9::"), Dst: ip("2001:db8:3::1"), HopLimit: s.hop(), Class: uint8(s.Uint32())}
	}
	return []packet.Layer{outer, packet.UDP{Sport: 2152, Dport: 2152}, g}
}
