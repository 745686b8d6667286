package wire

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// NodeID reads a Node ID as text: an address or a name.
func (i IE) NodeID() string {
	if !i.Need(1) {
		return ""
	}
	c := cursor{i, 1}
	switch i.Value()[0] & 0x0f {
	case ie.NodeIDIPv4Address:
		if v4, _ := c.addrs(true, false); i.OK() {
			return v4.String()
		}
	case ie.NodeIDIPv6Address:
		if _, v6 := c.addrs(false, true); i.OK() {
			return v6.String()
		}
	case ie.NodeIDFQDN:
		if s, ok := labels(i.Value()[1:]); ok && len(s) <= 255 {
			return s
		}
	}
	i.Incorrect()
	return ""
}

// Addrs reads the addresses of an IE that begins with the flags V6 and V4. The
// IPv4 address comes first.
func (i IE) Addrs() (list []netip.Addr) {
	c := cursor{i: i}
	flags := c.u8()
	v4, v6 := c.addrs(flags&2 != 0, flags&1 != 0)
	for _, a := range []netip.Addr{v4, v6} {
		if a.IsValid() {
			list = append(list, a)
		}
	}
	return list
}

// FSEID reads an F-SEID.
func (i IE) FSEID() (seid uint64, v4, v6 netip.Addr) {
	if !i.Need(9) {
		return 0, v4, v6
	}
	c := cursor{i: i}
	flags := c.u8()
	seid = c.u64()
	v4, v6 = c.addrs(flags&2 != 0, flags&1 != 0)
	if flags&3 == 0 {
		i.Incorrect()
	}
	return seid, v4, v6
}

// FTEID is a Local F-TEID: given by the SMF, or to be chosen by the UPF.
type FTEID struct {
	TEID           uint32
	V4, V6         netip.Addr // given
	Choose         bool
	Wants4, Wants6 bool
	ChooseID       *uint8
	// Shared is CHOOSE without V4, V6 and a CHOOSE ID. TS 29.244 does not have it, but the SMF
	// of SD-Core asks for nothing else, and gives the gNB the first F-TEID of the session only.
	Shared bool
}

// FTEID reads a Local F-TEID.
func (i IE) FTEID() (f FTEID) {
	flags := i.U8()
	f.Wants4, f.Wants6, f.Choose = flags&1 != 0, flags&2 != 0, flags&4 != 0
	if flags&15 == 4 {
		f.Wants4, f.Wants6, f.Shared = true, true, true
	}
	if !f.Wants4 && !f.Wants6 {
		i.Incorrect()
		return f
	}
	if f.Choose {
		if flags&8 != 0 && i.Need(2) {
			f.ChooseID = new(i.Value()[1])
		}
		return f
	}
	c := cursor{i, 1}
	f.TEID = c.u32()
	f.V4, f.V6 = c.addrs(f.Wants4, f.Wants6)
	if f.TEID == 0 {
		i.Incorrect()
	}
	return f
}

// UEAddress is a UE IP Address: given by the SMF, or to be chosen by the UPF.
type UEAddress struct {
	Prefixes         []netip.Prefix
	Choose4, Choose6 bool
}

// UEAddress reads a UE IP Address and appends the prefixes that it gives to
// dst.
func (i IE) UEAddress(dst []netip.Prefix) (u UEAddress) {
	c := cursor{i: i}
	flags := c.u8()
	u.Prefixes = dst
	u.Choose4, u.Choose6 = flags&0x10 != 0, flags&0x20 != 0
	v4, v6 := c.addrs(flags&2 != 0 && !u.Choose4, flags&1 != 0 && !u.Choose6)
	if v4.IsValid() {
		u.Prefixes = append(u.Prefixes, netip.PrefixFrom(v4, 32))
	}
	bits := 64
	if flags&8 != 0 { // IPv6D: how many of the 64 bits the UE delegates
		bits -= int(c.u8())
	}
	if flags&0x40 != 0 { // IP6PL
		bits = int(c.u8())
	}
	if !i.OK() {
		return u
	}
	if bits < 1 || bits > 128 {
		i.Incorrect()
		return u
	}
	if v6.IsValid() {
		u.Prefixes = append(u.Prefixes, netip.PrefixFrom(v6, bits).Masked())
	}
	if u.Choose6 && bits != 64 {
		i.Unsupported()
	}
	if len(u.Prefixes) == len(dst) && !u.Choose4 && !u.Choose6 {
		i.Incorrect()
	}
	return u
}

// OuterHeader reads an Outer Header Creation; nil: the tunnel's end is not
// known yet. If it asks for both families the result is IPv4.
func (i IE) OuterHeader() *session.OuterHeader {
	if !i.Need(2) {
		return nil
	}
	what := i.Value()[0]
	if what&0xc0 != 0 || what == 0 || i.Value()[1]&7 != 0 { // C-TAG, S-TAG; N19, N6, multicast
		i.Unsupported()
		return nil
	}
	gtpu, udp := what&0x03 != 0, what&0x0c != 0
	has4, has6 := what&0x15 != 0, what&0x2a != 0
	o := &session.OuterHeader{Kind: session.OuterIP}
	c := cursor{i, 2}
	if udp {
		o.Kind = session.OuterUDP
	}
	if gtpu {
		o.Kind = session.OuterGTPU
		o.TEID = c.u32()
	}
	v4, v6 := c.addrs(has4, has6)
	if o.Addr = v4; !has4 {
		o.Addr = v6
	}
	if udp {
		o.Port = c.u16()
	}
	if gtpu && o.TEID == 0 && o.Addr.IsUnspecified() {
		return nil // OMEC's SMFs write this for a tunnel that is not known yet
	}
	if o.Addr.IsUnspecified() || (gtpu && o.TEID == 0) {
		i.Incorrect()
	}
	return o
}

// SNSSAI reads an S-NSSAI.
func (i IE) SNSSAI() (s session.SNSSAI) {
	if !i.Need(4) {
		return s
	}
	s.SST = i.Value()[0]
	s.SD = binary.BigEndian.Uint32(i.Value()) & 0xffffff
	s.HasSD = s.SD != 0xffffff // TS 23.003: no slice differentiator
	if !s.HasSD {
		s.SD = 0
	}
	return s
}

// UserID reads one identity of a User ID, the subscriber's before the
// equipment's.
func (i IE) UserID() string {
	var found [7]string
	c := cursor{i: i}
	flags := c.u8()
	for n, kind := range [...]string{"imsi", "imei", "msisdn", "nai", "supi", "gpsi", "pei"} {
		if flags>>n&1 == 0 {
			continue
		}
		value := c.take(int(c.u8()))
		if n < 3 {
			found[n] = kind + "-" + digits(value)
		} else {
			found[n] = strings.ToValidUTF8(string(value), "?")
		}
	}
	for _, n := range [...]int{4, 0, 3, 5, 2, 6, 1} {
		if found[n] != "" {
			return found[n]
		}
	}
	return ""
}
