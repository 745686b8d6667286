package session

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// A head that leads to a run says in its word wordPDROut which packets need no filter
// (enum straight in bpf/def/tables.h): most of them are of one family and one QFI
// that only one rule takes, or of another protocol or network than dedicated QoS flows are for
// (enum apart). Packets believe that where flagStraight is, which a
// head has from its first moment or never: others may still read a TEID there.
//
// That rule may ask for the UE's addresses as the source: in sessions of Open5GS the default
// rule does, the one for router solicitations beside it does not. The addresses are then where a
// head has its sources. They are written there once: a packet may read the mark before a change and
// an address after it, and then an address only sends it through filters.

// isMarked says whether the low half of a head's wordPDROut is an enum straight.
func isMarked(do uint64) bool {
	return actionOf(do) == actionFilters && flagsOf(do)&flagStraight != 0
}

// outOf is wordPDROut of a head that leads to a run: an enum straight, and an enum apart or anyLength.
func outOf(straight, apart uint32) uint64 {
	return uint64(max(apart, anyLength))<<32 | uint64(straight)
}

// toFilters sends all packets through filters.
var toFilters = outOf(0, 0)

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

// families of the addresses that a filter asks for.
const (
	families4 = abi.FilterFlagsFILTER_REMOTE4 | abi.FilterFlagsFILTER_LOCAL4
	families6 = abi.FilterFlagsFILTER_REMOTE6 | abi.FilterFlagsFILTER_LOCAL6
)

// takeSource6 is takeSource for the first half of an IPv6 source, a /64.
func takeSource6(f *abi.Filter) (source6 uint64) {
	if abi.FilterFlags(f.Flags) != abi.FilterFlagsFILTER_LOCAL6 || f.LocalLength != 64 {
		return 0
	}
	source6 = binary.NativeEndian.Uint64(f.Local.B[:8])
	f.Flags, f.LocalLength, f.Local = 0, 0, abi.In6{}
	return source6
}

// straightOf is outOf of a run, for packets from a source if its head may ask for one. It is of
// the first rule that needs no filter for IPv4 packets, or else for those that are apart, or
// else for IPv6 ones, or those that are apart. If it is of all IPv4 ones, it is of IPv6 ones that are apart, too,
// where these have the same rule. `beside`: as straightIndex has it.
func straightOf(run []abi.Filter, asks bool, beside uint32) (out uint64, source4 uint32, source6 uint64) {
	out, best := toFilters, 0
	for i := range run {
		straight, apart, source := straightAt(run, i, asks, beside)
		rank := 0
		switch {
		case straight&uint32(abi.StraightSTRAIGHT_IPV4) != 0:
			rank = 3
		case apart != 0:
			rank = 2
		case straight != 0:
			rank = 1
		}
		if rank > best {
			out, source4, best = outOf(straight, apart), source, rank
		}
	}
	if straight, apart, source := apart6Of(run, asks, beside); straight != 0 &&
		(best == 0 || uint32(out) == straight|uint32(abi.StraightSTRAIGHT_IPV4)) {
		out, source6 = outOf(uint32(out)|straight, apart), source
	}
	return out, source4, source6
}

// apart6Of is the first rule that takes all IPv6 packets from a /64 which are of another protocol than all
// filters before it ask for.
func apart6Of(run []abi.Filter, asks bool, beside uint32) (straight, apart uint32, source6 uint64) {
	if !asks {
		return 0, 0, 0
	}
	for i := range run {
		last := run[i]
		out, qfi := qfiOf(last.Qfis)
		last.Qfis = 0
		source6 = takeSource6(&last)
		rule, protocol := straightIndex(last.Pdr, beside), protocolOf(run[:i], qfi)
		if source6 != 0 && takesAll(&last) && rule != 0 && protocol != 0 {
			return out | rule, uint32(abi.ApartAPART6) | uint32(protocol), source6
		}
	}
	return 0, 0, 0
}

// protocolOf is the one that all filters ask for which may take IPv6 packets of a QFI; 0: they ask for
// several, or for none.
func protocolOf(filters []abi.Filter, qfi uint64) (protocol uint8) {
	for i := range filters {
		f := &filters[i]
		switch {
		case !possible(f, families4, qfi):
		case abi.FilterFlags(f.Flags)&abi.FilterFlagsFILTER_PROTOCOL == 0, protocol != 0 && protocol != f.Protocol:
			return 0
		default:
			protocol = f.Protocol
		}
	}
	return protocol
}

// qfiOf is the part of an enum straight about the first of a filter's QFIs, and that one's bit; 0: any.
func qfiOf(qfis uint64) (straight uint32, qfi uint64) {
	if qfis == 0 {
		return uint32(abi.StraightSTRAIGHT_ANY_QFI), 0
	}
	first := bits.TrailingZeros64(qfis)
	return uint32(first) << uint32(abi.StraightSTRAIGHT_QFI_SHIFT), 1 << first
}

