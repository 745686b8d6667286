package pathmtu

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/slowpath"
)

// argsBits is the length of Args.Mob.Session (RFC 9433 section 6.1).
const argsBits = 40

// How well a path fits a packet that an error quotes.
const (
	other    = iota // the packet took another path
	possible        // the packet no longer shows it: a node removed its SRH, or shifted its SID
	quoted
)

// fit says how well a path fits a quoted packet.
func fit(e *slowpath.TooBig, p *dataplane.Path) int {
	switch {
	case e.GTPU != p.GTPU || !p.Source.Contains(e.Source):
		return other
	case p.To.IsValid():
		if e.Segments == nil && p.To.Contains(e.Destination) {
			return quoted
		}
		return other
	case p.GTPU:
		if e.Destination == p.Ends[0] {
			return quoted
		}
		return other
	case e.Segments != nil:
		return fitSRH(e, p)
	}
	last := length(p) - 1
	switch {
	case last == 0 && isEnd(p, 0, e.Destination):
		return quoted
	case isEnd(p, last, e.Destination), last < len(p.Ends) && isShifted(e.Destination, p.Ends[last]):
		return possible
	}
	return other
}

// endsOf are the ends of a path that fits a quoted packet.
func endsOf(e *slowpath.TooBig, p *dataplane.Path) []netip.Addr {
	switch {
	case !p.To.IsValid():
		return p.Ends
	case p.ArgsOffset != 0:
		return []netip.Addr{withoutArgs(e.Destination, p.ArgsOffset)}
	}
	return []netip.Addr{e.Destination}
}

// fitSRH compares all segments. A reduced SRH does not have the first one.
func fitSRH(e *slowpath.TooBig, p *dataplane.Path) int {
	without := length(p) - len(e.Segments)
	active := length(p) - 1 - e.Left
	if without < 0 || without > 1 || active < 0 {
		return other
	}
	for i, s := range e.Segments {
		if !isEnd(p, without+i, s) {
			return other
		}
	}
	if isEnd(p, active, e.Destination) || active < len(p.Ends) && isShifted(e.Destination, p.Ends[active]) {
		return quoted
	}
	return other
}

// length is the number of segments.
func length(p *dataplane.Path) int {
	if p.Then.IsValid() {
		return len(p.Ends) + 1
	}
	return len(p.Ends)
}

// isEnd says whether a is segment i, the last of the list with any arguments.
func isEnd(p *dataplane.Path, i int, a netip.Addr) bool {
	switch {
	case i == len(p.Ends):
		return p.Then.Contains(a)
	case i == len(p.Ends)-1 && p.ArgsOffset != 0 && a.Is6():
		return withoutArgs(a, p.ArgsOffset) == withoutArgs(p.Ends[i], p.ArgsOffset)
	}
	return a == p.Ends[i]
}

// withoutArgs clears the argument that begins at a bit.
func withoutArgs(a netip.Addr, offset uint8) netip.Addr {
	b := a.As16()
	for i := int(offset); i < int(offset)+argsBits && i < 128; i++ {
		b[i/8] &^= 0x80 >> (i % 8)
	}
	return netip.AddrFrom16(b)
}

// isShifted says whether a is what NEXT-C-SID makes of a SID (RFC 9800 section 4.1): behind the
// block, compressed SIDs that are done are gone, and zeros follow those that are not.
func isShifted(a, sid netip.Addr) bool {
	if !a.Is6() || !sid.Is6() {
		return false
	}
	is, was := a.As16(), sid.As16()
	for block := 2; block < 15 && is[block-1] == was[block-1]; block++ {
		for by := 1; block+by < 16; by++ {
			if isZero(is[block:]) || isZero(was[block:block+by]) {
				continue
			}
			if string(is[:block]) == string(was[:block]) && string(is[block:16-by]) == string(was[block+by:]) && isZero(is[16-by:]) {
				return true
			}
		}
	}
	return false
}

func isZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
