package slowpath

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/checksum"
)

// ICMPv6 error types (RFC 4443). The data path uses them for IPv4 too.
const (
	destinationUnreachable = 1
	packetTooBig           = 2
	timeExceeded           = 3
	parameterProblem       = 4

	redirect = 137

	noRoute                = 0 // codes of destinationUnreachable
	prohibited             = 1
	addressUnreachable     = 3
	reassemblyTimeExceeded = 1 // code of timeExceeded, of ICMP as well
	firstHeaderChain       = 3 // code of parameterProblem (RFC 7112)
)

const (
	maxICMPv6 = 1280 // the IPv6 minimum MTU (RFC 4443 section 2.4)
	maxICMP   = 576  // RFC 1812 section 4.3.2.3
)

// requestAbout is for an error about the packet at L3 of a frame.
func requestAbout(p Packet) icmpRequest {
	r := icmpRequest{packet: p.Data[p.L3:], ifindex: p.Ifindex, table: p.Table, session: p.Session}
	if outer, found := layer3(p.Data); found && outer == p.L3 && !p.Rewritten {
		r.header = p.Data[:outer]
	}
	return r
}

// icmpRequest is an error to send to the sender of packet.
type icmpRequest struct {
	packet     []byte
	kind, code uint8 // ICMPv6's
	info       uint32
	ifindex    int
	// header is the Ethernet header and tags of the frame if packet is its outermost
	// packet: the error goes back to where the frame came from. An error about an
	// inner packet is routed by table.
	header  []byte
	table   uint32
	session uint64
}

// way returns where the error goes. ok is false if it must not be sent: the source is
// not a single host, or the frame was for a group (RFC 1812 section 4.3.2.7, RFC 4443
// section 2.4).
func (r icmpRequest) way() (Way, bool) {
	w := Way{Ifindex: r.ifindex, Table: r.table, Session: r.session}
	if r.header == nil {
		return w, true
	}
	to, from := r.header[:6], r.header[6:12]
	if to[0]&1 != 0 || from[0]&1 != 0 || [6]byte(from) == [6]byte{} {
		return w, false
	}
	w.Back = slices.Concat(from, to, r.header[12:])
	return w, true
}

// ownError sends an error that the slow path itself found, within the budget.
func (s *SlowPath) ownError(r icmpRequest) {
	if !s.budget.AllowN(s.options.Now(), 1) {
		s.Counters.ICMPLimited.Add(1)
		return
	}
	s.sendError(r)
}

func (s *SlowPath) sendError(r icmpRequest) {
	var err error
	var packet []byte
	way, ok := r.way()
	switch {
	case len(r.packet) == 0 || r.packet[0]>>4 != 4 && r.packet[0]>>4 != 6:
		s.Counters.Malformed.Add(1)
		return
	case !ok: // packet stays nil
	case r.packet[0]>>4 == 4:
		packet, err = s.icmpv4(r, way)
	default:
		packet, err = s.icmpv6(r, way)
	}
	if err == nil && packet == nil {
		s.Counters.ICMPSuppressed.Add(1)
		return
	}
	if err == nil {
		err = s.options.Sender.Send(packet, way)
	}
	if err != nil {
		s.failed(err)
		return
	}
	s.Counters.ICMPSent.Add(1)
}

// icmpv6 makes the error about an IPv6 packet, or nil if none must be sent.
func (s *SlowPath) icmpv6(r icmpRequest, way Way) ([]byte, error) {
	about, _, ok := parseIPv6(r.packet)
	if !ok || !answerable(about.src(), about.dst()) || about.isError() {
		return nil, nil
	}
	src, err := s.options.Sender.Source(about.src(), way)
	if err != nil {
		return nil, err
	}
	quote := about[:min(len(about), maxICMPv6-ipv6Length-8)]
	b := append(newIPv6(src, about.src(), protocolICMPv6, 8+len(quote)), r.kind, r.code, 0, 0)
	b = binary.BigEndian.AppendUint32(b, r.info)
	b = append(b, quote...)
	sum := checksum.Of(b[ipv6Length:], checksum.Pseudo(src, about.src(), protocolICMPv6, len(b)-ipv6Length))
	binary.BigEndian.PutUint16(b[ipv6Length+2:], sum)
	return b, nil
}

// icmpv4 makes the error about an IPv4 packet, or nil if none must be sent.
func (s *SlowPath) icmpv4(r icmpRequest, way Way) ([]byte, error) {
	about, _, ok := parseIPv4(r.packet)
	kind, code, translated := toICMP(r.kind, r.code)
	if !ok || !translated || !answerable(about.src(), about.dst()) || about.offset() != 0 || about.isError() {
		return nil, nil
	}
	src, err := s.options.Sender.Source(about.src(), way)
	if err != nil {
		return nil, err
	}
	quote := about[:min(len(about), maxICMP-ipv4Length-8)]
	b := newIPv4(src, about.src(), protocolICMP, 8+len(quote))
	// RFC 1812 section 4.3.2.5: errors have precedence 6 (internetwork control).
	b[1] = 6 << 5
	b.finish(len(b) + 8 + len(quote))
	out := append(b, kind, code, 0, 0)
	out = binary.BigEndian.AppendUint32(out, r.info&0xffff)
	out = append(out, quote...)
	binary.BigEndian.PutUint16(out[ipv4Length+2:], checksum.Of(out[ipv4Length:], 0))
	return out, nil
}

