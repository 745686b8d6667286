package class

import (
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// NoQFI is the QFI of packets that are in no QoS flow.
const NoQFI = 0xff

// SessionFlow is packets of sessions, as far as classes tell them apart: those of a slice that
// it sends by an SR policy, with a QFI (or NoQFI).
type SessionFlow struct {
	Slice, Policy string // names
	QFI           uint8
}

// SessionWays are the ways of flows whose class has a policy of its own or is strict, or which it
// counts. Others take the policy of their slice.
type SessionWays map[SessionFlow]Way

// Of is the way of a flow.
func (w SessionWays) Of(f SessionFlow) Way {
	if way, there := w[f]; there {
		return way
	}
	return Way{Policy: f.Policy}
}

// hasFlow says whether a flow's packets can be in the class, of sessions.
func (m *Match) hasFlow(f SessionFlow) bool {
	if m.Kind() != SourceSession || !has(m.Slices, f.Slice) {
		return false
	}
	return len(m.QFIs) == 0 || f.QFI != NoQFI && has(m.QFIs, uint16(f.QFI))
}

// flowOfBoth describes a flow that both matches have.
func flowOfBoth(a, b *Match) (string, bool) {
	name, ok := common(a.Slices, b.Slices)
	qfi, also := common(a.QFIs, b.QFIs)
	text := "slice " + name
	if name == "" {
		text = "any slice"
	}
	if len(a.QFIs)+len(b.QFIs) > 0 {
		text += fmt.Sprintf(" with QFI %d", qfi)
	}
	return text, ok && also
}

// OfSessions gives the ways of all flows of slices, whose policies are given by their
// names. A flow leads to the endpoint of its slice's policy, and so to the valid policy of the
// class's color there, if that ends at the same SIDs: others do not know the session.
func (t *Table) OfSessions(bySlice map[string][]string, policies map[string]srpolicy.Policy, valid func(policy string) bool) SessionWays {
	out := SessionWays{}
	if t == nil || !t.hasSessions() {
		return out
	}
	s := t.steerer(policies, valid, nil)
	for name, best := range bySlice {
		for _, policy := range best {
			f := SessionFlow{Slice: name, Policy: policy, QFI: NoQFI}
			s.addFlow(out, f)
			for f.QFI = 0; f.QFI <= MaxQFI; f.QFI++ {
				s.addFlow(out, f)
			}
		}
	}
	return out
}

// hasSessions says whether any class is of sessions.
func (t *Table) hasSessions() bool {
	return slices.ContainsFunc(t.classes, func(c Class) bool { return c.Match.Kind() == SourceSession })
}

// addFlow adds the way of a flow, if a class has it.
func (s *steerer) addFlow(out SessionWays, f SessionFlow) {
	c := s.table.OfFlow(f)
	if c == nil {
		return
	}
	way := Way{Class: c.Name, Policy: s.ofColor(f.Policy, c.Color)}
	if way.Policy == "" && !c.Strict {
		way.Policy = f.Policy
	}
	out[f] = way
}

// OfFlow returns the class of a flow, or nil.
func (t *Table) OfFlow(f SessionFlow) *Class {
	for i := range t.classes {
		if t.classes[i].Match.hasFlow(f) {
			return &t.classes[i]
		}
	}
	return nil
}

// ofColor is the policy of a color that sessions' packets may take in the place of best; empty:
// no policy is.
func (s *steerer) ofColor(best string, color uint32) string {
	of, ok := s.byName[best]
	if !ok || !of.Endpoint.IsValid() {
		return ""
	}
	name := s.byEndpoint[of.Endpoint][color]
	if by := s.byName[name]; name == "" || LostSession(&by, &of) != "" {
		return ""
	}
	return name
}
