package slowpath

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/culvert-net/culvert/internal/checksum"
)

// fragment splits the IPv4 packet at L3 into fragments of at most Info bytes, and sends
// each through the data path, in the headers that the packet came in.
func (s *SlowPath) fragment(p Packet) {
	ip, whole, ok := parseIPv4(p.Data[p.L3:])
	outer, found := layer3(p.Data)
	if !ok || !whole || !found || outer > p.L3 || ip.dontFragment() {
		s.Counters.FragmentationRefused.Add(1)
		return
	}
	completeChecksum(ip)
	parts := cut(ip, int(p.Info))
	if parts == nil {
		s.Counters.FragmentationRefused.Add(1)
		return
	}
	frames := make([][]byte, 0, len(parts))
	for _, part := range parts {
		frame := append(p.Data[:p.L3:p.L3], part...)
		if !fixOuter(frame, outer, p.L3) {
			s.Counters.FragmentationRefused.Add(1)
			return
		}
		frames = append(frames, frame)
	}
	s.Counters.Fragmented.Add(1)
	for _, frame := range frames {
		if s.inject(frame, p.Ifindex) {
			s.Counters.FragmentsMade.Add(1)
		}
	}
}

// fragmentOuter splits the outer packet at L3, which this node made, into fragments of at most
// Info bytes (RFC 2473 section 7.1), and sends each by the interface of NextHop.
func (s *SlowPath) fragmentOuter(p Packet) {
	var parts [][]byte
	if ip, whole, ok := parseIPv4(p.Data[p.L3:]); ok && whole {
		binary.BigEndian.PutUint16(ip[4:], uint16(rand.Uint32()))
		binary.BigEndian.PutUint16(ip[6:], 0) // without DF
		parts = cut(ip, int(p.Info))
	} else if ip, whole, ok := parseIPv6(p.Data[p.L3:]); ok && whole {
		parts = cut6(ip, int(p.Info), rand.Uint32())
	}
	if parts == nil {
		s.Counters.FragmentationRefused.Add(1)
		return
	}
	s.Counters.Fragmented.Add(1)
	for _, part := range parts {
		if err := s.options.Sender.Send(part, Way{Ifindex: p.NextHop.Ifindex, Back: p.Data[:p.L3:p.L3]}); err != nil {
			s.failed(err)
			continue
		}
		s.Counters.FragmentsMade.Add(1)
	}
}

// cut6 makes fragments (RFC 8200 section 4.5) of a packet, each with its routing header, if it
// has one. It returns nil if not even 8 bytes fit.
func cut6(ip ipv6, mtu int, id uint32) [][]byte {
	kind, at := &ip[6], ipv6Length
	if *kind == headerRouting && len(ip) >= at+8 {
		kind, at = &ip[at], at+8+8*int(ip[at+1])
	}
	room := (mtu - at - fragmentLength) &^ 7
	if room < 8 || at > len(ip) {
		return nil
	}
	next := *kind
	*kind = headerFragment
	var parts [][]byte
	for offset := 0; offset < len(ip)-at; offset += room {
		end, more := at+offset+room, uint16(1)
		if end >= len(ip) {
			end, more = len(ip), 0
		}
		part := binary.BigEndian.AppendUint16(append(slices.Clone(ip[:at]), next, 0), uint16(offset)|more)
		part = append(binary.BigEndian.AppendUint32(part, id), ip[at+offset:end]...)
		binary.BigEndian.PutUint16(part[4:], uint16(len(part)-ipv6Length))
		parts = append(parts, part)
	}
	return parts
}

// cut makes fragments (RFC 791 section 3.2) of a packet, which may be a fragment itself.
// It returns nil if not even 8 bytes fit.
func cut(ip ipv4, mtu int) [][]byte {
	first, later := ip.headerLength(), append(ipv4(nil), laterHeader(ip)...)
	if mtu < first+8 || mtu > 0xffff {
		return nil
	}
	var parts [][]byte
	payload := ip.payload()
	if ip.offset()+len(payload) > 0xffff {
		return nil // the offset of what follows could not be written
	}
	for at := 0; at < len(payload); {
		h := ip[:first]
		if at > 0 {
			h = later
		}
		room := (mtu - len(h)) &^ 7
		last := len(payload)-at <= mtu-len(h)
		if last {
			room = len(payload) - at
		}
		part := ipv4(append(append([]byte(nil), h...), payload[at:at+room]...))
		flags := uint16(ip.offset()+at) / 8
		if !last || ip.more() {
			flags |= 0x2000
		}
		// A part that is not the last of all must be a multiple of 8 long; the
		// payload of a fragment with more to come is.
		binary.BigEndian.PutUint16(part[6:], flags)
		part.finish(len(part))
		parts = append(parts, part)
		at += room
	}
	return parts
}