// newIPv4 returns an IPv4 header without options.
func newIPv4(src, dst netip.Addr, protocol uint8, payload int) ipv4 {
	b := make(ipv4, ipv4Length, ipv4Length+payload)
	b[0], b[8], b[9] = 4<<4|5, defaultHopLimit, protocol
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	b.finish(ipv4Length + payload)
	return b
}

// newIPv6 returns an IPv6 header with room for its payload.
func newIPv6(src, dst netip.Addr, protocol uint8, payload int) []byte {
	b := make([]byte, ipv6Length, ipv6Length+payload)
	b[0], b[6], b[7] = 6<<4, protocol, defaultHopLimit
	binary.BigEndian.PutUint16(b[4:], uint16(payload))
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	return b
}

// toICMP translates the type and code of ICMPv6 to ICMP.
func toICMP(kind, code uint8) (uint8, uint8, bool) {
	switch kind {
	case packetTooBig:
		return 3, 4, true // fragmentation needed and DF set
	case timeExceeded:
		return 11, code, true
	case destinationUnreachable:
		switch code {
		case noRoute:
			return 3, 0, true // network unreachable
		case prohibited:
			return 3, 13, true // communication administratively prohibited
		}
		return 3, 1, code == addressUnreachable // host unreachable
	}
	return 0, 0, false
}

// answerable says whether an error may be sent to src about a packet to dst.
func answerable(src, dst netip.Addr) bool {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return !src.IsUnspecified() && !src.IsMulticast() && !src.IsLoopback() && src != broadcast &&
		!dst.IsMulticast() && dst != broadcast
}

// isError says whether the packet is an ICMPv6 error or a Redirect (RFC 4443 section 2.4), or
// may be one because its type is truncated. A later fragment has no type.
func (ip ipv6) isError() bool {
	later := false
	h, ok := ip.walk(func(h header) bool {
		later = h.kind == headerFragment && len(ip) >= h.at+4 && binary.BigEndian.Uint16(ip[h.at+2:])&^7 != 0
		return later
	})
	if !ok || later || h.kind != protocolICMPv6 {
		return false
	}
	return len(ip) <= h.at || ip[h.at] < 128 || ip[h.at] == redirect
}

// isError says whether the packet is an ICMP error, or may be one.
func (ip ipv4) isError() bool {
	// RFC 792's errors, and redirects
	return ip.protocol() == protocolICMP && (len(ip.payload()) == 0 || slices.Contains([]byte{3, 4, 5, 11, 12}, ip.payload()[0]))
}

// errorIndication tells the sender of a G-PDU that its TEID is unknown (TS 29.281
// section 7.3.1). It comes from the address that the G-PDU was for.
func (s *SlowPath) errorIndication(p Packet) {
	src, dst, l4, ok := datagram(p.Data[p.L3:])
	if !ok || !answerable(src, dst) {
		s.Counters.Malformed.Add(1)
		return
	}
	message, err := gtpu.ErrorIndication{
		TEID: p.Info, Peer: dst, UDPPort: binary.BigEndian.Uint16(l4),
	}.Append(nil)
	if err != nil {
		s.Counters.Malformed.Add(1)
		return
	}
	// Path management is between GTP-U nodes: no customer's table applies.
	err = s.options.Sender.Send(udpPacket(dst, src, message), Way{Ifindex: p.Ifindex, Table: mainTable})
	if err != nil {
		s.failed(err)
		return
	}
	s.Counters.ErrorIndicationsSent.Add(1)
}

// datagram returns the addresses and the UDP datagram of a packet.
func datagram(b []byte) (src, dst netip.Addr, l4 []byte, ok bool) {
	if ip, _, is4 := parseIPv4(b); is4 {
		l4 = ip.payload()
		return ip.src(), ip.dst(), l4, ip.protocol() == protocolUDP && len(l4) >= udpLength
	}
	ip, _, is6 := parseIPv6(b)
	if !is6 {
		return
	}
	h, whole := ip.walk(upperLayer)
	if !whole || h.kind != protocolUDP || len(ip) < h.at+udpLength {
		return
	}
	return ip.src(), ip.dst(), ip[h.at:], true
}

// udpPacket wraps a GTP-U message in UDP, from and to GTP-U's port.
func udpPacket(src, dst netip.Addr, payload []byte) []byte {
	length := udpLength + len(payload)
	var b []byte
	if src.Is4() {
		b = newIPv4(src, dst, protocolUDP, length)
	} else {
		b = newIPv6(src, dst, protocolUDP, length)
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, gtpu.Port)
	b = binary.BigEndian.AppendUint16(b, gtpu.Port)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, 0, 0)
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[at+6:], checksum.UDP(src, dst, b[at:]))
	return b
}
