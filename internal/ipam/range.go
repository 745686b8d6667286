package ipam

import (
	"encoding/binary"
	"net/netip"
)

// mostBits bounds how much of a prefix is used: nobody runs out of 2^62
// addresses, and they can be counted.
const mostBits = 62

// offsets of a prefix's addresses from its first.
type offsets struct{ first, last uint64 }

// usable returns the addresses of a prefix that pods can use: not the network
// address (in IPv6 the Subnet-Router anycast address, RFC 4291 section 2.6.1), not
// the next one, which is the node's, and not IPv4's broadcast address. ok is false
// if the prefix has no such address.
func usable(p netip.Prefix) (o offsets, ok bool) {
	bits := min(p.Addr().BitLen()-p.Bits(), mostBits)
	o = offsets{2, 1<<bits - 1}
	if p.Addr().Is4() {
		o.last-- // the broadcast address; what is less than 0 is seen below
	}
	return o, bits >= 2 && o.first <= o.last
}

func (o offsets) count() uint64 { return o.last - o.first + 1 }

// at is the address of a masked prefix with an offset.
func at(p netip.Prefix, offset uint64) netip.Addr {
	b := p.Addr().As16() // an IPv4 address is at its end
	low := b[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)|offset)
	return netip.AddrFrom16(b).Unmap()
}

// offsetOf is the reverse of at, of an address in p.
func offsetOf(p netip.Prefix, a netip.Addr) uint64 {
	b, first := a.As16(), p.Addr().As16() // an IPv4 address is at its end
	return binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(first[8:])
}
