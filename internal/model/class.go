package model

import (
	"net/netip"
	"slices"

	trafficclass "github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// classify finds the policy that a steered packet takes by its traffic class (section 2,
// "Traffic classes"), and the class that counts it; no policy: it is dropped.
func (m *Model) classify(port string, vlan uint16, to *srpolicy.Steering, packet []byte) (policy, name string) {
	src, dst := addresses(packet)
	best := m.policies[to.Policy]
	valid := func(color uint32) string {
		if p := m.ofColor(best, color); p != nil {
			return p.Name
		}
		return ""
	}
	// Classes are told apart at the longest prefix that is steered, or that a class is for.
	at := to.Prefix
	for _, c := range m.network.Config.TrafficClasses {
		for _, d := range c.Match.Destinations {
			if at.IsValid() && at.Contains(d.Addr()) && d.Contains(dst) && d.Bits() > at.Bits() {
				at = d
			}
		}
	}
	includes := func(c *trafficclass.Class) bool {
		return len(c.Match.Slices)+len(c.Match.QFIs) == 0 && (len(c.Match.Destinations) == 0 || slices.ContainsFunc(c.Match.Destinations, func(d netip.Prefix) bool {
			return at.IsValid() && d.Bits() <= at.Bits() && d.Contains(dst)
		}))
	}
	different := false
	var found *trafficclass.Class
	for i := range m.network.Config.TrafficClasses {
		c := &m.network.Config.TrafficClasses[i]
		if !includes(c) {
			continue
		}
		p := valid(c.Color)
		different = different || p != to.Policy && (p != "" || c.Strict)
		from := len(c.Match.Interfaces) == 0 || slices.Contains(c.Match.Interfaces, port)
		from = from && (len(c.Match.VLANs) == 0 || slices.Contains(c.Match.VLANs, vlan))
		from = from && (len(c.Match.Sources) == 0 || within(c.Match.Sources, src))
		from = from && len(c.Match.Namespaces)+len(c.Match.PodLabels) == 0 && !c.Match.Host
		code := len(c.Match.DSCP) == 0 || slices.Contains(c.Match.DSCP, uint16(class(packet)>>2))
		if from && code && (found == nil || c.Priority > found.Priority) {
			found = c
		}
	}
	if found == nil || !different {
		return to.Policy, ""
	}
	if p := valid(found.Color); p != "" || found.Strict {
		return p, found.Name
	}
	return to.Policy, found.Name
}

// ofColor is the valid policy of a color to the endpoint of another one, or nil.
func (m *Model) ofColor(best *srpolicy.Policy, color uint32) *srpolicy.Policy {
	for i := range m.network.Config.Policies {
		p := &m.network.Config.Policies[i]
		if best != nil && best.Endpoint.IsValid() && p.Endpoint == best.Endpoint && p.Color == color && color != 0 && !p.L2() && len(p.SegmentLists) > 0 {
			return p
		}
	}
	return nil
}

// classifyFlow is classify for packets of a session that go by an SR policy: that of the class's
// color has to end at a SID where this one ends.
func (m *Model) classifyFlow(f *Forwarding) (policy, name string) {
	var found *trafficclass.Class
	for i := range m.network.Config.TrafficClasses {
		c := &m.network.Config.TrafficClasses[i]
		of := &c.Match
		if len(of.Slices)+len(of.QFIs) == 0 || len(of.Slices) > 0 && !slices.Contains(of.Slices, f.Flow.Slice) ||
			len(of.QFIs) > 0 && (f.Flow.QFI == nil || !slices.Contains(of.QFIs, uint16(*f.Flow.QFI))) {
			continue
		}
		if found == nil || c.Priority > found.Priority {
			found = c
		}
	}
	if found == nil {
		return f.Policy, ""
	}
	best := m.policies[f.Policy]
	p := m.ofColor(best, found.Color)
	last := func(l srpolicy.SegmentList) netip.Addr { return l.Segments[len(l.Segments)-1] }
	if p != nil && slices.ContainsFunc(p.Lists(), func(l srpolicy.SegmentList) bool {
		return !slices.ContainsFunc(best.Lists(), func(m srpolicy.SegmentList) bool { return last(m) == last(l) })
	}) {
		p = nil
	}
	switch {
	case p != nil:
		return p.Name, found.Name
	case found.Strict:
		return "", found.Name
	}
	return f.Policy, found.Name
}
