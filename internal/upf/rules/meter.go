package rules

import (
	"fmt"
	"slices"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// maxMeters bounds the meters that one packet has to ask.
const maxMeters = 8

// compileQERs gives each rule the limits of its QERs.
func (c *compiler) compileQERs() error {
	for _, d := range []datapath.Direction{datapath.Uplink, datapath.Downlink} {
		for i := range c.Session.QERs {
			c.compileQER(d, &c.Session.QERs[i])
		}
	}
	for i := range c.out.Rules {
		if r := &c.out.Rules[i]; len(r.Meters) > maxMeters {
			return ruleError(session.RulePDR, uint32(PDR(c.Session, r.ID).ID), fmt.Errorf("the limit of %d QERs is exceeded: %w", maxMeters, pfcp.ErrNoResources))
		}
	}
	return nil
}

// compileQER gives the rules of one direction the limits of a QER. The MBR of a
// QER that only one rule has is that rule's own rate, which costs the data path
// nothing more. Otherwise the rules share a meter.
func (c *compiler) compileQER(d datapath.Direction, q *session.QER) {
	var rate uint64
	var packets session.PacketRate
	if q.MBR != nil {
		rate = pick(d, q.MBR.Uplink, q.MBR.Downlink)
	}
	if q.PacketRate != nil {
		packets = pick(d, q.PacketRate.Uplink, q.PacketRate.Downlink)
	}
	if rate == 0 && packets.Packets == 0 {
		return
	}
	var rules []*datapath.Rule
	for i := range c.out.Rules {
		r := &c.out.Rules[i]
		if r.Direction == d && slices.Contains(PDR(c.Session, r.ID).QERs, q.ID) {
			rules = append(rules, r)
		}
	}
	if rate != 0 && len(rules) == 1 {
		if r := rules[0]; r.Rate == 0 || rate < r.Rate {
			r.Rate = rate
		}
		rate = 0
	}
	for _, m := range []datapath.Meter{{Rate: rate}, {Packets: packets.Packets, Period: packets.Per}} {
		if m.Rate == 0 && m.Packets == 0 || len(rules) == 0 {
			continue
		}
		for _, r := range rules {
			r.Meters = append(r.Meters, len(c.out.Meters))
		}
		c.out.Meters = append(c.out.Meters, m)
	}
}
