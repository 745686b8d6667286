package wire

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
)

// Decoder reads the IEs of one message. It keeps the first error; values read
// after an error mean nothing. The zero value is ready.
type Decoder struct {
	Err *Refusal
	// Names caches domain names: there are few, and each session has several.
	Names map[string]string
}

// MaxNames bounds Decoder.Names.
const MaxNames = 1024

// Fail keeps r unless an earlier error is there.
func (d *Decoder) Fail(r *Refusal) {
	if d.Err == nil {
		d.Err = r
	}
}

// Each yields the IEs of a list until one is refused. A grouped IE that ends in
// the header of an IE inside is the offending one itself.
func (d *Decoder) Each(l IEs) iter.Seq[IE] {
	return func(yield func(IE) bool) {
		for len(l) > 0 && d.Err == nil {
			octets, err := l.Next()
			if err != nil {
				d.Fail(err)
				return
			}
			more := yield(IE{octets, d})
			if d.Err != nil {
				d.Err.in(octets)
			}
			if !more {
				return
			}
		}
	}
}

// in names the grouped IE that an IE without a whole header is in.
func (r *Refusal) in(grouped []byte) {
	if r.Cause == ie.CauseInvalidLength && r.Offending == 0 {
		r.Offending = binary.BigEndian.Uint16(grouped)
	}
}

// IE is an information element of a request. Its methods read the value. A
// value that they cannot read fails the Decoder, with the IE as the offending
// one.
//
// It has no more than four words, so that the compiler keeps it in registers.
type IE struct {
	octets []byte // with type and length
	d      *Decoder
}

const ieHeader = 4 // octets of an IE's type and length

// Type returns the type of the IE.
func (i IE) Type() uint16 { return binary.BigEndian.Uint16(i.octets) }

// Value returns the value. That of a vendor's IE begins with its Enterprise ID;
// no type of theirs is known.
func (i IE) Value() []byte { return i.octets[ieHeader:] }

// Fail refuses the request, unless an earlier error is there.
func (i IE) Fail(r *Refusal) { i.d.Fail(r) }

// Unsupported refuses the request with Cause 76 (service not supported).
func (i IE) Unsupported() { i.d.Fail(Unsupported(i.Type())) }

// Incorrect refuses the request with Cause 69 (mandatory IE incorrect).
func (i IE) Incorrect() { i.incorrect(nil) }

func (i IE) incorrect(err error) {
	i.d.Fail(&Refusal{Cause: ie.CauseMandatoryIEIncorrect, Offending: i.Type(), Err: err})
}

// Supported refuses the IE unless the user plane has what it asks for.
func (i IE) Supported(has bool) bool {
	if !has {
		i.Unsupported()
	}
	return has
}

// OK says whether nothing of the message has failed so far.
func (i IE) OK() bool { return i.d.Err == nil }

// Each yields the IEs of a grouped IE until one is refused.
func (i IE) Each() iter.Seq[IE] { return i.d.Each(i.Value()) }

// Need says whether the value has at least n octets. TS 29.244 lets later
// releases extend most IEs: more octets are allowed and ignored.
func (i IE) Need(n int) bool { return len(i.Value()) >= n || i.badLength() }

// badLength refuses the request with Cause 68 (invalid length).
func (i IE) badLength() bool {
	i.d.Fail(&Refusal{Cause: ie.CauseInvalidLength, Offending: i.Type()})
	return false
}

// U8 reads the first octet.
func (i IE) U8() uint8 {
	if !i.Need(1) {
		return 0
	}
	return i.Value()[0]
}

// U16 reads the first two octets.
func (i IE) U16() uint16 {
	if !i.Need(2) {
		return 0
	}
	return binary.BigEndian.Uint16(i.Value())
}

// U32 reads the first four octets.
func (i IE) U32() uint32 {
	if !i.Need(4) {
		return 0
	}
	return binary.BigEndian.Uint32(i.Value())
}

// Uint reads a number of 1, 2 or 4 octets.
func (i IE) Uint(octets int) uint32 {
	switch octets {
	case 1:
		return uint32(i.U8())
	case 2:
		return uint32(i.U16())
	}
	return i.U32()
}

// Seconds reads a duration of whole seconds.
func (i IE) Seconds() time.Duration { return time.Duration(i.U32()) * time.Second }

// Epoch is the Unix time, negated, at which time begins in PFCP (RFC 5905).
const Epoch = 2208988800

// Time reads a time stamp of whole seconds. Values before 1968 belong to the
// next era, which begins in 2036.
func (i IE) Time() time.Time {
	sec := int64(i.U32())
	if sec < 1<<31 {
		sec += 1 << 32
	}
	return time.Unix(sec-Epoch, 0).UTC()
}

// Name reads a domain name (RFC 1035 labels) or plain text: Open5GS' SMF writes
// the former, free5GC's the latter. A value is labels if their lengths add up
// exactly.
func (i IE) Name() string {
	d := i.d
	if s, ok := d.Names[string(i.Value())]; ok {
		return s
	}
	s, ok := labels(i.Value())
	if !ok {
		s = strings.ToValidUTF8(string(i.Value()), "?")
	}
	if d.Names == nil || len(d.Names) >= MaxNames {
		d.Names = map[string]string{}
	}
	d.Names[string(i.Value())] = s
	return s
}

func labels(v []byte) (string, bool) {
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

// cursor reads the parts of a value one behind another.
type cursor struct {
	i  IE
	at int
}

// take returns the next n octets. If they are missing it fails the IE and
// returns zeros.
func (c *cursor) take(n int) []byte {
	from := c.at
	if c.at += n; !c.i.Need(c.at) {
		c.at = len(c.i.Value())
		return make([]byte, n)
	}
	return c.i.Value()[from:c.at]
}

func (c *cursor) u8() uint8   { return c.take(1)[0] }
func (c *cursor) u16() uint16 { return binary.BigEndian.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return binary.BigEndian.Uint64(c.take(8)) }

// u40 reads a rate of MBR or GBR.
func (c *cursor) u40() uint64 { return uint64(c.u8())<<32 | uint64(c.u32()) }

// addrs reads an IPv4 address and then an IPv6 address, each if it is there.
func (c *cursor) addrs(has4, has6 bool) (v4, v6 netip.Addr) {
	if has4 {
		v4 = netip.AddrFrom4([4]byte(c.take(4)))
	}
	if has6 {
		v6 = netip.AddrFrom16([16]byte(c.take(16)))
	}
	return v4, v6
}

// digits are two in an octet, the first in the lower half; 15 is a filler.
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
