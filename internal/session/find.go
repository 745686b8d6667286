package session

import "cmp"

// Find returns the index of the rule with an ID in a list sorted by ID, or the
// index at which it belongs. id is called with rules in their place: they are
// large.
func Find[R any, K cmp.Ordered](rules []R, id K, idOf func(*R) K) (at int, found bool) {
	low, high := 0, len(rules)
	for low < high {
		if middle := (low + high) / 2; idOf(&rules[middle]) < id {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < len(rules) && idOf(&rules[low]) == id
}

// PDR returns the PDR with an ID; nil: there is none.
func (s *Session) PDR(id uint16) *PDR {
	if at, ok := Find(s.PDRs, id, func(r *PDR) uint16 { return r.ID }); ok {
		return &s.PDRs[at]
	}
	return nil
}

// QER returns the QER with an ID; nil: there is none.
func (s *Session) QER(id uint32) *QER {
	if at, ok := Find(s.QERs, id, func(r *QER) uint32 { return r.ID }); ok {
		return &s.QERs[at]
	}
	return nil
}
