package model

import (
	"encoding/binary"
	"net/netip"
)

// Protocol numbers (IANA).
const (
	protoHopByHop    = 0
	protoICMP        = 1
	protoIPv4        = 4
	protoTCP         = 6
	protoUDP         = 17
	protoIPv6        = 41
	protoRouting     = 43
	protoFragment    = 44
	protoESP         = 50
	protoAH          = 51
	protoICMPv6      = 58
	protoNone        = 59
	protoDestination = 60
	protoSCTP        = 132
	protoEthernet    = 143
)

var be = binary.BigEndian

func version(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	return int(p[0] >> 4)
}

// hops is a packet's hop limit or TTL.
func hops(p []byte) uint8 {
	if version(p) == 6 {
		return v6(p).hopLimit()
	}
	return v4(p).ttl()
}

// versionOf is the IP version of a packet that IPv6 carries, by its protocol.
var versionOf = map[uint8]int{protoIPv4: 4, protoIPv6: 6}

// etherTypeOf is how Ethernet names a packet.
func etherTypeOf(p []byte) uint16 {
	if version(p) == 4 {
		return 0x0800
	}
	return 0x86dd
}

// v6 and v4 are packets of at least a header's length.
type v6 []byte
type v4 []byte

func (p v6) src() netip.Addr     { return netip.AddrFrom16([16]byte(p[8:24])) }
func (p v6) dst() netip.Addr     { return netip.AddrFrom16([16]byte(p[24:40])) }
func (p v6) hopLimit() uint8     { return p[7] }
func (p v6) next() uint8         { return p[6] }
func (p v6) length() int         { return 40 + int(be.Uint16(p[4:])) }
func (p v6) trafficClass() uint8 { return p[0]<<4 | p[1]>>4 }
func (p v6) flowLabel() uint32   { return be.Uint32(p) & 0xfffff }

// jumbo says whether an IPv6 packet's header does not tell its length: it is 0, and something
// follows.
func jumbo(p []byte) bool {
	return version(p) == 6 && v6(p).length() == 40 && v6(p).next() != protoNone
}

func (p v4) src() netip.Addr { return netip.AddrFrom4([4]byte(p[12:16])) }
func (p v4) dst() netip.Addr { return netip.AddrFrom4([4]byte(p[16:20])) }
func (p v4) ttl() uint8      { return p[8] }
func (p v4) protocol() uint8 { return p[9] }
func (p v4) tos() uint8      { return p[1] }
func (p v4) header() int     { return int(p[0]&15) * 4 }
func (p v4) length() int     { return int(be.Uint16(p[2:])) }
func (p v4) offset() int     { return int(be.Uint16(p[6:])&0x1fff) * 8 }
func (p v4) fragment() bool  { return be.Uint16(p[6:])&0x3fff != 0 }

// malformed says whether the lengths disagree, or the header is not as it was sent.
func (p v4) malformed() bool {
	header := p.header()
	return header < 20 || p.length() < header || p.length() > len(p) || fold(wordSum(p[:header])) != 0xffff
}

// change writes one octet of the header, and its checksum follows.
func (p v4) change(at int, value uint8) { change(p, at, value, 10) }

// change writes one octet of a header and updates the header's checksum (RFC 1624),
// so that a checksum that was wrong stays wrong.
func change(header []byte, at int, value uint8, checksum int) {
	word := at &^ 1
	old := be.Uint16(header[word:])
	header[at] = value
	be.PutUint16(header[checksum:], updated(be.Uint16(header[checksum:]), old, be.Uint16(header[word:])))
}

// updated is RFC 1624's equation 3: HC' = ~(~HC + ~m + m').
func updated(checksum, old, new uint16) uint16 {
	return ^fold(uint64(^checksum) + uint64(^old) + uint64(new))
}

