package upf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

// codec reads or writes, by the same code: a field that is written is read.
// Numbers are variable in length, many zeros in a row are counted, times are
// written as differences, a text that was there before is named by its place (a
// session of two PDRs is some 150 octets), lists begin with their length. What
// is written begins with codecVersion.
type codec struct {
	b       []byte // what is written, or what is still to be read
	reading bool
	bad     bool // what was read ended too early, or makes no sense
	zeros   int  // that are still to be written, or were read already
	texts   []string
	last    int64 // time, in ns
}

// codecVersion is of the layout. Fields that come later go to the end of their
// struct, with a test of the version that was read.
const codecVersion = 4

var errRecord = errors.New("a record of the journal makes no sense")

// pack encodes a session.
func pack(s *session.Session) []byte {
	c := newWriter()
	defer c.release()
	c.session(s)
	return slices.Clone(c.written())
}

var writers = sync.Pool{New: func() any { return &codec{} }}

// newWriter writes to room that is used again after release.
func newWriter() *codec {
	c := writers.Get().(*codec)
	*c = codec{b: c.b[:0], texts: c.texts[:0]}
	return c
}

func (c *codec) release() {
	clear(c.texts)
	writers.Put(c)
}

// written is all that was.
func (c *codec) written() []byte {
	c.settle()
	return c.b
}

// ended says whether all that there was to read made sense.
func (c *codec) ended() bool { return !c.bad && len(c.b) == 0 && c.zeros == 0 }

// unpack decodes what pack made.
func unpack(b []byte) (*session.Session, error) {
	c := codec{b: b, reading: true}
	s := &session.Session{}
	if c.session(s); !c.ended() {
		return nil, errRecord
	}
	return s, nil
}

func (c *codec) fail() { c.bad, c.b = true, nil }

// manyZeros are written as zeroRun and their number: it is no number itself,
// since none is written in more octets than it takes.
const manyZeros = 4

var zeroRun = []byte{0x80, 0}

