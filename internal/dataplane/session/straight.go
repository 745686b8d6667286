package session

import (
	"math/bits"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// A head that leads to a run says in its word wordPDROut which packets need no filter
// (enum straight in bpf/def/tables.h): most of them are of one family and one QFI
// that only one rule takes. Packets believe that where flagStraight is, which a
// head has from its first moment or never: others may still read a TEID there.

// isMarked says whether the low half of a head's wordPDROut is an enum straight.
func isMarked(do uint64) bool {
	return actionOf(do) == actionFilters && flagsOf(do)&flagStraight != 0
}

// outOf is wordPDROut of a head that leads to a run.
func outOf(straight uint32) uint64 { return anyLength<<32 | uint64(straight) }

// straightOf is the enum straight of a run; 0: every packet needs its filters.
func straightOf(run []abi.Filter) uint32 {
	const families4 = abi.FilterFlagsFILTER_REMOTE4 | abi.FilterFlagsFILTER_LOCAL4
	const families6 = abi.FilterFlagsFILTER_REMOTE6 | abi.FilterFlagsFILTER_LOCAL6
	for i := range run {
		last := run[i] // the filter that takes all of its QFIs
		qfis := last.Qfis
		last.Qfis = 0
		if last.Pdr == 0 || last.Pdr > uint32(abi.StraightSTRAIGHT_INDEX) || !takesAll(&last) {
			continue
		}
		out, qfi := abi.StraightSTRAIGHT_ANY_QFI, uint64(0)
		if qfis != 0 {
			first := bits.TrailingZeros64(qfis)
			out, qfi = abi.Straight(first)<<abi.StraightSTRAIGHT_QFI_SHIFT, 1<<first
		}
		families := abi.Straight(0)
		if nonePossible(run[:i], families6, qfi) {
			families |= abi.StraightSTRAIGHT_IPV4
		}
		if nonePossible(run[:i], families4, qfi) {
			families |= abi.StraightSTRAIGHT_IPV6
		}
		if families != 0 {
			return uint32(out|families) | last.Pdr
		}
	}
	return 0
}

// nonePossible says whether no filter can take a packet of the family that is not
// `other`, and of that QFI (a bit; 0: of any).
func nonePossible(filters []abi.Filter, other abi.FilterFlags, qfi uint64) bool {
	for i := range filters {
		f := &filters[i]
		if abi.FilterFlags(f.Flags)&other == 0 && (qfi == 0 || f.Qfis == 0 || f.Qfis&qfi != 0) {
			return false
		}
	}
	return true
}

// findStraight notes what a head says of its run, if it may.
func (p *Plan) findStraight(h *head, run filterRun) {
	if h.qfi&Frames != 0 || h.had && !isMarked(p.tables.loadDo(h.index)) {
		return
	}
	h.flags |= flagStraight
	h.straight = straightOf(p.runs.entries[run.from:run.to])
}

// appendStraight writes the words of marked heads. Before anything changes it clears
// those that will be different, so that all packets pass filters; it fills them in last.
func (p *Plan) appendStraight(last bool) {
	for i := range p.heads {
		h := &p.heads[i]
		if !h.had || !isMarked(p.tables.loadDo(h.index)) {
			continue
		}
		now := uint32(p.tables.PDR.Load(h.index, wordPDROut))
		switch {
		case now == h.straight && !h.turns:
		case last && h.straight != 0:
			p.add(Write{Op: SetOut, Index: h.index, Value: outOf(h.straight)})
		case !last && now != 0:
			p.add(Write{Op: SetOut, Index: h.index, Value: outOf(0)})
		}
	}
}