// wordSum adds up 16-bit words; an odd octet at the end is padded with zero.
func wordSum(b []byte) uint64 {
	var sum uint64
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(be.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// pseudoHeader is the sum that TCP, UDP and ICMPv6 checksums start from.
func pseudoHeader(src, dst netip.Addr, protocol uint8, length int) uint64 {
	return wordSum(src.AsSlice()) + wordSum(dst.AsSlice()) + uint64(protocol) + uint64(length)
}

// checksumOffset is where a checksum stands in the upper layer, or -1.
func checksumOffset(protocol uint8) int {
	switch protocol {
	case protoTCP:
		return 16
	case protoUDP:
		return 6
	case protoICMPv6, protoICMP:
		return 2
	}
	return -1
}

// flowHash is section 3's: of a packet by its IP version, of Ethernet by its
// addresses, 0 of what is neither.
func flowHash(p []byte, ethernet bool) uint32 {
	le := binary.LittleEndian
	primes := [...]uint64{0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93}
	var h uint64
	last := func(x uint64) uint32 {
		h += x * 0xFF51AFD7ED558CCD
		h ^= h >> 32
		return uint32(h * primes[0] >> 32)
	}
	l4 := func(protocol uint8, rest []byte, label uint32) uint32 {
		word := label
		switch protocol {
		case protoTCP, protoUDP, protoSCTP, protoESP:
			if len(rest) >= 4 {
				word = le.Uint32(rest)
			}
			if protocol == protoUDP && len(rest) >= 16 && toGTPU(rest) {
				word ^= le.Uint32(rest[12:]) // the TEID
			}
		}
		return last(uint64(protocol)<<32 | uint64(word))
	}
	switch {
	case ethernet && len(p) >= 14:
		h = le.Uint64(p) * primes[0]
		return last(uint64(le.Uint32(p[8:])))
	case ethernet:
	case version(p) == 4 && len(p) >= 20:
		h = le.Uint64(p[12:]) * primes[0]
		if v4(p).fragment() {
			return last(uint64(p[9]) << 32)
		}
		return l4(p[9], p[min(v4(p).header(), len(p)):], 0)
	case version(p) == 6 && len(p) >= 40:
		for i, prime := range primes {
			h += le.Uint64(p[8+8*i:]) * prime
		}
		return l4(p[6], p[40:], le.Uint32([]byte{0, p[1] & 0x0f, p[2], p[3]}))
	}
	return 0
}

// getBits reads up to 64 bits of b from a bit offset.
func getBits(b []byte, offset, count int) uint64 {
	var v uint64
	for i := offset; i < offset+count; i++ {
		v = v<<1 | uint64(b[i/8]>>(7-i%8)&1)
	}
	return v
}

// putBits writes the low count bits of v at a bit offset.
func putBits(b []byte, offset, count int, v uint64) {
	for i := range count {
		at := offset + i
		mask := byte(1) << (7 - at%8)
		b[at/8] &^= mask
		if v>>(count-1-i)&1 != 0 {
			b[at/8] |= mask
		}
	}
}

// args is Args.Mob.Session (RFC 9433 section 6.1): QFI, R, U, then the PDU
// Session ID.
type args struct {
	qfi  uint8
	r    bool
	teid uint32
}

func (a args) bits() uint64 {
	v := uint64(a.qfi&0x3f)<<2<<32 | uint64(a.teid)
	if a.r {
		v |= 1 << 33
	}
	return v
}

func argsOf(v uint64) args {
	return args{qfi: uint8(v >> 34 & 0x3f), r: v>>33&1 != 0, teid: uint32(v)}
}

// checksum6 is the UDP checksum over IPv6 of a header and what follows it,
// given as sums; never 0.
func checksum6(sum uint64) uint16 {
	c := ^fold(sum)
	if c == 0 {
		return 0xffff
	}
	return c
}

// tpduSum is the sum over a T-PDU as semantics section 6 has it: an upper
// layer with a checksum of its own is taken to be right.
func tpduSum(t []byte) uint64 {
	ipv4 := version(t) == 4 && len(t) >= 20 && v4(t).header() == 20 && v4(t).length() == len(t) && !v4(t).fragment()
	ipv6 := version(t) == 6 && len(t) >= 40 && v6(t).length() == len(t)
	if !ipv4 && !ipv6 {
		return wordSum(t)
	}
	protocol, l4 := upperLayer(t)
	src, dst := addresses(t)
	pseudo := pseudoHeader(src, dst, protocol, len(l4))
	switch {
	case ipv4 && protocol == protoICMPv6, ipv6 && protocol == protoICMP, !ownChecksum(protocol, l4):
		return wordSum(t)
	case protocol == protoICMP:
		pseudo = 0
	}
	return wordSum(t[:len(t)-len(l4)]) + uint64(^fold(pseudo))
}

// ownChecksum says whether an upper layer carries a checksum that may be
// relied on: its header is whole, and UDP's is not 0 and covers all of it.
func ownChecksum(protocol uint8, l4 []byte) bool {
	switch protocol {
	case protoTCP:
		return len(l4) >= 20
	case protoUDP:
		return len(l4) >= 8 && be.Uint16(l4[6:]) != 0 && int(be.Uint16(l4[4:])) == len(l4)
	case protoICMP, protoICMPv6:
		return len(l4) >= 8
	}
	return false
}

// completeChecksum computes a checksum that a local stack left to hardware: one
// that equals the folded pseudo-header sum.
func completeChecksum(p []byte) {
	if version(p) == 4 && v4(p).fragment() {
		return
	}
	protocol, l4 := upperLayer(p)
	src, dst := addresses(p)
	least := map[uint8]int{protoTCP: 18, protoUDP: 8}[protocol]
	if least == 0 || len(l4) < least {
		return
	}
	field := l4[checksumOffset(protocol):]
	pseudo := pseudoHeader(src, dst, protocol, len(l4))
	if be.Uint16(field) != fold(pseudo) {
		return
	}
	be.PutUint16(field, 0)
	c := ^fold(pseudo + wordSum(l4))
	if c == 0 && protocol == protoUDP {
		c = 0xffff
	}
	be.PutUint16(field, c)
}

// addresses are a packet's source and destination.
func addresses(p []byte) (src, dst netip.Addr) {
	if version(p) == 6 {
		return v6(p).src(), v6(p).dst()
	}
	return v4(p).src(), v4(p).dst()
}

// upperLayer is the protocol directly behind the IP header, and what is there.
func upperLayer(p []byte) (uint8, []byte) {
	if version(p) == 6 {
		return v6(p).next(), p[40:]
	}
	return v4(p).protocol(), p[v4(p).header():]
}

// multicast is netip's IsMulticast, which takes an IPv4-mapped address for the
// IPv4 address that is in it: on the wire it is none.
func multicast(a netip.Addr) bool { return !a.Is4In6() && a.IsMulticast() }

// nobody says whether an address is no single host's that a router knows.
func nobody(a netip.Addr) bool {
	return multicast(a) || !a.Is4In6() && a.IsLinkLocalUnicast() || a.Is4() && a.IsLoopback() || a == broadcast
}

// unroutable are the addresses of single hosts that no router sends packets to
// (RFC 1812 section 5.3.7, RFC 6890, RFC 4291).
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/64"), netip.MustParsePrefix("fe80::/10"),
}

// ofLink are groups whose packets no router sends on (RFC 5771 section 4, RFC 4291 section 2.7).
func ofLink(a netip.Addr) bool {
	if a.Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{224}), 24).Contains(a)
	}
	b := a.As16()
	return b[0] == 0xff && b[1]&0xf <= 2
}

// martian says whether no packet that is sent on has these addresses.
func martian(src, dst netip.Addr) bool {
	return within(unroutable, src) || multicast(src) || within(unroutable, dst) || ofLink(dst)
}
