package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Codec reads or writes. Its methods do either, so that a field is written and
// read by the same line of code.
type Codec struct {
	b       []byte // written so far, or still to be read
	reading bool
	bad     bool // the input is truncated or malformed
	reuse   bool // lists and pointers that are there are read into
	zeros   int  // still to be written, or already read
	texts   []string
	last    int64 // time, in ns
	head    Head  // memory of Session
}

// Version numbers the layout of sessions. Later fields go to the end of their struct, with a
// test of the version that was read. headless is the earlier one: sessions without the rest
// of their Head.
const (
	Version  = 5
	headless = 4
)

// ErrMalformed reports input that no Codec wrote.
var ErrMalformed = errors.New("a session record is malformed")

var writers = sync.Pool{New: func() any { return &Codec{} }}

// NewWriter returns a Codec that writes. Release recycles it.
func NewWriter() *Codec {
	c := writers.Get().(*Codec)
	*c = Codec{b: c.b[:0], texts: c.texts[:0], head: Head{TEIDs: c.head.TEIDs[:0], UEs: c.head.UEs[:0]}}
	return c
}

// NewReader returns a Codec that reads b.
func NewReader(b []byte) *Codec { return &Codec{b: b, reading: true} }

// Release recycles a writer. The slice that Bytes returned is no longer valid.
func (c *Codec) Release() {
	clear(c.texts)
	writers.Put(c)
}

// Bytes returns everything that was written.
func (c *Codec) Bytes() []byte {
	c.settle()
	return c.b
}

// Err is ErrMalformed if the input was malformed, or is not read to its end.
func (c *Codec) Err() error {
	if c.bad || len(c.b) > 0 || c.zeros > 0 {
		return ErrMalformed
	}
	return nil
}

func (c *Codec) fail() { c.bad, c.b = true, nil }

// A run of at least manyZeros zeros is written as zeroRun and its length. No
// number is written as zeroRun: each takes as few octets as it can.
const manyZeros = 4

var zeroRun = []byte{0x80, 0}

// Number writes v, or returns the number that it reads. A number below 128, as
// most are, takes one octet.
func (c *Codec) Number(v uint64) uint64 {
	if !c.reading {
		c.write(v)
		return v
	}
	if c.zeros > 0 {
		c.zeros--
		return 0
	}
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v = uint64(c.b[0])
		c.b = c.b[1:]
		return v
	}
	if rest, many := bytes.CutPrefix(c.b, zeroRun); many && len(rest) > 0 && rest[0] >= manyZeros {
		c.zeros, c.b = int(rest[0])-1, rest[1:]
		return 0
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *Codec) write(v uint64) {
	switch {
	case v == 0:
		if c.zeros++; c.zeros == math.MaxUint8 {
			c.settle()
		}
		return
	case c.zeros > 0:
		c.settle()
	}
	if v < 0x80 {
		c.b = append(c.b, byte(v))
	} else {
		c.b = binary.AppendUvarint(c.b, v)
	}
}

// settle writes the pending zeros.
func (c *Codec) settle() {
	if c.zeros >= manyZeros {
		c.b = append(append(c.b, zeroRun...), byte(c.zeros))
		c.zeros = 0
	}
	for ; c.zeros > 0; c.zeros-- {
		c.b = append(c.b, 0)
	}
}

// Num codes a number of any type.
func Num[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int64](c *Codec, v *T) {
	*v = T(c.Number(uint64(*v)))
}

// Flag codes bools.
func (c *Codec) Flag(list ...*bool) {
	for _, v := range list {
		n := uint8(0)
		if *v {
			n = 1
		}
		Num(c, &n)
		*v = n == 1
	}
}

// fewTexts bounds the remembered texts: most sessions have a Node ID and one
// network instance.
const fewTexts = 4

// Text codes a string: twice its length and its octets or, where it occurred
// before, twice its index plus one.
func (c *Codec) Text(v *string) {
	if c.reading {
		*v = c.readText(*v)
		return
	}
	if i := slices.Index(c.texts, *v); i >= 0 {
		c.write(uint64(i)<<1 | 1)
		return
	}
	c.write(uint64(len(*v)) << 1)
	c.b = append(c.b, *v...)
	c.remember(*v)
}

// readText reads a text. Where memory is used again it may be the one that was there.
func (c *Codec) readText(had string) string {
	n := c.Number(0)
	if n&1 == 0 {
		v := c.Take(n >> 1)
		if !c.reuse || string(v) != had {
			had = string(v)
		}
		c.remember(had)
		return had
	}
	if n >>= 1; n >= uint64(len(c.texts)) {
		c.fail()
		return ""
	}
	return c.texts[n]
}

func (c *Codec) remember(v string) {
	if v != "" && len(c.texts) < fewTexts {
		c.texts = append(c.texts, v)
	}
}

// Take reads the next n octets.
func (c *Codec) Take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

// Addr codes an address, which may be invalid.
func (c *Codec) Addr(v *netip.Addr) {
	if !c.reading {
		a := v.WithZone("")
		c.write(uint64(a.BitLen() / 8))
		c.b, _ = a.AppendBinary(c.b) // it never fails
		return
	}
	b := c.Take(c.Number(0))
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		c.fail()
	}
	*v = a
}

// Prefix codes a prefix, which may be invalid.
func (c *Codec) Prefix(v *netip.Prefix) {
	a, bits := v.Addr(), uint8(v.Bits()+1)
	c.Addr(&a)
	Num(c, &bits)
	if c.reading {
		*v = netip.Prefix{}
		if bits > 0 {
			*v = netip.PrefixFrom(a, int(bits)-1)
		}
	}
}

// Time codes times, each as the difference from the one before: most are close to
// each other. 0 is the zero time.
func (c *Codec) Time(list ...*time.Time) {
	for _, v := range list {
		switch {
		case c.reading:
			*v = time.Time{}
			if n := c.Number(0); n != 0 {
				c.last += int64((n-1)>>1) ^ -int64((n-1)&1)
				*v = time.Unix(0, c.last)
			}
		case v.IsZero():
			c.write(0)
		default:
			d := v.UnixNano() - c.last
			c.last += d
			c.write(uint64(d<<1^d>>63) + 1)
		}
	}
}

// List codes a slice: its length, and each element by f.
func List[T any](c *Codec, v *[]T, f func(*Codec, *T)) {
	n := c.Number(uint64(len(*v)))
	if c.reading {
		had := *v
		*v = nil
		if n > uint64(c.zeros+len(c.b)*math.MaxUint8) { // each element has at least one number
			c.fail()
			return
		}
		switch {
		case c.reuse && n <= uint64(cap(had)):
			*v = had[:n]
		case n > 0:
			*v = make([]T, n)
		}
	}
	for i := range *v {
		f(c, &(*v)[i])
	}
}

// Optional codes a pointer: whether it is nil and, if not, its value by f.
func Optional[T any](c *Codec, v **T, f func(*Codec, *T)) {
	there := *v != nil
	c.Flag(&there)
	if !there {
		*v = nil
		return
	}
	if c.reading && (*v == nil || !c.reuse) {
		*v = new(T)
	}
	f(c, *v)
}
