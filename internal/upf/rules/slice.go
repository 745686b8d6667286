package rules

import (
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// MatchSlice returns the slice of a session, and its index in list. Of the slices
// that agree with the session's S-NSSAI and network instance, it returns the most
// specific one. found is nil if no slice agrees.
func MatchSlice(list []slice.Slice, s *session.Session) (index int, found *slice.Slice) {
	best := -1
	for i := range list {
		l := &list[i]
		score := 0
		switch snssai, ok := l.SNSSAI.Value(); {
		case !ok: // any S-NSSAI
		case s.SNSSAI == (session.SNSSAI{}):
			if l.NetworkInstance == "" {
				continue
			}
		case snssai == s.SNSSAI:
			score += 2
		default:
			continue
		}
		if l.NetworkInstance != "" {
			if !hasInstance(s, l.NetworkInstance) {
				continue
			}
			score++
		}
		if score > best {
			best, index, found = score, i, l
		}
	}
	return index, found
}

// hasInstance says whether a session belongs to a network instance: its rules name
// it, or it is the session's data network.
func hasInstance(s *session.Session, name string) bool {
	return strings.EqualFold(s.DNN, name) ||
		slices.ContainsFunc(s.PDRs, func(p session.PDR) bool { return strings.EqualFold(p.PDI.NetworkInstance, name) }) ||
		slices.ContainsFunc(s.FARs, func(f session.FAR) bool {
			return f.Forwarding != nil && strings.EqualFold(f.Forwarding.NetworkInstance, name)
		})
}
