package rules

import (
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// Match is the slice of a session.
type Match struct {
	Index int          // in the list
	Slice *slice.Slice // nil: none
	// Reversed: the slice has the session's S-NSSAI only with the octets of the SD in
	// reverse order.
	Reversed bool
	// Other is the slice that has it with those octets in reverse order, where Slice has it as
	// it was received: an SMF that reverses them means that one.
	Other *slice.Slice
}

// MatchSlice returns the slice of a session: of the slices that agree with its S-NSSAI
// and network instance, the most specific one. Open5GS sends the octets of the SD in
// reverse order, so a slice may have that S-NSSAI where no slice has the one received.
func MatchSlice(list []slice.Slice, s *session.Session) Match {
	m, r := mostSpecific(list, s, s.SNSSAI), mostSpecific(list, s, reversed(s.SNSSAI))
	switch {
	case !r.hasSD() || r.Slice == m.Slice:
	case m.hasSD():
		m.Other = r.Slice
	default:
		r.Reversed = true
		return r
	}
	return m
}

// hasSD says whether the slice is of one SD.
func (m Match) hasSD() bool { return m.Slice != nil && m.Slice.SNSSAI.SD != "" }

func reversed(s session.SNSSAI) session.SNSSAI {
	s.SD = bits.ReverseBytes32(s.SD) >> 8
	return s
}

func mostSpecific(list []slice.Slice, s *session.Session, has session.SNSSAI) (m Match) {
	best := -1
	for i := range list {
		l := &list[i]
		score := 0
		switch snssai, ok := l.SNSSAI.Value(); {
		case !ok: // any S-NSSAI
		case has == (session.SNSSAI{}):
			if l.NetworkInstance == "" {
				continue
			}
		case snssai == has:
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
			best, m = score, Match{Index: i, Slice: l}
		}
	}
	return m
}

// Note says what an operator must know of a match: why no slice was found, or that the SD
// was received otherwise than he wrote it; otherwise "".
func (m Match) Note(list []slice.Slice, s *session.Session) string {
	switch {
	case m.Reversed:
		return fmt.Sprintf("S-NSSAI %s was received: its SD matches with its octets reversed", s.SNSSAI)
	case m.Other != nil:
		return fmt.Sprintf("S-NSSAI %s was received: slice %s has it with the octets of its SD reversed", s.SNSSAI, m.Other.Name)
	case m.Slice != nil:
		return ""
	case len(list) == 0:
		return "no slices are configured"
	}
	return fmt.Sprintf("no slice takes S-NSSAI %s with network instance %s", s.SNSSAI, cmp.Or(strings.Join(Instances(s), " or "), "none"))
}

// Instances lists the network instances of a session, in lower case.
func Instances(s *session.Session) (list []string) {
	for name := range instances(s) {
		if name = strings.ToLower(name); !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// instances are the network instances that a session's rules name, and its data network.
func instances(s *session.Session) iter.Seq[string] {
	return func(yield func(string) bool) {
		each := func(name string) bool { return name == "" || yield(name) }
		for i := range s.PDRs {
			if !each(s.PDRs[i].PDI.NetworkInstance) {
				return
			}
		}
		for i := range s.FARs {
			if f := s.FARs[i].Forwarding; f != nil && !each(f.NetworkInstance) {
				return
			}
		}
		each(s.DNN)
	}
}

// hasInstance says whether a session belongs to a network instance.
func hasInstance(s *session.Session, name string) bool {
	for other := range instances(s) {
		if strings.EqualFold(other, name) {
			return true
		}
	}
	return false
}
