package plan

import (
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Liveness is what probes of segment lists need.
type Liveness struct {
	SID, Source netip.Addr
	Interval    uint16 // milliseconds
	Multiplier  uint8
}

// Probe is a list to probe, and the path that a probe takes before it returns.
type Probe struct {
	List srpolicy.SegmentList
	Path []netip.Addr
}

// Liveness is how this node probes lists, and false where it does not, or does not know yet
// where probes return to.
func (g *Goal) Liveness() (l Liveness, ok bool) {
	c := g.Desired.Process.Liveness
	l = Liveness{SID: c.SID, Source: g.Self.Source(), Interval: c.Interval, Multiplier: c.Multiplier}
	if !l.SID.IsValid() {
		l.SID = g.Self.ProbeSID()
	}
	for r := range g.All() {
		if e, ok := r.Value.(config.Encapsulation); ok && e.Source.IsValid() {
			l.Source = e.Source
		}
	}
	return l, c.Enabled && l.SID.IsValid() && l.Source.IsValid()
}

// Probes are the lists of all candidate paths that can be probed, each once. One whose only
// segment is of a router of which no End is known cannot.
func (g *Goal) Probes() (out []Probe) {
	seen := map[string]bool{}
	add := func(lists []srpolicy.SegmentList) {
		for _, l := range lists {
			key := l.Key()
			if path := g.probePath(l.Segments); !seen[key] && len(path) > 0 {
				seen[key] = true
				out = append(out, Probe{l, path})
			}
		}
	}
	for r := range g.All() {
		switch v := r.Value.(type) {
		case srpolicy.Policy:
			add(v.SegmentLists)
		case srpolicy.CandidatePath:
			add(v.SegmentLists)
		}
	}
	return out
}

// Choice is a candidate path whose lists carry packets by their delay.
type Choice struct {
	Key   string   // srpolicy.PathKey
	Lists []string // SegmentList.Key
	srpolicy.DelayConstraint
}

// Choices are the candidate paths with a constraint of delay, of their own or their policy's.
func (g *Goal) Choices() (out []Choice) {
	of := map[string]srpolicy.DelayConstraint{}
	add := func(policy, path string, lists []srpolicy.SegmentList, c srpolicy.DelayConstraint) {
		if !c.IsSet() || len(lists) == 0 {
			return
		}
		choice := Choice{Key: srpolicy.PathKey(policy, path), DelayConstraint: c}
		for _, l := range lists {
			choice.Lists = append(choice.Lists, l.Key())
		}
		out = append(out, choice)
	}
	for r := range g.All() {
		if p, ok := r.Value.(srpolicy.Policy); ok {
			of[p.Name] = p.DelayConstraint
			add(p.Name, "", p.SegmentLists, p.DelayConstraint)
		}
	}
	for r := range g.All() {
		if p, ok := r.Value.(srpolicy.CandidatePath); ok {
			add(p.Policy, p.Name, p.SegmentLists, p.DelayConstraint.Or(of[p.Policy]))
		}
	}
	return out
}

// probePath is the way of a probe: the list's, with an End of the last router in place of the
// last segment, where one is known.
func (g *Goal) probePath(segments []netip.Addr) []netip.Addr {
	n := len(segments) - 1
	path := slices.Clip(segments[:n])
	if end := g.endOf(segments[n]); end.IsValid() && (n == 0 || segments[n-1] != end) {
		path = append(path, end)
	}
	return path
}

// endOf is a SID with the behaviour End of the router that has a SID. It may be invalid.
func (g *Goal) endOf(sid netip.Addr) netip.Addr {
	i := slices.IndexFunc(g.Desired.Process.Liveness.Ends, func(e config.LivenessEnd) bool { return e.Locator.Contains(sid) })
	if i >= 0 {
		return g.Desired.Process.Liveness.Ends[i].SID
	}
	if g.Wanted == nil {
		return netip.Addr{}
	}
	i = slices.IndexFunc(g.Wanted.Peers, func(p overlay.Peer) bool {
		return !p.Unused && (p.Locator.IsValid() && p.Locator.Contains(sid) || slices.Contains(p.IPv4, sid) || slices.Contains(p.IPv6, sid))
	})
	if i < 0 {
		return netip.Addr{}
	}
	return g.Wanted.Peers[i].End()
}