// number is mostly one below 128: an octet.
func (c *codec) number(v uint64) uint64 {
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

func (c *codec) write(v uint64) {
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

// settle writes the zeros that are not written yet.
func (c *codec) settle() {
	if c.zeros >= manyZeros {
		c.b = append(append(c.b, zeroRun...), byte(c.zeros))
		c.zeros = 0
	}
	for ; c.zeros > 0; c.zeros-- {
		c.b = append(c.b, 0)
	}
}

// num is of every type that is a number.
func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int64](c *codec, v *T) {
	*v = T(c.number(uint64(*v)))
}

func (c *codec) flag(v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	num(c, &n)
	*v = n == 1
}

// fewTexts are remembered: most sessions have a Node ID and one network instance.
const fewTexts = 4

// text is written as twice its length, or, where it was there before, as twice
// its place and one.
func (c *codec) text(v *string) {
	if c.reading {
		*v = c.readText()
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

func (c *codec) readText() string {
	n := c.number(0)
	if n&1 == 0 {
		v := string(c.take(n >> 1))
		c.remember(v)
		return v
	}
	if n >>= 1; n >= uint64(len(c.texts)) {
		c.fail()
		return ""
	}
	return c.texts[n]
}

func (c *codec) remember(v string) {
	if v != "" && len(c.texts) < fewTexts {
		c.texts = append(c.texts, v)
	}
}

// take is the next n octets.
func (c *codec) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *codec) addr(v *netip.Addr) {
	if !c.reading {
		var raw [16]byte
		b := raw[:0]
		switch {
		case v.Is4():
			a := v.As4()
			b = append(b, a[:]...)
		case v.IsValid():
			a := v.As16()
			b = append(b, a[:]...)
		}
		c.write(uint64(len(b)))
		c.b = append(c.b, b...)
		return
	}
	b := c.take(c.number(0))
	a, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 {
		c.fail()
	}
	*v = a
}

func (c *codec) prefix(v *netip.Prefix) {
	a, bits := v.Addr(), uint8(v.Bits()+1)
	c.addr(&a)
	num(c, &bits)
	if c.reading {
		*v = netip.Prefix{}
		if bits > 0 {
			*v = netip.PrefixFrom(a, int(bits)-1)
		}
	}
}

// time is written as how far it is from the one before: most are close to each
// other. 0 is none.
func (c *codec) time(v *time.Time) {
	if c.reading {
		*v = time.Time{}
		if n := c.number(0); n != 0 {
			c.last += int64((n-1)>>1) ^ -int64((n-1)&1)
			*v = time.Unix(0, c.last)
		}
		return
	}
	if v.IsZero() {
		c.write(0)
		return
	}
	d := v.UnixNano() - c.last
	c.last += d
	c.write(uint64(d<<1^d>>63) + 1)
}

func list[T any](c *codec, v *[]T, f func(*codec, *T)) {
	n := c.number(uint64(len(*v)))
	if c.reading {
		*v = nil
		if n > uint64(c.zeros+len(c.b)*math.MaxUint8) { // each element has a number at least
			c.fail()
			return
		}
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		f(c, &(*v)[i])
	}
}

func optional[T any](c *codec, v **T, f func(*codec, *T)) {
	there := *v != nil
	c.flag(&there)
	if !there {
		*v = nil
		return
	}
	if c.reading {
		*v = new(T)
	}
	f(c, *v)
}

func (c *codec) session(s *session.Session) {
	version := uint8(codecVersion)
	if num(c, &version); version != codecVersion {
		c.fail()
		return
	}
	num(c, &s.SEID)
	num(c, &s.CPSEID)
	c.addr(&s.CPAddr)
	c.text(&s.Node)
	num(c, &s.PDNType)
	num(c, &s.SNSSAI.SST)
	num(c, &s.SNSSAI.SD)
	c.flag(&s.SNSSAI.HasSD)
	c.text(&s.DNN)
	c.text(&s.UserID)
	num(c, &s.InactivityTimer)
	list(c, &s.PDRs, (*codec).pdr)
	list(c, &s.FARs, (*codec).far)
	list(c, &s.QERs, (*codec).qer)
	list(c, &s.URRs, (*codec).urr)
	list(c, &s.BARs, func(c *codec, b *session.BAR) {
		num(c, &b.ID)
		num(c, &b.NotificationDelay)
		num(c, &b.SuggestedCount)
	})
}

func (c *codec) pdr(p *session.PDR) {
	num(c, &p.ID)
	num(c, &p.Precedence)
	c.pdi(&p.PDI)
	c.flag(&p.RemoveOuter)
	num(c, &p.FAR)
	list(c, &p.QERs, num[uint32])
	list(c, &p.URRs, num[uint32])
}

func (c *codec) pdi(p *session.PDI) {
	num(c, &p.Source)
	optional(c, &p.InterfaceType, num[session.InterfaceType])
	c.text(&p.NetworkInstance)
	num(c, &p.TEID)
	c.addr(&p.TEID4)
	c.addr(&p.TEID6)
	optional(c, &p.ChooseID, num[uint8])
	list(c, &p.UE, (*codec).prefix)
	list(c, &p.FramedRoutes, (*codec).prefix)
	list(c, &p.Filters, (*codec).filter)
	list(c, &p.QFIs, num[uint8])
	c.text(&p.ApplicationID)
	list(c, &p.Ethernet, (*codec).ethernet)
}

func (c *codec) filter(f *session.Filter) {
	optional(c, &f.ID, num[uint32])
	c.text(&f.Text)
	c.prefix(&f.Remote)
	c.prefix(&f.Local)
	num(c, &f.Protocol)
	c.flag(&f.AnyProtocol)
	list(c, &f.RemotePorts, (*codec).ports)
	list(c, &f.LocalPorts, (*codec).ports)
	num(c, &f.ToS)
	num(c, &f.ToSMask)
	optional(c, &f.FlowLabel, num[uint32])
	optional(c, &f.SPI, num[uint32])
}

func (c *codec) ports(r *session.PortRange) {
	num(c, &r.From)
	num(c, &r.To)
}

func (c *codec) ethernet(e *session.EthernetFilter) {
	for i := range e.Source {
		num(c, &e.Source[i])
		num(c, &e.Destination[i])
		num(c, &e.SourceTo[i])
		num(c, &e.DestinationTo[i])
	}
	num(c, &e.EtherType)
	optional(c, &e.CVLAN, num[uint16])
	optional(c, &e.SVLAN, num[uint16])
	list(c, &e.Filters, (*codec).filter)
}

func (c *codec) far(f *session.FAR) {
	num(c, &f.ID)
	num(c, &f.Action)
	optional(c, &f.Forwarding, (*codec).forwarding)
	list(c, &f.Duplicates, (*codec).forwarding)
	optional(c, &f.BAR, num[uint8])
}

func (c *codec) forwarding(f *session.Forwarding) {
	num(c, &f.Destination)
	optional(c, &f.InterfaceType, num[session.InterfaceType])
	c.text(&f.NetworkInstance)
	optional(c, &f.Outer, func(c *codec, o *session.OuterHeader) {
		num(c, &o.Kind)
		c.addr(&o.Addr)
		num(c, &o.TEID)
		num(c, &o.Port)
	})
	num(c, &f.ToS)
	num(c, &f.ToSMask)
}

func (c *codec) qer(q *session.QER) {
	num(c, &q.ID)
	c.flag(&q.UplinkClosed)
	c.flag(&q.DownlinkClosed)
	optional(c, &q.MBR, (*codec).bitRate)
	optional(c, &q.GBR, (*codec).bitRate)
	optional(c, &q.PacketRate, func(c *codec, r *session.PacketRates) {
		for _, one := range []*session.PacketRate{&r.Uplink, &r.Downlink} {
			num(c, &one.Packets)
			num(c, &one.Per)
		}
	})
	optional(c, &q.QFI, num[uint8])
	c.flag(&q.Reflective)
}

func (c *codec) bitRate(r *session.BitRate) {
	num(c, &r.Uplink)
	num(c, &r.Downlink)
}

func (c *codec) urr(u *session.URR) {
	num(c, &u.ID)
	c.flag(&u.Volume)
	c.flag(&u.Time)
	c.flag(&u.Event)
	num(c, &u.Trigger)
	num(c, &u.Period)
	for _, v := range []**session.Volume{&u.VolumeThreshold, &u.VolumeQuota, &u.SubsequentVolume} {
		optional(c, v, func(c *codec, v *session.Volume) {
			optional(c, &v.Total, num[uint64])
			optional(c, &v.Uplink, num[uint64])
			optional(c, &v.Downlink, num[uint64])
		})
	}
	for _, v := range []*time.Duration{
		&u.TimeThreshold, &u.TimeQuota, &u.QuotaHolding, &u.QuotaValidity, &u.InactivityTime, &u.SubsequentTime, &u.EthernetIdle,
	} {
		num(c, v)
	}
	c.flag(&u.HasTimeQuota)
	c.time(&u.MonitoringTime)
	list(c, &u.Linked, num[uint32])
	c.flag(&u.Inactive)
	optional(c, &u.FARForQuotaAction, num[uint32])
	c.flag(&u.BeforeQoS)
	c.flag(&u.NumberOfPackets)
	c.flag(&u.ImmediateStart)
}
