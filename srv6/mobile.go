package srv6

import (
	"fmt"
	"net/netip"
)

// Bits of SRH.tag that say which GTP-U message a packet stands for
// (draft-murakami-dmm-user-plane-message-encoding).
const (
	TagEndMarker       = 0x1
	TagErrorIndication = 0x2
	TagEchoRequest     = 0x4
	TagEchoResponse    = 0x8
)

// ArgsMobSession is the argument that names a PDU session (RFC 9433 section 6.1).
// It has 40 bits: QFI (6), R, U, and the PDU Session ID (32), which holds GTP-U's
// TEID. U is sent as 0 and ignored.
type ArgsMobSession struct {
	QFI  uint8
	R    bool // reflective QoS
	TEID uint32
}

// SequenceArgs returns the argument of an Echo message or Error Indication: the
// upper 16 bits of the PDU Session ID are the sequence number.
func SequenceArgs(sequence uint16) ArgsMobSession {
	return ArgsMobSession{TEID: uint32(sequence) << 16}
}

// Sequence returns the sequence number of an Echo message or Error Indication.
func (a ArgsMobSession) Sequence() uint16 { return uint16(a.TEID >> 16) }

// Put returns addr with the argument, offset bits from its start.
func (a ArgsMobSession) Put(addr netip.Addr, offset int) (netip.Addr, error) {
	switch {
	case !addr.Is6():
		return netip.Addr{}, fmt.Errorf("%s is not an IPv6 address", addr)
	case offset < 0 || offset > sidBits-ArgsMobSessionBits:
		return netip.Addr{}, fmt.Errorf("Args.Mob.Session does not fit at bit %d: at most %d",
			offset, sidBits-ArgsMobSessionBits)
	case a.QFI > 63:
		return netip.Addr{}, fmt.Errorf("QFI %d is larger than 63", a.QFI)
	}
	v := uint64(a.QFI)<<34 | uint64(a.TEID)
	if a.R {
		v |= 1 << 33
	}
	bytes := addr.As16()
	putBits(&bytes, offset, ArgsMobSessionBits, v)
	return netip.AddrFrom16(bytes), nil
}

// ArgsMobSessionAt returns the argument in addr, offset bits from its start.
func ArgsMobSessionAt(addr netip.Addr, offset int) (ArgsMobSession, bool) {
	if !addr.Is6() || offset < 0 || offset > sidBits-ArgsMobSessionBits {
		return ArgsMobSession{}, false
	}
	v := bitsAt(addr.As16(), offset, ArgsMobSessionBits)
	return ArgsMobSession{QFI: uint8(v >> 34), R: v>>33&1 == 1, TEID: uint32(v)}, true
}

// GTP4SID returns a SID of End.M.GTP4.E (RFC 9433 section 6.6): LOC:FUNC, the IPv4
// destination, the argument, and zeros.
func GTP4SID(prefix netip.Prefix, dst netip.Addr, args ArgsMobSession) (netip.Addr, error) {
	const most = sidBits - ipv4Bits - ArgsMobSessionBits
	sid, err := putIPv4(prefix.Masked(), dst, most)
	if err != nil {
		return netip.Addr{}, err
	}
	return args.Put(sid, prefix.Bits()+ipv4Bits)
}

// ParseGTP4SID returns what GTP4SID has written behind the first length bits.
func ParseGTP4SID(sid netip.Addr, length int) (dst netip.Addr, args ArgsMobSession, ok bool) {
	if dst, ok = GTP4SourceAt(sid, length); !ok {
		return netip.Addr{}, ArgsMobSession{}, false
	}
	if args, ok = ArgsMobSessionAt(sid, length+ipv4Bits); !ok {
		return netip.Addr{}, ArgsMobSession{}, false
	}
	return dst, args, true
}

// GTP4Source returns the IPv6 source that carries an IPv4 source: the source UPF
// prefix, the IPv4 address, and behind it the bits of prefix's address.
func GTP4Source(prefix netip.Prefix, src netip.Addr) (netip.Addr, error) {
	return putIPv4(prefix, src, sidBits-ipv4Bits)
}

// GTP4SourceAt returns the IPv4 address behind the first length bits of addr.
func GTP4SourceAt(addr netip.Addr, length int) (netip.Addr, bool) {
	if !addr.Is6() || length < 0 || length > sidBits-ipv4Bits {
		return netip.Addr{}, false
	}
	v := uint32(bitsAt(addr.As16(), length, ipv4Bits))
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

// GTP6SID returns a SID of End.M.GTP6.E (RFC 9433 section 6.5): LOC:FUNC, the
// argument, and zeros.
func GTP6SID(prefix netip.Prefix, args ArgsMobSession) (netip.Addr, error) {
	if !prefix.IsValid() {
		return netip.Addr{}, fmt.Errorf("LOC:FUNC is missing")
	}
	return args.Put(prefix.Masked().Addr(), prefix.Bits())
}

// putIPv4 writes an IPv4 address right behind prefix, of at most most bits.
func putIPv4(prefix netip.Prefix, addr netip.Addr, most int) (netip.Addr, error) {
	switch {
	case !prefix.IsValid() || !prefix.Addr().Is6():
		return netip.Addr{}, fmt.Errorf("%s is not an IPv6 prefix", prefix)
	case prefix.Bits() > most:
		return netip.Addr{}, fmt.Errorf("%s is longer than %d bits", prefix, most)
	case !addr.Is4():
		return netip.Addr{}, fmt.Errorf("%s is not an IPv4 address", addr)
	}
	bytes, v4 := prefix.Addr().As16(), addr.As4()
	v := uint64(v4[0])<<24 | uint64(v4[1])<<16 | uint64(v4[2])<<8 | uint64(v4[3])
	putBits(&bytes, prefix.Bits(), ipv4Bits, v)
	return netip.AddrFrom16(bytes), nil
}

// putBits writes the low n bits of v, offset bits from b's start.
func putBits(b *[16]byte, offset, n int, v uint64) {
	for i := range n {
		at, bit := (offset+i)/8, byte(0x80)>>((offset+i)%8)
		if v>>(n-1-i)&1 == 1 {
			b[at] |= bit
		} else {
			b[at] &^= bit
		}
	}
}

// bitsAt reads n bits, offset bits from b's start.
func bitsAt(b [16]byte, offset, n int) uint64 {
	var v uint64
	for i := range n {
		v = v<<1 | uint64(b[(offset+i)/8]>>(7-(offset+i)%8)&1)
	}
	return v
}
