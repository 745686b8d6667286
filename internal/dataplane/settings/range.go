package settings

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Ranges are the lists of settings that lead to ranges of tables: of local_sid,
// of tunnel and, for sessions, of pdr.
type Ranges struct {
	Locator [8]abi.Locator
	Pools   Pools
	NAT     nats
}

// RangesOf are those of an entry.
func RangesOf(e *abi.Settings) Ranges { return Ranges{e.Locator, PoolsOf(e), e.Nat} }

// PutIn makes them those of an entry.
func (r Ranges) PutIn(e *abi.Settings) {
	e.Locator, e.Nat = r.Locator, r.NAT
	for i := range e.Pool4 {
		e.Pool4[i] = abi.Pool4{Prefix: off4, Mask: off4}
		if p := r.Pools[i]; p.Mask != 0 {
			e.Pool4[i] = abi.Pool4{Prefix: uint32(p.Key), Mask: uint32(p.Mask), Base: p.Base, Sessions: p.Sessions}
		}
	}
	for i := range e.Pool6 {
		e.Pool6[i] = abi.Pool6{Hi: abi.Off}
		if p := r.Pools[len(e.Pool4)+i]; p.Mask != 0 {
			e.Pool6[i] = abi.Pool6{Hi: p.Key, Mask: p.Mask, Base: p.Base, Sessions: p.Sessions}
		}
	}
}

// Without are the locators and pools that are not in keep.
func (r Ranges) Without(keep Ranges) (locators []abi.Locator, pools []Pool) {
	for i, l := range r.Locator {
		if l.Enabled() && keep.Locator[i] != l {
			locators = append(locators, l)
		}
	}
	for i, p := range r.Pools {
		if p.Mask != 0 && keep.Pools[i] != p {
			pools = append(pools, p)
		}
	}
	return locators, pools
}

// Ranges are the wanted ranges that are there now, each where it is; if add is
// set, also those that are new, as far as they fit.
func (b *Book) Ranges(now *abi.Settings, s *Settings, add bool) Ranges {
	return Ranges{b.locatorsIn(now, s, add), b.PoolsIn(PoolsOf(now), s, add), b.natsIn(now.Nat, s, add)}
}

// SIDByLocator is the index that a locator leads to for a SID of exactly
// LOC:FUNC.
func (b *Book) SIDByLocator(p netip.Prefix) (uint32, bool) {
	return b.byLocator(p, func(bits, length int) bool { return bits == length })
}

// SIDAround is the index that a locator leads to for a SID longer than its
// LOC:FUNC.
func (b *Book) SIDAround(p netip.Prefix) (uint32, bool) {
	return b.byLocator(p, func(bits, length int) bool { return bits > length })
}

func (b *Book) byLocator(p netip.Prefix, fits func(bits, length int) bool) (uint32, bool) {
	s := b.Get()
	hi, _ := abi.Halves(p.Addr())
	for _, l := range s.Locator[:s.Locators] {
		if l.Enabled() && hi&l.Mask == l.Hi && fits(p.Bits(), 64-int(l.Shift)) {
			return l.Base + uint32(hi>>l.Shift)&l.FunctionMask, true
		}
	}
	return 0, false
}

// locatorEntry is a locator without its range; ok is false if it is not one
// that can be found by index.
func (b *Book) locatorEntry(l Locator) (e abi.Locator, ok bool) {
	function := int(cmp.Or(l.FunctionBits, 16))
	shift := 64 - l.Prefix.Bits() - function
	if shift < 0 || l.Prefix.Bits() == 0 || function > 31 || uint32(1)<<function > b.limits.SIDs {
		return e, false
	}
	hi, _ := abi.Halves(l.Prefix.Masked().Addr())
	return abi.Locator{
		Hi: hi, Mask: abi.Ones(l.Prefix.Bits()), FunctionMask: uint32(1)<<function - 1, Shift: uint8(shift),
	}, true
}

// locatorsIn are the wanted locators that are there now, each where it is; if
// add is set, also those that are new, as far as they fit.
func (b *Book) locatorsIn(now *abi.Settings, s *Settings, add bool) [8]abi.Locator {
	out := [len(now.Locator)]abi.Locator{}
	nothing := abi.Locator{Hi: abi.Off}
	var want []abi.Locator
	for _, l := range s.Locators {
		if e, ok := b.locatorEntry(l); ok {
			want = append(want, e)
		}
	}
	for i, e := range now.Locator {
		base := e.Base
		e.Base = 0
		out[i] = nothing
		if n := slices.Index(want, e); e.Enabled() && n >= 0 {
			want = slices.Delete(want, n, n+1)
			e.Base = base
			out[i] = e
		}
	}
	if !add {
		return out
	}
	var ranges [][2]uint32
	for _, e := range out {
		if e.Enabled() {
			ranges = append(ranges, [2]uint32{e.Base, e.Size()})
		}
	}
	for i := range out {
		for !out[i].Enabled() && len(want) > 0 {
			e := want[0]
			want = want[1:]
			if slices.ContainsFunc(out[:], e.Overlaps) {
				continue // one locator leads to each SID
			}
			if base, ok := fit(ranges, e.Size(), 1, b.limits.SIDs+1); ok {
				e.Base = base
				ranges = append(ranges, [2]uint32{base, e.Size()})
				out[i] = e
			}
		}
	}
	return out
}

// Refit gives ranges of {base, size}, of which the first one might begin at was, new bases in
// [first, end): as far behind the beginning as they were if all fit there, else one after the
// other. A range that does not fit gets 0.
func Refit(ranges [][2]uint32, was, first, end uint32) []uint32 {
	out := make([]uint32, len(ranges))
	fits := true
	for i, r := range ranges {
		out[i] = r[0] - was + first
		fits = fits && out[i]+r[1] <= end
	}
	if fits {
		return out
	}
	var placed [][2]uint32
	for i, r := range ranges {
		out[i] = 0
		if base, ok := fit(placed, r[1], first, end); ok {
			out[i] = base
			placed = append(placed, [2]uint32{base, r[1]})
		}
	}
	return out
}

// fit finds room for size entries in [first, end) beside ranges of {base,
// size}.
func fit(ranges [][2]uint32, size, first, end uint32) (uint32, bool) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]uint32) int { return int(a[0]) - int(b[0]) })
	at := first
	for _, r := range ranges {
		if r[0] >= at && r[0]-at >= size {
			return at, true
		}
		at = max(at, r[0]+r[1])
	}
	return at, at <= end && end-at >= size
}
