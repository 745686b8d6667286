package class

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Entry is a steering entry, with the row of its destination if that has classes.
type Entry struct {
	srpolicy.Steering
	Row *Row
}

// Steer gives steering entries the rows of their destinations. Where classes are for a part
// of a steered prefix, an entry for that part is added. A destination leads to the endpoint
// of the policy that its entry names, and so to the valid policies of other colors there, except
// those in which its packets are Lost. policies are all, by name.
func (t *Table) Steer(entries []srpolicy.Steering, policies map[string]srpolicy.Policy, valid func(policy string) bool, lost Ends) []Entry {
	out := make([]Entry, 0, len(entries))
	if t == nil || len(t.classes) == 0 {
		for _, e := range entries {
			out = append(out, Entry{Steering: e})
		}
		return out
	}
	s := t.steerer(policies, valid, lost)
	for _, e := range entries {
		out = append(out, Entry{e, s.row(e)})
	}
	return append(out, s.parts(entries)...)
}

// steerer finds the policies that classes can lead to.
func (t *Table) steerer(policies map[string]srpolicy.Policy, valid func(policy string) bool, lost Ends) *steerer {
	s := &steerer{table: t, lost: lost, byName: policies, byEndpoint: map[netip.Addr]map[uint32]string{}}
	for _, p := range policies {
		if !t.hasColor(p.Color) || p.L2() || !p.Endpoint.IsValid() || !valid(p.Name) {
			continue
		}
		if s.byEndpoint[p.Endpoint] == nil {
			s.byEndpoint[p.Endpoint] = map[uint32]string{}
		}
		s.byEndpoint[p.Endpoint][p.Color] = p.Name
	}
	return s
}

// Ends says why packets of the cluster's own network to a prefix are lost in a policy that ends at
// a SID; empty: they are not, or nobody knows. A prefix that is not valid is any.
type Ends func(sid netip.Addr, to netip.Prefix) string

// Lost says why packets that an entry steers into the policy best must not take another one to the
// same endpoint; empty: they may. At the SIDs where best ends they are taken. A tenant's are taken
// nowhere else: other SIDs are of other networks, which may have the same addresses.
func Lost(by, best *srpolicy.Policy, e srpolicy.Steering, lost Ends) string {
	for _, sid := range elsewhere(by, best) {
		if e.Tenant != 0 {
			return fmt.Sprintf("it ends at %s, and the tenant's network is at %v", sid, ends(best))
		}
		if why := lost(sid, e.Prefix); why != "" {
			return why
		}
	}
	return ""
}

// LostSession is Lost for packets of sessions that take the policy best: their SID knows the
// session, and no other does.
func LostSession(by, best *srpolicy.Policy) string {
	for _, sid := range elsewhere(by, best) {
		return fmt.Sprintf("it ends at %s, and the session's packets are taken at %v", sid, ends(best))
	}
	return ""
}

// elsewhere lists the SIDs at which by ends, and best does not.
func elsewhere(by, best *srpolicy.Policy) []netip.Addr {
	expected := ends(best)
	return slices.DeleteFunc(ends(by), func(sid netip.Addr) bool { return slices.Contains(expected, sid) })
}

// ends are the last segments of a policy's lists.
func ends(p *srpolicy.Policy) (out []netip.Addr) {
	for _, l := range p.Lists() {
		if n := len(l.Segments); n > 0 && !slices.Contains(out, l.Segments[n-1]) {
			out = append(out, l.Segments[n-1])
		}
	}
	return out
}

type steerer struct {
	table      *Table
	lost       Ends
	byName     map[string]srpolicy.Policy
	byEndpoint map[netip.Addr]map[uint32]string // policies by color
}

// row makes the row of an entry, or returns nil.
func (s *steerer) row(e srpolicy.Steering) *Row {
	best, ok := s.byName[e.Policy]
	if !ok || best.L2() {
		return nil
	}
	policies := map[uint32]string{}
	for color, name := range s.byEndpoint[best.Endpoint] {
		if by := s.byName[name]; Lost(&by, &best, e, s.lost) == "" {
			policies[color] = name
		}
	}
	if row, needed := s.table.Row(e.Prefix, e.Policy, policies); needed {
		return &row
	}
	return nil
}

// parts makes the entries for destinations of classes that lie in a steered prefix: the
// longest one that holds a destination says where its packets go.
func (s *steerer) parts(entries []srpolicy.Steering) (out []Entry) {
	taken, holder := map[string]bool{}, map[string]netip.Prefix{}
	for _, e := range entries {
		taken[e.Key()] = true
	}
	parts := map[string]srpolicy.Steering{}
	for _, e := range entries {
		if !e.Prefix.IsValid() {
			continue
		}
		for _, d := range s.table.destinations(e.Prefix) {
			part := e
			part.Prefix = d
			key := part.Key()
			if taken[key] || holder[key].IsValid() && holder[key].Bits() > e.Prefix.Bits() {
				continue
			}
			parts[key], holder[key] = part, e.Prefix
		}
	}
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		if row := s.row(parts[key]); row != nil {
			out = append(out, Entry{parts[key], row})
		}
	}
	return out
}
