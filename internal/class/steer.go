package class

import (
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
// of the policy that its entry names, and so to the valid policies of other colors there.
// policies are all, by name.
func (t *Table) Steer(entries []srpolicy.Steering, policies map[string]srpolicy.Policy, valid func(policy string) bool) []Entry {
	out := make([]Entry, 0, len(entries))
	if t == nil || len(t.classes) == 0 {
		for _, e := range entries {
			out = append(out, Entry{Steering: e})
		}
		return out
	}
	s := &steerer{table: t, byName: policies, byEndpoint: map[netip.Addr]map[uint32]string{}}
	for _, p := range policies {
		if p.L2() || p.Color == 0 || !p.Endpoint.IsValid() || !valid(p.Name) {
			continue
		}
		if s.byEndpoint[p.Endpoint] == nil {
			s.byEndpoint[p.Endpoint] = map[uint32]string{}
		}
		s.byEndpoint[p.Endpoint][p.Color] = p.Name
	}
	for _, e := range entries {
		out = append(out, Entry{e, s.row(e)})
	}
	return append(out, s.parts(entries)...)
}

type steerer struct {
	table      *Table
	byName     map[string]srpolicy.Policy
	byEndpoint map[netip.Addr]map[uint32]string // policies by color
}

// row makes the row of an entry, or returns nil.
func (s *steerer) row(e srpolicy.Steering) *Row {
	best, ok := s.byName[e.Policy]
	if !ok || best.L2() {
		return nil
	}
	var policies map[uint32]string
	if best.Endpoint.IsValid() {
		policies = s.byEndpoint[best.Endpoint]
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
