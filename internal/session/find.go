package session

import (
	"cmp"
	"net/netip"
	"slices"
)

// Find returns the index of the rule with an ID in a list sorted by ID, or the
// index at which it belongs. idOf points to the ID of a rule.
func Find[R any, K cmp.Ordered](rules []R, id K, idOf func(*R) *K) (at int, found bool) {
	low, high := 0, len(rules)
	for low < high {
		if middle := (low + high) / 2; *idOf(&rules[middle]) < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(rules) && *idOf(&rules[low]) == id
}

// PDR returns the session's PDR with an ID, or nil.
func (s *Session) PDR(id uint16) *PDR {
	return ruleIn(s.PDRs, id, func(p *PDR) *uint16 { return &p.ID })
}

// FAR returns the session's FAR with an ID, or nil.
func (s *Session) FAR(id uint32) *FAR {
	return ruleIn(s.FARs, id, func(f *FAR) *uint32 { return &f.ID })
}

// QER returns the session's QER with an ID, or nil.
func (s *Session) QER(id uint32) *QER {
	return ruleIn(s.QERs, id, func(q *QER) *uint32 { return &q.ID })
}

// URR returns the session's URR with an ID, or nil.
func (s *Session) URR(id uint32) *URR {
	return ruleIn(s.URRs, id, func(u *URR) *uint32 { return &u.ID })
}

// BAR returns the session's BAR with an ID, or nil.
func (s *Session) BAR(id uint8) *BAR { return ruleIn(s.BARs, id, func(b *BAR) *uint8 { return &b.ID }) }

// TEIDs returns the local TEIDs that the session has, each once.
func (s *Session) TEIDs() []uint32 { return s.AppendTEIDs(nil) }

// AppendTEIDs appends to an empty list what TEIDs returns.
func (s *Session) AppendTEIDs(list []uint32) []uint32 {
	for i := range s.PDRs {
		if teid := s.PDRs[i].PDI.TEID; teid != 0 && !slices.Contains(list, teid) {
			list = append(list, teid)
		}
	}
	return list
}

// UEs returns the UE addresses that the session has, each once.
func (s *Session) UEs() []netip.Prefix { return s.AppendUEs(nil) }

// AppendUEs appends to an empty list what UEs returns.
func (s *Session) AppendUEs(list []netip.Prefix) []netip.Prefix {
	for i := range s.PDRs {
		for _, ue := range s.PDRs[i].PDI.UE {
			if !slices.Contains(list, ue) {
				list = append(list, ue)
			}
		}
	}
	return list
}

// NamesApplications says whether a rule of the session names an application.
func (s *Session) NamesApplications() bool {
	return slices.ContainsFunc(s.PDRs, func(p PDR) bool { return p.PDI.ApplicationID != "" })
}

func ruleIn[R any, K cmp.Ordered](rules []R, id K, idOf func(*R) *K) *R {
	if at, found := Find(rules, id, idOf); found {
		return &rules[at]
	}
	return nil
}
