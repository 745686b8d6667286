package codec

import (
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

// Unpack decodes a session that Session wrote.
func Unpack(b []byte) (*session.Session, error) {
	c := NewReader(b)
	s := &session.Session{}
	c.Session(s)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Head is what a start has to know of each session: who its SMF is, and what nobody else may
// get. It is in front of everything else.
type Head struct {
	SEID, CPSEID uint64
	CPAddr       netip.Addr // with CPSEID: the CP F-SEID
	Node         string     // Node ID of the SMF
	PDNType      session.PDNType
	Applications bool // a rule names an application
	TEIDs        []uint32
	UEs          []netip.Prefix
}

// headReader has memory for ReadHead.
type headReader struct {
	c Codec
	s session.Session
	h Head
}

var headReaders = sync.Pool{New: func() any { return &headReader{} }}

// ReadHead decodes the Head of a session that Session wrote, and calls f with it. f may keep
// its Node, but neither of its lists.
func ReadHead(b []byte, f func(*Head) error) error {
	r := headReaders.Get().(*headReader)
	defer headReaders.Put(r)
	r.c = Codec{b: b, reading: true, reuse: true, texts: r.c.texts[:0]}
	if r.read(); r.c.bad {
		*r = headReader{}
		return ErrMalformed
	}
	return f(&r.h)
}

// Identify returns of a session that Session wrote its SEID and PDN Type.
func Identify(b []byte) (seid uint64, of session.PDNType, err error) {
	r := headReaders.Get().(*headReader)
	defer headReaders.Put(r)
	r.c = Codec{b: b, reading: true, reuse: true, texts: r.c.texts[:0]}
	if r.c.identity(&r.s); r.c.bad {
		return 0, 0, ErrMalformed
	}
	return r.s.SEID, r.s.PDNType, nil
}

// read decodes the Head. A record without one has it in its PDRs.
func (r *headReader) read() {
	c, s, h := &r.c, &r.s, &r.h
	version := c.identity(s)
	h.SEID, h.CPSEID, h.CPAddr, h.Node, h.PDNType = s.SEID, s.CPSEID, s.CPAddr, s.Node, s.PDNType
	switch {
	case c.bad:
	case version == Version:
		c.resources(h)
	default:
		c.upToPDRs(s)
		h.take(s)
	}
}

// take takes over what is in the PDRs of a session.
func (h *Head) take(s *session.Session) {
	h.Applications, h.TEIDs, h.UEs = s.NamesApplications(), s.AppendTEIDs(h.TEIDs[:0]), s.AppendUEs(h.UEs[:0])
}

// Session codes a session, with Version before it.
func (c *Codec) Session(s *session.Session) {
	version := c.identity(s)
	if c.bad {
		return
	}
	switch {
	case !c.reading:
		c.head.take(s)
		c.resources(&c.head)
	case version == Version:
		c.skipResources()
	}
	c.upToPDRs(s)
	List(c, &s.FARs, (*Codec).far)
	List(c, &s.QERs, (*Codec).qer)
	List(c, &s.URRs, (*Codec).urr)
	List(c, &s.BARs, func(c *Codec, b *session.BAR) {
		Num(c, &b.ID)
		Num(c, &b.NotificationDelay)
		Num(c, &b.SuggestedCount)
	})
}

// identity codes which session it is, and returns the version of its record.
func (c *Codec) identity(s *session.Session) (version uint8) {
	version = Version
	if Num(c, &version); version != Version && version != headless {
		c.fail()
		return version
	}
	Num(c, &s.SEID)
	Num(c, &s.CPSEID)
	c.Addr(&s.CPAddr)
	c.Text(&s.Node)
	Num(c, &s.PDNType)
	return version
}

// resources codes the rest of a Head.
func (c *Codec) resources(h *Head) {
	c.Flag(&h.Applications)
	List(c, &h.TEIDs, Num[uint32])
	List(c, &h.UEs, (*Codec).Prefix)
}

// skipResources reads over what resources wrote: the PDRs say it again.
func (c *Codec) skipResources() {
	c.Number(0)
	for n := c.Number(0); n > 0 && !c.bad; n-- {
		c.Number(0)
	}
	for n := c.Number(0); n > 0 && !c.bad; n-- {
		c.Take(c.Number(0))
		c.Number(0)
	}
}

func (c *Codec) upToPDRs(s *session.Session) {
	Num(c, &s.SNSSAI.SST)
	Num(c, &s.SNSSAI.SD)
	c.Flag(&s.SNSSAI.HasSD)
	c.Text(&s.DNN)
	c.Text(&s.UserID)
	Num(c, &s.InactivityTimer)
	List(c, &s.PDRs, (*Codec).pdr)
}

func (c *Codec) pdr(p *session.PDR) {
	Num(c, &p.ID)
	Num(c, &p.Precedence)
	c.pdi(&p.PDI)
	c.Flag(&p.RemoveOuter)
	Num(c, &p.FAR)
	List(c, &p.QERs, Num[uint32])
	List(c, &p.URRs, Num[uint32])
}

func (c *Codec) pdi(p *session.PDI) {
	Num(c, &p.Source)
	Optional(c, &p.InterfaceType, Num[session.InterfaceType])
	c.Text(&p.NetworkInstance)
	Num(c, &p.TEID)
	c.Addr(&p.TEID4)
	c.Addr(&p.TEID6)
	Optional(c, &p.ChooseID, Num[uint8])
	List(c, &p.UE, (*Codec).Prefix)
	List(c, &p.FramedRoutes, (*Codec).Prefix)
	List(c, &p.Filters, (*Codec).filter)
	List(c, &p.QFIs, Num[uint8])
	c.Text(&p.ApplicationID)
	List(c, &p.Ethernet, (*Codec).ethernet)
}

func (c *Codec) filter(f *session.Filter) {
	Optional(c, &f.ID, Num[uint32])
	c.Text(&f.Text)
	c.Prefix(&f.Remote)
	c.Prefix(&f.Local)
	Num(c, &f.Protocol)
	c.Flag(&f.AnyProtocol)
	List(c, &f.RemotePorts, (*Codec).ports)
	List(c, &f.LocalPorts, (*Codec).ports)
	Num(c, &f.ToS)
	Num(c, &f.ToSMask)
	Optional(c, &f.FlowLabel, Num[uint32])
	Optional(c, &f.SPI, Num[uint32])
}

func (c *Codec) ports(r *session.PortRange) {
	Num(c, &r.From)
	Num(c, &r.To)
}

func (c *Codec) ethernet(e *session.EthernetFilter) {
	for i := range e.Source {
		Num(c, &e.Source[i])
		Num(c, &e.Destination[i])
		Num(c, &e.SourceTo[i])
		Num(c, &e.DestinationTo[i])
	}
	Num(c, &e.EtherType)
	Optional(c, &e.CVLAN, Num[uint16])
	Optional(c, &e.SVLAN, Num[uint16])
	List(c, &e.Filters, (*Codec).filter)
}

func (c *Codec) far(f *session.FAR) {
	Num(c, &f.ID)
	Num(c, &f.Action)
	Optional(c, &f.Forwarding, (*Codec).forwarding)
	List(c, &f.Duplicates, (*Codec).forwarding)
	Optional(c, &f.BAR, Num[uint8])
}

func (c *Codec) forwarding(f *session.Forwarding) {
	Num(c, &f.Destination)
	Optional(c, &f.InterfaceType, Num[session.InterfaceType])
	c.Text(&f.NetworkInstance)
	Optional(c, &f.Outer, func(c *Codec, o *session.OuterHeader) {
		Num(c, &o.Kind)
		c.Addr(&o.Addr)
		Num(c, &o.TEID)
		Num(c, &o.Port)
	})
	Num(c, &f.ToS)
	Num(c, &f.ToSMask)
}

func (c *Codec) qer(q *session.QER) {
	Num(c, &q.ID)
	c.Flag(&q.UplinkClosed, &q.DownlinkClosed)
	Optional(c, &q.MBR, (*Codec).bitRate)
	Optional(c, &q.GBR, (*Codec).bitRate)
	Optional(c, &q.PacketRate, func(c *Codec, r *session.PacketRates) {
		for _, one := range []*session.PacketRate{&r.Uplink, &r.Downlink} {
			Num(c, &one.Packets)
			Num(c, &one.Per)
		}
	})
	Optional(c, &q.QFI, Num[uint8])
	c.Flag(&q.Reflective)
}

func (c *Codec) bitRate(r *session.BitRate) {
	Num(c, &r.Uplink)
	Num(c, &r.Downlink)
}

func (c *Codec) urr(u *session.URR) {
	Num(c, &u.ID)
	c.Flag(&u.Volume, &u.Time, &u.Event)
	Num(c, &u.Trigger)
	Num(c, &u.Period)
	for _, v := range []**session.Volume{&u.VolumeThreshold, &u.VolumeQuota, &u.SubsequentVolume} {
		Optional(c, v, func(c *Codec, v *session.Volume) {
			Optional(c, &v.Total, Num[uint64])
			Optional(c, &v.Uplink, Num[uint64])
			Optional(c, &v.Downlink, Num[uint64])
		})
	}
	for _, v := range []*time.Duration{
		&u.TimeThreshold, &u.TimeQuota, &u.QuotaHolding, &u.QuotaValidity, &u.InactivityTime, &u.SubsequentTime, &u.EthernetIdle,
	} {
		Num(c, v)
	}
	c.Flag(&u.HasTimeQuota)
	c.Time(&u.MonitoringTime)
	List(c, &u.Linked, Num[uint32])
	c.Flag(&u.Inactive)
	Optional(c, &u.FARForQuotaAction, Num[uint32])
	c.Flag(&u.BeforeQoS, &u.NumberOfPackets, &u.ImmediateStart)
}
