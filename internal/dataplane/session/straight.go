package session

import (
	"encoding/binary"
	"math/bits"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// A head that leads to a run says in its word wordPDROut which packets need no filter
// (enum straight in bpf/def/tables.h): most of them are of one family and one QFI
// that only one rule takes. Packets believe that where flagStraight is, which a
// head has from its first moment or never: others may still read a TEID there.
//
// That rule may ask for the UE's IPv4 address as the source: in sessions of Open5GS the default
// rule does, the one for router solicitations beside it does not. The address is then where a
// head has its sources. It is written there once: a packet may read the mark before a change and
// the address after it, and then an address only sends it through filters.

// isMarked says whether the low half of a head's wordPDROut is an enum straight.
func isMarked(do uint64) bool {
	return actionOf(do) == actionFilters && flagsOf(do)&flagStraight != 0
}

// outOf is wordPDROut of a head that leads to a run.
func outOf(straight uint32) uint64 { return anyLength<<32 | uint64(straight) }

// takeSource removes the IPv4 source from a filter that asks for one source and nothing else, and
// returns it; of any other filter it returns 0.
func takeSource(f *abi.Filter) (source4 uint32) {
	if abi.FilterFlags(f.Flags) != abi.FilterFlagsFILTER_LOCAL4 || f.LocalLength != 128 {
		return 0
	}
	source4 = binary.NativeEndian.Uint32(f.Local.B[12:])
	f.Flags, f.LocalLength, f.Local = 0, 0, abi.In6{}
	return source4
}

// straightOf is the enum straight of a run, for IPv4 packets from a source if its head may ask
// for one; 0: every packet needs its filters, any source will do.
func straightOf(run []abi.Filter, asks bool) (straight, source4 uint32) {
	const families4 = abi.FilterFlagsFILTER_REMOTE4 | abi.FilterFlagsFILTER_LOCAL4
	const families6 = abi.FilterFlagsFILTER_REMOTE6 | abi.FilterFlagsFILTER_LOCAL6
	for i := range run {
		last := run[i] // the filter that takes all of its QFIs
		qfis := last.Qfis
		last.Qfis = 0
		if source4 = 0; asks {
			source4 = takeSource(&last)
		}
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
		if source4 == 0 && nonePossible(run[:i], families4, qfi) {
			families |= abi.StraightSTRAIGHT_IPV6
		}
		if families != 0 {
			return uint32(out|families) | last.Pdr, source4
		}
	}
	return 0, 0
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
	// An uplink's, unless all its packets are asked for their source, or will be.
	h.asks = h.teid != 0 && h.flags&(flagDownlink|flagSource4|flagSource6) == 0 && !h.turns
	straight, source4 := straightOf(p.runs.entries[run.from:run.to], h.asks)
	h.straight = straight
	if !h.asks {
		return
	}
	h.source4 = source4
	there := p.tables.PDR.LoadHalf(h.index, wordPDRStop, 1)
	if !h.had || there == 0 {
		return
	}
	h.source4 = there
	if source4 != 0 && source4 != there {
		h.straight = 0
	}
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
