package overlay

import (
	"net/netip"
	"slices"
)

// space knows who has which prefixes. None overlap.
type space struct {
	lengths []int                   // that prefixes have
	held    map[netip.Prefix]string // owner
	around  map[netip.Prefix]string // prefixes around a held one: the owner of that
}

// newSpace returns a space that can hold the prefixes.
func newSpace(prefixes []netip.Prefix) *space {
	s := &space{held: map[netip.Prefix]string{}, around: map[netip.Prefix]string{}}
	for _, p := range prefixes {
		if p.IsValid() && !slices.Contains(s.lengths, p.Bits()) {
			s.lengths = append(s.lengths, p.Bits())
		}
	}
	slices.Sort(s.lengths)
	return s
}

// inside returns the owner of the prefix that contains p, or "".
func (s *space) inside(p netip.Prefix) string {
	for _, bits := range s.lengths {
		if bits > p.Bits() {
			break
		}
		if owner := s.held[netip.PrefixFrom(p.Addr(), bits).Masked()]; owner != "" {
			return owner
		}
	}
	return ""
}

// owner returns the owner of a part of p, or "".
func (s *space) owner(p netip.Prefix) string {
	if owner := s.inside(p); owner != "" {
		return owner
	}
	return s.around[p.Masked()]
}

// take gives p to its owner.
func (s *space) take(p netip.Prefix, owner string) {
	p = p.Masked()
	s.held[p] = owner
	for _, bits := range s.lengths {
		if bits >= p.Bits() {
			break
		}
		s.around[netip.PrefixFrom(p.Addr(), bits).Masked()] = owner
	}
}