// straightAt says for which packets the filter at i of a run is the only one, if it takes all of its
// QFIs.
func straightAt(run []abi.Filter, i int, asks bool, beside uint32) (straight, apart, source4 uint32) {
	last := run[i]
	out, qfi := qfiOf(last.Qfis)
	last.Qfis = 0
	if asks {
		source4 = takeSource(&last)
	}
	rule := straightIndex(last.Pdr, beside)
	if rule == 0 || !takesAll(&last) {
		return 0, 0, 0
	}
	families := abi.Straight(0)
	if nonePossible(run[:i], families6, qfi) {
		families |= abi.StraightSTRAIGHT_IPV4
	} else {
		apart = apartFrom(run[:i], qfi)
	}
	if source4 == 0 && nonePossible(run[:i], families4, qfi) {
		families |= abi.StraightSTRAIGHT_IPV6
	}
	if families == 0 && apart == 0 {
		return 0, 0, 0
	}
	return out | uint32(families) | rule, apart, source4
}

// straightIndex is how an enum straight names a rule; 0: it has no bits for it. `beside` is the rule that
// has the entry beside that of the head, or 0.
func straightIndex(rule, beside uint32) uint32 {
	switch {
	case rule != 0 && rule == beside:
		return uint32(abi.StraightSTRAIGHT_BESIDE)
	case rule >= uint32(abi.StraightSTRAIGHT_BESIDE):
		return 0
	}
	return rule
}

// apartFrom is the enum apart of filters: what all of them that may take IPv4 packets of that QFI (a
// bit; 0: of any) ask for. 0: nothing.
func apartFrom(filters []abi.Filter, qfi uint64) uint32 {
	const most = int(abi.ApartAPART_LENGTH)
	protocol, length, prefix, first := uint8(0), most, uint32(0), true
	for i := range filters {
		f := &filters[i]
		if !possible(f, families6, qfi) {
			continue
		}
		flags := abi.FilterFlags(f.Flags)
		p, n, remote := uint8(0), 0, binary.BigEndian.Uint32(f.Remote.B[12:])>>(32-most)
		if flags&abi.FilterFlagsFILTER_PROTOCOL != 0 {
			p = f.Protocol
		}
		if flags&abi.FilterFlagsFILTER_REMOTE4 != 0 {
			n = int(f.RemoteLength) - 96
		}
		if first {
			protocol, prefix, first = p, remote, false
		}
		if p != protocol {
			protocol = 0
		}
		length = min(length, n, most-bits.Len32(prefix^remote))
	}
	if protocol == 0 && length == 0 {
		return 0
	}
	prefix &^= 1<<(most-length) - 1
	return uint32(abi.ApartAPART) | uint32(protocol)<<abi.ApartAPART_PROTOCOL_SHIFT | uint32(length)<<abi.ApartAPART_LENGTH_SHIFT | prefix
}

// nonePossible says whether none of the filters is possible.
func nonePossible(filters []abi.Filter, other abi.FilterFlags, qfi uint64) bool {
	return !slices.ContainsFunc(filters, func(f abi.Filter) bool { return possible(&f, other, qfi) })
}

// possible says whether a filter can take a packet of the family that is not `other`, and of that
// QFI (a bit; 0: of any).
func possible(f *abi.Filter, other abi.FilterFlags, qfi uint64) bool {
	return abi.FilterFlags(f.Flags)&other == 0 && (qfi == 0 || f.Qfis == 0 || f.Qfis&qfi != 0)
}

// findStraight notes what a head says of its run, if it may.
func (p *Plan) findStraight(h *head, run filterRun) {
	h.out = toFilters
	if h.qfi&Frames != 0 || h.had && !isMarked(p.tables.loadDo(h.index)) {
		return
	}
	h.flags |= flagStraight
	// An uplink's, unless all its packets are asked for their source, or will be.
	h.asks = h.teid != 0 && h.flags&(flagDownlink|flagSource4|flagSource6) == 0 && !h.turns
	beside := uint32(0)
	if h.by == byIndex && h.teid != 0 {
		beside = p.owners.pdrFree.end + h.index
	}
	out, source4, source6 := straightOf(p.runs.entries[run.from:run.to], h.asks, beside)
	h.out = out
	if !h.asks {
		return
	}
	h.source4, h.source6 = source4, source6
	if !h.had {
		return
	}
	there4, there6 := p.tables.PDR.LoadHalf(h.index, wordPDRStop, 1), p.tables.PDR.Load(h.index, wordPDRSource6)
	h.source4, h.source6 = cmp.Or(there4, source4), cmp.Or(there6, source6)
	if source4 != 0 && source4 != h.source4 || source6 != 0 && source6 != h.source6 {
		h.out = toFilters
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
		now := p.tables.PDR.Load(h.index, wordPDROut)
		switch {
		case now == h.out && !h.turns:
		case last && h.out != toFilters:
			p.add(Write{Op: SetOut, Index: h.index, Value: h.out})
		case !last && uint32(now) != 0:
			p.add(Write{Op: SetOut, Index: h.index, Value: toFilters})
		}
	}
}
