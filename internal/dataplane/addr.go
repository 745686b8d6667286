package dataplane

import (
	"encoding/binary"
	"net/netip"
)

// mainTable is the kernel's number of its main routing table, which models
// write as 0.
const mainTable = 254

func kernelTable(t uint32) uint32 {
	if t == 0 {
		return mainTable
	}
	return t
}

// in6 is an address in network byte order, IPv4 as IPv4-mapped; zero for the
// zero Addr.
func in6(a netip.Addr) datapathIn6 {
	if !a.IsValid() {
		return datapathIn6{}
	}
	return datapathIn6{B: a.As16()}
}

// be32 is an IPv4 address as the data path loads it.
func be32(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// fromBE32 is the reverse of be32.
func fromBE32(v uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}

// halves are an IPv6 address's two words in host byte order.
func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

func fromHalves(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

// ones is a word whose first n bits are set, 0 to 64.
func ones(n int) uint64 {
	return ^(^uint64(0) >> min(max(n, 0), 64))
}

func lpm4(table uint32, p netip.Prefix) datapathLpm4Key {
	return datapathLpm4Key{Prefixlen: 32 + uint32(p.Bits()), Table: table, Addr: be32(p.Masked().Addr())}
}

func lpm6(table uint32, p netip.Prefix) datapathLpm6Key {
	return datapathLpm6Key{Prefixlen: 32 + uint32(p.Bits()), Table: table, Addr: in6(p.Masked().Addr())}
}

func sidKey(p netip.Prefix) datapathSidKey {
	return datapathSidKey{Prefixlen: uint32(p.Bits()), Addr: in6(p.Masked().Addr())}
}

// sidPrefix is the reverse of sidKey.
func sidPrefix(k datapathSidKey) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16(k.Addr.B), int(k.Prefixlen))
}
