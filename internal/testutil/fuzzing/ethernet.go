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
func (src sessionSource) ethernetSession(i int) model.Session {
	session := model.Session{ID: uint64(i + 1)}
	teid, link := uint32(i+1)|uint32(src.s.upTo(1, 255))<<24, links[i%len(links)]
	add := func(d model.Direction, change func(*model.Rule)) {
		r := src.rule(&session, d, nil, false)
		for r.Forward.Kind == model.ForwardTable || r.Forward.Kind == model.ForwardVPN {
			r.Forward = src.forwarding(d)
		}
		if r.Forward.Kind != model.ForwardGTPU {
			r.Forward.TEID, r.Forward.ArgsOffset = src.s.Uint32()|1, uint8(src.s.bits(1, 88))
		}
		r.Ethernet = true
		for n := range r.Filters {
			r.Filters[n] = src.frameFilter()
		}
		change(&r)
		session.Rules = append(session.Rules, r)
	}
	for range src.s.upTo(1, 3) {
		add(model.Uplink, func(r *model.Rule) {
			r.TEID = teid
			if src.s.chance(75) {
				r.Forward = model.Forwarding{Kind: model.ForwardLink, Link: link, Slice: r.Forward.Slice}
				r.QFI, r.RQI, r.Container = 0, false, srv6.ContainerNone
			}
		})
	}
	for range src.s.upTo(1, 3) {
		add(model.Downlink, func(r *model.Rule) { r.Link = link })
	}
	if src.s.chance(40) {
		add(model.Downlink, func(r *model.Rule) { r.TEID = uint32(i+100) | uint32(src.s.upTo(1, 255))<<24 })
	}
	return session
}

func (src sessionSource) frameFilter() model.Filter {
	f, e := model.Filter{}, &model.FrameFilter{}
	if src.s.chance(40) {
		f, e.IP = src.filter(nil, false), true
	}
	address := func() *model.MAC {
		if src.s.chance(70) {
			return nil
		}
		m := model.MAC(src.s.mac())
		if m == (model.MAC{}) {
			return nil
		}
		return &m
	}
	id := func() *uint16 {
		v := uint16(src.s.IntN(3))
		return pick(src.s, nil, nil, nil, &v)
	}
	e.Source, e.Destination, e.CTag, e.STag = address(), address(), id(), id()
	if e.Source != nil && src.s.chance(30) {
		e.SourceTo = &model.MAC{2, 0, 0, 0, byte(src.s.IntN(3)), byte(src.s.IntN(6))}
	}
	if e.Destination != nil && src.s.chance(30) {
		e.DestinationTo = &model.MAC{2, 0, 0, 0, byte(src.s.IntN(3)), byte(src.s.IntN(6))}
	}
	if src.s.chance(30) {
		v := pick(src.s, uint16(0x0800), 0x86dd, 0x88f7, 0x8100)
		e.EtherType = &v
	}
	f.Frame = e
	return f
}

// frame is one of a host: with an IP packet, or another payload.
func (src frameSource) frame(vlan ...uint16) []packet.Layer {
	eth := packet.Ethernet{Dst: src.s.mac(), Src: src.s.mac(), VLAN: vlan}
	if len(vlan) < 2 && src.s.chance(30) {
		eth.VLAN = append(eth.VLAN, uint16(src.s.IntN(3)))
	}
	if src.s.chance(25) {
		kind := pick(src.s, uint16(0x88f7), 0x0800, 0x9999)
		eth.Type = &kind
		return []packet.Layer{eth, packet.Payload{Count: src.s.upTo(0, 80)}}
	}
	return append([]packet.Layer{eth}, src.inner(pick(src.s, 4, 6))...)
}

// toEthernet is a frame for an Ethernet session, from its UE or to it.
func (src frameSource) toEthernet() []byte {
	session := &src.n.Sessions[src.s.upTo(firstEthernet, len(src.n.Sessions)-1)]
	r := &session.Rules[src.s.IntN(len(session.Rules))]
	var layers []packet.Layer
	if r.TEID == 0 {
		layers = src.frame(r.Link.VLAN)
	} else if dst, is := src.sessionSID(r.TEID); is && src.s.chance(40) {
		layers = append(layers, packet.Ethernet{}, packet.IPv6{Src: src.s.address6("2001:db8:a::"), Dst: dst, HopLimit: src.s.hop(), Class: uint8(src.s.Uint32())})
		if src.s.chance(30) {
			layers = append(layers, src.srh(dst.As16(), 0))
		}
		layers = append(layers, src.frame()...)
	} else {
		layers = append([]packet.Layer{packet.Ethernet{}}, src.tunnelled(r)...)
		layers = append(layers, src.frame()...)
	}
	frame := packet.Frame(layers...)
	return frame[:min(len(frame), maxFrame)]
}

// sessionSID returns a SID for sessions whose argument is the TEID, or false if no
// SID has room for it.
func (src frameSource) sessionSID(teid uint32) (netip.Addr, bool) {
	for _, at := range src.n.SessionSIDs {
		if src.s.chance(20) {
			continue
		}
		args := srv6.ArgsMobSession{QFI: uint8(src.s.IntN(4)), R: src.s.chance(50), TEID: teid}
		if dst, err := args.Put(at.SID.Addr(), at.SID.Bits()); err == nil {
			return dst, true
		}
	}
	return netip.Addr{}, false
}

// tunnelled are the headers of a G-PDU for a rule.
func (src frameSource) tunnelled(r *model.Rule) []packet.Layer {
	g := packet.GTPU{TEID: r.TEID}
	if src.s.chance(60) {
		g.Container = &packet.PDUSession{Type: uint8(src.s.IntN(2)), QFI: uint8(src.s.IntN(4))}
	}
	outer := packet.Layer(packet.IPv4{Src: src.s.address4("10.0.0.0"), Dst: ip("10.3.0.1"), TTL: src.s.hop(), TOS: uint8(src.s.Uint32())})
	if src.s.chance(40) {
		outer = packet.IPv6{Src: src.s.address6("2001:db8:9::"), Dst: ip("2001:db8:3::1"), HopLimit: src.s.hop(), Class: uint8(src.s.Uint32())}
	}
	return []packet.Layer{outer, packet.UDP{Sport: 2152, Dport: 2152}, g}
}