// laterHeader returns the header of all fragments but the first. It has only the options
// that must be copied.
func laterHeader(ip ipv4) []byte {
	h := append([]byte(nil), ip[:ipv4Length]...)
	options := ip[ipv4Length:ip.headerLength()]
	for len(options) > 0 {
		kind, length := options[0], 1
		if kind == 0 { // end of options
			break
		}
		if kind != 1 { // no operation
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				break
			}
			length = int(options[1])
		}
		if kind&0x80 != 0 {
			h = append(h, options[:length]...)
		}
		options = options[length:]
	}
	for len(h)%4 != 0 {
		h = append(h, 0)
	}
	h[0] = 4<<4 | byte(len(h)/4)
	return h
}

// completeChecksum completes a TCP or UDP checksum that covers only the pseudo-header,
// because a local stack left the rest to hardware. Nobody can complete it once the
// packet is fragmented. A complete checksum that looks the same stays right.
func completeChecksum(ip ipv4) {
	if ip.offset() != 0 || ip.more() {
		return
	}
	at := map[uint8]int{protocolTCP: 16, protocolUDP: 6}[ip.protocol()]
	l4 := ip.payload()
	if at == 0 || len(l4) < at+2 {
		return
	}
	sum := checksum.Pseudo(ip.src(), ip.dst(), ip.protocol(), len(l4))
	if binary.BigEndian.Uint16(l4[at:]) != checksum.Partial(sum) {
		return
	}
	binary.BigEndian.PutUint16(l4[at:], 0)
	full := checksum.Of(l4, sum)
	if ip.protocol() == protocolUDP {
		full = checksum.UDP(ip.src(), ip.dst(), l4)
	}
	binary.BigEndian.PutUint16(l4[at:], full)
}

// fixOuter corrects the lengths and checksums of the headers from at to inner.
func fixOuter(frame []byte, at, inner int) bool {
	for at < inner {
		var next uint8
		start := at
		rest := frame[at:]
		switch {
		case rest[0]>>4 == 4 && len(rest) >= ipv4Length && int(rest[0]&15)*4 >= ipv4Length:
			ip := ipv4(rest)
			if at += ip.headerLength(); at > inner {
				return false
			}
			ip.finish(len(rest))
			next = ip.protocol()
		case rest[0]>>4 == 6 && len(rest) >= ipv6Length:
			ip := ipv6(rest)
			binary.BigEndian.PutUint16(rest[4:], uint16(len(rest)-ipv6Length))
			h, ok := ip.walk(upperLayer)
			if at += h.at; !ok || at > inner {
				return false
			}
			next = h.kind
		default:
			return false
		}
		switch next {
		case protocolIPv4, protocolIPv6:
			continue
		case protocolUDP:
			return fixGTPU(frame, start, at, inner)
		}
		return false
	}
	return at == inner
}

// fixGTPU corrects UDP and GTP-U, the last headers before the inner packet.
func fixGTPU(frame []byte, l3, udp, inner int) bool {
	if inner < udp+udpLength+8 {
		return false
	}
	binary.BigEndian.PutUint16(frame[udp+4:], uint16(len(frame)-udp))
	binary.BigEndian.PutUint16(frame[udp+udpLength+2:], uint16(len(frame)-udp-udpLength-8))
	version4 := frame[l3]>>4 == 4
	if version4 && binary.BigEndian.Uint16(frame[udp+6:]) == 0 {
		return true
	}
	binary.BigEndian.PutUint16(frame[udp+6:], 0)
	src, dst := ipv6(frame[l3:]).src, ipv6(frame[l3:]).dst
	if version4 {
		src, dst = ipv4(frame[l3:]).src, ipv4(frame[l3:]).dst
	}
	binary.BigEndian.PutUint16(frame[udp+6:], checksum.UDP(src(), dst(), frame[udp:]))
	return true
}
