package codec

import (
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

// UnpackHead decodes of a session that Session wrote what identifies it: its SEIDs, the
// SMF's address, the Node ID and the PDN Type.
func UnpackHead(b []byte) (session.Session, error) {
	c := NewReader(b)
	var s session.Session
	c.head(&s)
	if c.bad {
		return session.Session{}, ErrMalformed
	}
	return s, nil
}

// pdrReader has memory for ReadPDRs.
type pdrReader struct {
	c Codec
	s session.Session
}

var pdrReaders = sync.Pool{New: func() any { return &pdrReader{} }}

// ReadPDRs decodes of a session that Session wrote everything up to its PDRs, and calls f
// with that, which may keep nothing of it.
func ReadPDRs(b []byte, f func(*session.Session) error) error {
	r := pdrReaders.Get().(*pdrReader)
	defer pdrReaders.Put(r)
	r.c = Codec{b: b, reading: true, reuse: true, texts: r.c.texts[:0]}
	if r.c.upToPDRs(&r.s); r.c.bad {
		r.s = session.Session{}
		return ErrMalformed
	}
	return f(&r.s)
}

// Session codes a session, with Version before it.
func (c *Codec) Session(s *session.Session) {
	if c.upToPDRs(s); c.bad {
		return
	}
	List(c, &s.FARs, (*Codec).far)
	List(c, &s.QERs, (*Codec).qer)
	List(c, &s.URRs, (*Codec).urr)
	List(c, &s.BARs, func(c *Codec, b *session.BAR) {
		Num(c, &b.ID)
		Num(c, &b.NotificationDelay)
		Num(c, &b.SuggestedCount)
	})
}

func (c *Codec) upToPDRs(s *session.Session) {
	if c.head(s); c.bad {
		return
	}
	Num(c, &s.SNSSAI.SST)
	Num(c, &s.SNSSAI.SD)
	c.Flag(&s.SNSSAI.HasSD)
	c.Text(&s.DNN)
	c.Text(&s.UserID)
	Num(c, &s.InactivityTimer)
	List(c, &s.PDRs, (*Codec).pdr)
}

func (c *Codec) head(s *session.Session) {
	version := uint8(Version)
	if Num(c, &version); version != Version {
		c.fail()
		return
	}
	Num(c, &s.SEID)
	Num(c, &s.CPSEID)
	c.Addr(&s.CPAddr)
	c.Text(&s.Node)
	Num(c, &s.PDNType)
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
