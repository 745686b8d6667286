package usage

import (
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/codec"
)

// Decode reads what Code wrote.
func Decode(b []byte) (*Usage, error) {
	c := codec.NewReader(b)
	u := &Usage{}
	u.Code(c)
	return u, c.Err()
}

// Code writes u, or reads into it.
func (u *Usage) Code(c *codec.Codec) {
	codec.List(c, &u.counts, func(c *codec.Codec, n *count) {
		codec.Num(c, &n.rule)
		codeTally(c, &n.tally)
		codec.Num(c, &n.stopAt)
		codeTally(c, &n.refused)
	})
	codec.List(c, &u.measurements, codeMeasurement)
	codec.List(c, &u.pending, codeReport)
	c.Time(&u.seen, &u.looked, &u.retry)
	c.Flag(&u.inactive, &u.waiting, &u.shares)
}

func codeTally(c *codec.Codec, t *tally) {
	codec.Num(c, &t.volume.Packets)
	codec.Num(c, &t.volume.Bytes)
	codec.Num(c, &t.grown)
	codec.Num(c, &t.notifyAt)
}

func codeMeasured(c *codec.Codec, v *session.Measured) {
	codec.Num(c, &v.Uplink)
	codec.Num(c, &v.Downlink)
}

func codeMeasurement(c *codec.Codec, m *measurement) {
	codec.Num(c, &m.id)
	codec.Num(c, &m.sequence)
	codeCounted(c, &m.counted)
	c.Time(&m.start, &m.first, &m.last, &m.since, &m.period, &m.given, &m.split)
	codeMeasured(c, &m.quota)
	codec.Num(c, &m.quotaTime)
	c.Flag(&m.exhausted, &m.holding, &m.traffic, &m.monitored, &m.firstSeen, &m.lastSeen)
	codec.Optional(c, &m.before, codeCounted)
	codec.List(c, &m.hosts, codeMAC)
	codec.List(c, &m.reported, codeMAC)
}

func codeMAC(c *codec.Codec, a *[6]byte) {
	for i := range a {
		codec.Num(c, &a[i])
	}
}

func codeCounted(c *codec.Codec, v *counted) {
	codeMeasured(c, &v.volume)
	codeMeasured(c, &v.packets)
	codec.Num(c, &v.used)
}

func codeReport(c *codec.Codec, r *session.UsageReport) {
	codec.Num(c, &r.URR)
	codec.Num(c, &r.Sequence)
	codec.Num(c, &r.Cause)
	c.Time(&r.Start, &r.End, &r.First, &r.Last)
	codeMeasured(c, &r.Volume)
	codeMeasured(c, &r.Packets)
	codec.Num(c, &r.Duration)
	c.Flag(&r.HasVolume, &r.HasDuration, &r.AfterMonitoring, &r.BeforeMonitoring)
	codec.List(c, &r.Detected, codeMAC)
	codec.List(c, &r.Removed, codeMAC)
}
