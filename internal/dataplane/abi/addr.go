package abi

import (
	"cmp"
	"encoding/binary"
	"net/netip"
)

// mainTable is RT_TABLE_MAIN.
const mainTable = 254

// KernelTable is the kernel's number of a routing table: models write main as 0.
func KernelTable(t uint32) uint32 { return cmp.Or(t, mainTable) }

// TenantTables is TENANT_TABLES of bpf/def/port.h: no ifindex is as large.
const TenantTables = 0xff00

// MemberTable is MEMBER_TABLE of bpf/def/port.h.
const MemberTable = TenantTables

// TenantTable is the number of a tenant's table of steering; 0 for none.
func TenantTable(tenant uint8) uint32 {
	if tenant == 0 {
		return 0
	}
	return TenantTables + uint32(tenant)
}

// TenantOf is the tenant whose table it is; 0: none.
func TenantOf(table uint32) uint8 {
	if !IsTenantTable(table) {
		return 0
	}
	return uint8(table - TenantTables)
}

// IsTenantTable says whether a table of steering is a tenant's.
func IsTenantTable(table uint32) bool { return table > TenantTables }

// IsPortTable says whether a table of steering is that of an interface.
func IsPortTable(table uint32) bool { return 0 < table && table < TenantTables }

// In6Of is an address in network byte order, IPv4 as IPv4-mapped; zero for the
// zero Addr.
func In6Of(a netip.Addr) In6 {
	if !a.IsValid() {
		return In6{}
	}
	return In6{B: a.As16()}
}

// BE32 is an IPv4 address as the data path loads it.
func BE32(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// SetFlag makes a number 1 or 0.
func SetFlag[T ~uint8 | ~uint16 | ~uint32](to *T, is bool) {
	*to = 0
	if is {
		*to = 1
	}
}

// FromBE32 is the reverse of BE32.
func FromBE32(v uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}

// Halves are an IPv6 address's two words in host byte order.
func Halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// FromHalves is the reverse of Halves.
func FromHalves(hi, lo uint64) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

// Ones is a word whose first n bits are set, 0 to 64.
func Ones(n int) uint64 {
	return ^(^uint64(0) >> min(max(n, 0), 64))
}

// BE16 is a number in network byte order.
func BE16(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// LPM4 is the key of an IPv4 prefix in a routing table.
func LPM4(table uint32, p netip.Prefix) Lpm4Key {
	return Lpm4Key{Prefixlen: 32 + uint32(p.Bits()), Table: table, Addr: BE32(p.Masked().Addr())}
}

// LPM6 is the key of an IPv6 prefix in a routing table.
func LPM6(table uint32, p netip.Prefix) Lpm6Key {
	return Lpm6Key{Prefixlen: 32 + uint32(p.Bits()), Table: table, Addr: In6Of(p.Masked().Addr())}
}

// SIDKey is the key of a SID in sid_by_prefix.
func SIDKey(p netip.Prefix) SidKey {
	return SidKey{Prefixlen: uint32(p.Bits()), Addr: In6Of(p.Masked().Addr())}
}

// SIDPrefix is the reverse of SIDKey.
func SIDPrefix(k SidKey) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16(k.Addr.B), int(k.Prefixlen))
}

// MappedBits is the length of p, IPv4 as IPv4-mapped.
func MappedBits(p netip.Prefix) uint8 {
	if p.Addr().Is4() {
		return uint8(p.Bits() + 96)
	}
	return uint8(p.Bits())
}
