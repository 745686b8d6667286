package wire

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// Decoder reads values of IEs. The first error stays, and what is read after it
// means nothing.
type Decoder struct {
	Err *Refusal
	// names are those that were read before: there are few, and each session
	// has several.
	Names map[string]string
}

const MaxNames = 1024

func (d *Decoder) Fail(r *Refusal) {
	if d.Err == nil {
		d.Err = r
	}
}

// Need says whether v has at least n octets. Of IEs that may be extended more
// is allowed, and not looked at.
func (d *Decoder) Need(t uint16, v []byte, n int) bool {
	if len(v) < n {
		d.Fail(&Refusal{Cause: ie.CauseInvalidLength, Offending: t})
		return false
	}
	return true
}

// Exactly is need for IEs whose length follows from their flags.
func (d *Decoder) Exactly(t uint16, v []byte, n int) bool {
	if len(v) != n {
		d.Fail(&Refusal{Cause: ie.CauseInvalidLength, Offending: t})
		return false
	}
	return true
}

// Each calls f for each IE of a list, until one is refused.
func (d *Decoder) Each(l IEs, f func(t uint16, v []byte)) {
	for len(l) > 0 && d.Err == nil {
		t, v, err := l.Next()
		if err != nil {
			d.Fail(err)
			return
		}
		f(t, v)
	}
}

func (d *Decoder) U8(t uint16, v []byte) uint8 {
	if !d.Need(t, v, 1) {
		return 0
	}
	return v[0]
}

func (d *Decoder) U16(t uint16, v []byte) uint16 {
	if !d.Need(t, v, 2) {
		return 0
	}
	return binary.BigEndian.Uint16(v)
}

