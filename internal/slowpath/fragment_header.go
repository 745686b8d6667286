package slowpath

import (
	"bytes"
	"encoding/binary"
)

// parseFragment parses an IPv4 or IPv6 fragment. If it is malformed, problem is the
// error for its sender, if any.
func parseFragment(p Packet) (f *fragment, problem *icmpRequest, ok bool) {
	b := p.Data[p.L3:]
	if ip, whole, is4 := parseIPv4(b); is4 && whole {
		f, ok = fragment4(p, ip)
		return f, nil, ok
	}
	ip, whole, is6 := parseIPv6(b)
	if !is6 || !whole {
		return nil, nil, false
	}
	return fragment6(p, ip)
}

func fragment4(p Packet, ip ipv4) (*fragment, bool) {
	data := ip.payload()
	if ip.offset()+len(data) > 0xffff-ip.headerLength() || len(data) == 0 || ip.more() && len(data)%8 != 0 {
		return nil, false
	}
	return &fragment{
		key:     datagramKey{ip.src(), ip.dst(), uint32(ip.id()), ip.protocol()},
		ifindex: p.Ifindex,
		before:  p.Data[:p.L3+ip.headerLength()],
		l3:      p.L3,
		packet:  ip,
		offset:  ip.offset(),
		more:    ip.more(),
		data:    data,
		tos:     ip.tos(),
	}, true
}

// fragment6 parses an IPv6 fragment (RFC 8200 section 4.5).
func fragment6(p Packet, ip ipv6) (*fragment, *icmpRequest, bool) {
	h, ok := ip.walk(func(h header) bool { return h.kind == headerFragment })
	if !ok || h.kind != headerFragment || len(ip) < h.at+fragmentLength {
		return nil, nil, false
	}
	word := binary.BigEndian.Uint16(ip[h.at+2:])
	f := &fragment{
		key: datagramKey{src: ip.src(), dst: ip.dst(), id: binary.BigEndian.Uint32(ip[h.at+4:])},
		// Remove the Fragment header.
		ifindex: p.Ifindex, l3: p.L3, packet: ip,
		offset: int(word &^ 7), more: word&1 != 0,
		data: ip[h.at+fragmentLength:],
		tos:  ip.trafficClass(),
	}
	wrong := func(code uint8, pointer int) (*fragment, *icmpRequest, bool) {
		return nil, &icmpRequest{packet: ip, kind: parameterProblem, code: code, info: uint32(pointer), ifindex: p.Ifindex, header: p.Data[:p.L3]}, false
	}
	switch {
	case len(f.data) == 0:
		return nil, nil, false
	case f.more && len(f.data)%8 != 0:
		return wrong(0, 4) // at Payload Length
	case f.offset+len(f.data) > 0xffff:
		return wrong(0, h.at+2) // at Fragment Offset
	case f.offset == 0 && !chainWhole(ip):
		return wrong(firstHeaderChain, h.at)
	}
	if f.offset == 0 {
		f.before = bytes.Clone(p.Data[:p.L3+h.at])
		f.before[p.L3+h.pointer] = ip[h.at]
	}
	return f, nil, true
}

// chainWhole says whether a first fragment has all headers up to that of the upper layer
// (RFC 8200 section 4.5).
func chainWhole(ip ipv6) bool {
	h, ok := ip.walk(upperLayer)
	if !ok {
		return false
	}
	need := map[uint8]int{
		protocolTCP: 20, protocolUDP: udpLength, protocolICMPv6: 8,
		protocolIPv4: ipv4Length, protocolIPv6: ipv6Length, headerESP: 8, headerNone: 0,
	}[h.kind]
	return len(ip) >= h.at+need
}