func (d *Decoder) U32(t uint16, v []byte) uint32 {
	if !d.Need(t, v, 4) {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

// u40 are the rates of MBR and GBR.
func u40(v []byte) uint64 { return uint64(v[0])<<32 | uint64(binary.BigEndian.Uint32(v[1:])) }

func (d *Decoder) Seconds(t uint16, v []byte) time.Duration {
	return time.Duration(d.U32(t, v)) * time.Second
}

// Epoch is where time begins in PFCP (RFC 5905).
const Epoch = 2208988800

// Time is a time stamp of whole seconds. Those before 1968 are of the next era,
// which begins in 2036.
func (d *Decoder) Time(t uint16, v []byte) time.Time {
	sec := int64(d.U32(t, v))
	if sec < 1<<31 {
		sec += 1 << 32
	}
	return time.Unix(sec-Epoch, 0).UTC()
}

// Name is a domain name (RFC 1035 labels) or plain text: Open5GS' SMF writes
// the one, free5GC's the other. Labels are what adds up exactly.
func (d *Decoder) Name(v []byte) string {
	if s, ok := d.Names[string(v)]; ok {
		return s
	}
	s, ok := Labels(v)
	if !ok {
		s = strings.ToValidUTF8(string(v), "?")
	}
	if d.Names == nil || len(d.Names) >= MaxNames {
		d.Names = map[string]string{}
	}
	d.Names[string(v)] = s
	return s
}

func Labels(v []byte) (string, bool) {
	if n := len(v); n > 0 && v[n-1] == 0 { // the root's
		v = v[:n-1]
	}
	if len(v) == 0 {
		return "", false
	}
	var b strings.Builder
	for len(v) > 0 {
		n := int(v[0])
		if n == 0 || n > 63 || len(v) < 1+n {
			return "", false
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.Write(v[1 : 1+n])
		v = v[1+n:]
	}
	return b.String(), true
}

// NodeID is the text of a Node ID: an address or a name.
func (d *Decoder) NodeID(v []byte) string {
	if !d.Need(ie.NodeID, v, 1) {
		return ""
	}
	switch v[0] & 0x0f {
	case ie.NodeIDIPv4Address:
		if d.Need(ie.NodeID, v, 5) {
			return netip.AddrFrom4([4]byte(v[1:5])).String()
		}
	case ie.NodeIDIPv6Address:
		if d.Need(ie.NodeID, v, 17) {
			return netip.AddrFrom16([16]byte(v[1:17])).String()
		}
	case ie.NodeIDFQDN:
		if s, ok := Labels(v[1:]); ok && len(s) <= 255 {
			return s
		}
		d.Fail(Incorrect(ie.NodeID))
	default:
		d.Fail(Incorrect(ie.NodeID))
	}
	return ""
}

// FSEID is an F-SEID.
func (d *Decoder) FSEID(v []byte) (seid uint64, v4, v6 netip.Addr) {
	if !d.Need(ie.FSEID, v, 9) {
		return 0, v4, v6
	}
	flags, at := v[0], 9
	if flags&2 != 0 {
		if !d.Need(ie.FSEID, v, at+4) {
			return 0, v4, v6
		}
		v4 = netip.AddrFrom4([4]byte(v[at:]))
		at += 4
	}
	if flags&1 != 0 {
		if !d.Need(ie.FSEID, v, at+16) {
			return 0, v4, v6
		}
		v6 = netip.AddrFrom16([16]byte(v[at:]))
	}
	if flags&3 == 0 {
		d.Fail(Incorrect(ie.FSEID))
	}
	return binary.BigEndian.Uint64(v[1:]), v4, v6
}

// FTEID is a Local F-TEID: given, or to be chosen.
type FTEID struct {
	TEID           uint32
	V4, V6         netip.Addr // given
	Choose         bool
	Wants4, Wants6 bool
	ChooseID       *uint8
}

func (d *Decoder) ReadFTEID(v []byte) (f FTEID) {
	if !d.Need(ie.FTEID, v, 1) {
		return f
	}
	flags := v[0]
	f.Wants4, f.Wants6, f.Choose = flags&1 != 0, flags&2 != 0, flags&4 != 0
	if !f.Wants4 && !f.Wants6 {
		d.Fail(Incorrect(ie.FTEID))
		return f
	}
	if f.Choose {
		if flags&8 == 0 {
			d.Exactly(ie.FTEID, v, 1)
		} else if d.Exactly(ie.FTEID, v, 2) {
			id := v[1]
			f.ChooseID = &id
		}
		return f
	}
	size := 5
	if f.Wants4 {
		size += 4
	}
	if f.Wants6 {
		size += 16
	}
	if !d.Exactly(ie.FTEID, v, size) {
		return f
	}
	f.TEID = binary.BigEndian.Uint32(v[1:])
	at := 5
	if f.Wants4 {
		f.V4 = netip.AddrFrom4([4]byte(v[at:]))
		at += 4
	}
	if f.Wants6 {
		f.V6 = netip.AddrFrom16([16]byte(v[at:]))
	}
	if f.TEID == 0 {
		d.Fail(Incorrect(ie.FTEID))
	}
	return f
}

// UEAddress is a UE IP Address: given, or to be chosen.
type UEAddress struct {
	Prefixes         []netip.Prefix
	Choose4, Choose6 bool
}

func (d *Decoder) ReadUEAddress(v []byte, dst []netip.Prefix) (u UEAddress) {
	const t = ie.UEIPAddress
	u.Prefixes = dst
	if !d.Need(t, v, 1) {
		return u
	}
	flags, at := v[0], 1
	u.Choose4, u.Choose6 = flags&0x10 != 0, flags&0x20 != 0
	if flags&2 != 0 && !u.Choose4 {
		if !d.Need(t, v, at+4) {
			return u
		}
		u.Prefixes = append(u.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte(v[at:])), 32))
		at += 4
	}
	var v6 netip.Addr
	if flags&1 != 0 && !u.Choose6 {
		if !d.Need(t, v, at+16) {
			return u
		}
		v6 = netip.AddrFrom16([16]byte(v[at:]))
		at += 16
	}
	bits := 64
	if flags&8 != 0 { // IPv6D: bits that the UE delegates, of the 64
		if !d.Need(t, v, at+1) {
			return u
		}
		bits -= int(v[at])
		at++
	}
	if flags&0x40 != 0 { // IP6PL
		if !d.Need(t, v, at+1) {
			return u
		}
		bits = int(v[at])
	}
	if bits < 1 || bits > 128 {
		d.Fail(Incorrect(t))
		return u
	}
	if v6.IsValid() {
		u.Prefixes = append(u.Prefixes, netip.PrefixFrom(v6, bits).Masked())
	}
	if u.Choose6 && bits != 64 {
		d.Fail(Unsupported(t))
	}
	if len(u.Prefixes) == len(dst) && !u.Choose4 && !u.Choose6 {
		d.Fail(Incorrect(t))
	}
	return u
}

// OuterHeader is an Outer Header Creation. Where both families are asked for,
// IPv4 is made.
func (d *Decoder) OuterHeader(v []byte) *session.OuterHeader {
	const t = ie.OuterHeaderCreation
	if !d.Need(t, v, 2) {
		return nil
	}
	what := v[0]
	if what&0xc0 != 0 || what == 0 || v[1]&7 != 0 { // C-TAG, S-TAG; N19, N6, multicast
		d.Fail(Unsupported(t))
		return nil
	}
	gtpu, udp := what&0x03 != 0, what&0x0c != 0
	has4, has6 := what&0x15 != 0, what&0x2a != 0
	size := 2
	for _, part := range []struct {
		there bool
		size  int
	}{{gtpu, 4}, {has4, 4}, {has6, 16}, {udp, 2}} {
		if part.there {
			size += part.size
		}
	}
	if !d.Exactly(t, v, size) {
		return nil
	}
	o := &session.OuterHeader{Kind: session.OuterIP}
	at := 2
	if gtpu {
		o.Kind = session.OuterGTPU
		o.TEID = binary.BigEndian.Uint32(v[at:])
		at += 4
	}
	if has6 {
		o.Addr = netip.AddrFrom16([16]byte(v[at+size4(has4):]))
	}
	if has4 {
		o.Addr = netip.AddrFrom4([4]byte(v[at:]))
	}
	if udp {
		if !gtpu {
			o.Kind = session.OuterUDP
		}
		o.Port = binary.BigEndian.Uint16(v[size-2:])
	}
	if gtpu && o.TEID == 0 && o.Addr.IsUnspecified() {
		return nil // not known yet (OMEC's SMFs): as without one
	}
	if o.Addr.IsUnspecified() || (gtpu && o.TEID == 0) {
		d.Fail(Incorrect(t))
	}
	return o
}

func size4(there bool) int {
	if there {
		return 4
	}
	return 0
}

// SDFFilter is an SDF Filter. known finds the one that was described with a
// bidirectional ID in another PDR: Local and Remote are the same, whichever way
// packets go.
func (d *Decoder) SDFFilter(v []byte, known func(id uint32) (session.Filter, bool)) (f session.Filter) {
	const t = ie.SDFFilter
	if !d.Need(t, v, 2) {
		return f
	}
	flags, rest := v[0], v[2:]
	take := func(n int) []byte {
		if !d.Need(t, rest, n) {
			rest = nil
			return make([]byte, n)
		}
		taken := rest[:n]
		rest = rest[n:]
		return taken
	}
	f.AnyProtocol = true
	if flags&0x01 != 0 { // FD
		text := string(take(int(binary.BigEndian.Uint16(take(2)))))
		if d.Err != nil {
			return f
		}
		parsed, err := session.ParseFilter(text)
		if err != nil {
			d.Fail(&Refusal{Cause: ie.CauseMandatoryIEIncorrect, Offending: t, Err: err})
			return f
		}
		f = parsed
	}
	if flags&0x02 != 0 { // TTC
		tos := take(2)
		f.ToS, f.ToSMask = tos[0], tos[1]
	}
	if flags&0x04 != 0 { // SPI
		spi := binary.BigEndian.Uint32(take(4))
		f.SPI = &spi
	}
	if flags&0x08 != 0 { // FL
		label := take(3)
		value := uint32(label[0]&0x0f)<<16 | uint32(label[1])<<8 | uint32(label[2])
		f.FlowLabel = &value
	}
	if flags&0x10 != 0 { // BID
		id := binary.BigEndian.Uint32(take(4))
		if flags&0x0f == 0 {
			var ok bool
			if f, ok = known(id); !ok {
				d.Fail(Incorrect(t))
			}
		}
		f.ID = &id
	}
	if len(rest) > 0 {
		d.Exactly(t, v, len(v)-len(rest))
	}
	if flags&0x1f == 0 {
		d.Fail(Incorrect(t))
	}
	return f
}

// FramedRoute is a Framed-Route (RFC 2865 section 5.22) or Framed-IPv6-Route:
// a prefix, and a next hop and metrics that mean nothing here.
func (d *Decoder) FramedRoute(t uint16, v []byte) netip.Prefix {
	words := strings.Fields(string(v))
	if !d.Need(t, v, 1) || len(words) == 0 {
		d.Fail(Incorrect(t))
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(words[0])
	if a, err2 := netip.ParseAddr(words[0]); err2 == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4() != (t == ie.FramedRoute) {
		d.Fail(Incorrect(t))
	}
	return p.Masked()
}

// Volume is a Volume Threshold or Volume Quota.
func (d *Decoder) Volume(t uint16, v []byte) *session.Volume {
	if !d.Need(t, v, 1) {
		return nil
	}
	var out session.Volume
	at := 1
	for i, dst := range []**uint64{&out.Total, &out.Uplink, &out.Downlink} {
		if v[0]>>i&1 == 0 {
			continue
		}
		if !d.Need(t, v, at+8) {
			return nil
		}
		value := binary.BigEndian.Uint64(v[at:])
		*dst = &value
		at += 8
	}
	if v[0]&7 == 0 {
		d.Fail(Incorrect(t))
	}
	return &out
}

func (d *Decoder) BitRate(t uint16, v []byte) *session.BitRate {
	if !d.Exactly(t, v, 10) {
		return nil
	}
	return &session.BitRate{Uplink: u40(v), Downlink: u40(v[5:])}
}

// PacketRate is a Packet Rate: both ways are optional, the time unit is a
// number.
func (d *Decoder) PacketRate(v []byte) *session.PacketRates {
	const t = ie.PacketRate
	if !d.Need(t, v, 1) {
		return nil
	}
	units := [...]time.Duration{time.Minute, 6 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}
	var out session.PacketRates
	at := 1
	for i, dst := range []*session.PacketRate{&out.Uplink, &out.Downlink} {
		if v[0]>>i&1 == 0 {
			continue
		}
		if !d.Need(t, v, at+3) {
			return nil
		}
		unit := v[at] & 7
		if int(unit) >= len(units) {
			unit = 0 // "shall be interpreted as one minute"
		}
		*dst = session.PacketRate{Packets: binary.BigEndian.Uint16(v[at+1:]), Per: units[unit]}
		at += 3
	}
	if v[0]&0x04 != 0 { // APRC: additional packet rates, for exception data of the IoT
		d.Fail(Unsupported(t))
	}
	return &out
}

func (d *Decoder) SNSSAI(v []byte) (s session.SNSSAI) {
	if !d.Need(ie.SNSSAI, v, 4) {
		return s
	}
	s.SST = v[0]
	s.SD = binary.BigEndian.Uint32(v) & 0xffffff
	s.HasSD = s.SD != 0xffffff // TS 23.003: no slice differentiator
	if !s.HasSD {
		s.SD = 0
	}
	return s
}

// UserID is the first identity in a User ID: the subscriber's before the
// equipment's.
func (d *Decoder) UserID(v []byte) string {
	const t = ie.UserID
	if !d.Need(t, v, 1) {
		return ""
	}
	var found [7]string
	kinds := [...]string{"imsi", "imei", "msisdn", "nai", "supi", "gpsi", "pei"}
	rest := v[1:]
	for i, kind := range kinds {
		if v[0]>>i&1 == 0 {
			continue
		}
		if !d.Need(t, rest, 1) || !d.Need(t, rest, 1+int(rest[0])) {
			return ""
		}
		value := rest[1 : 1+int(rest[0])]
		rest = rest[1+int(rest[0]):]
		if i < 3 {
			found[i] = kind + "-" + digits(value)
		} else {
			found[i] = strings.ToValidUTF8(string(value), "?")
		}
	}
	for _, i := range [...]int{4, 0, 3, 5, 2, 6, 1} {
		if found[i] != "" {
			return found[i]
		}
	}
	return ""
}

// digits are two in an octet, the first in the lower half; 15 fills up.
func digits(v []byte) string {
	b := make([]byte, 0, 2*len(v))
	for _, octet := range v {
		for _, digit := range [2]byte{octet & 15, octet >> 4} {
			if digit <= 9 {
				b = append(b, '0'+digit)
			}
		}
	}
	return string(b)
}

// Addresses of IEs that begin with flags: V6, then V4; IPv4 comes first.
func (d *Decoder) Addresses(t uint16, v []byte) (list []netip.Addr) {
	if !d.Need(t, v, 1) {
		return nil
	}
	at := 1
	if v[0]&2 != 0 && d.Need(t, v, at+4) {
		list = append(list, netip.AddrFrom4([4]byte(v[at:])))
		at += 4
	}
	if v[0]&1 != 0 && d.Need(t, v, at+16) {
		list = append(list, netip.AddrFrom16([16]byte(v[at:])))
	}
	return list
}
