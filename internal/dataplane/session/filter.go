package session

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// A run of filters (bpf/filter.h) ends with one that takes everything: the last
// rule's, or one that leads to no rule. So its length is not needed to go
// through it, and packets may take any word of at least anyLength for that.
const anyLength = maxRun

// firstFilter is the first entry of `filter` that is used: 0 is none.
const firstFilter = 1

// linkLocal is what a UE with an IPv6 prefix may send from as well.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// anyFilter takes every packet.
var anyFilter = Filter{AnyProtocol: true, RemotePorts: anyPort, LocalPorts: anyPort}

var anyFilters = []Filter{anyFilter}

var anyPort = [2]uint16{0, 65535}

// filterEntry is f for a rule of that ID, whose QFIs it has, for packets whose
// UE is in local as well (not valid: any). ok is false where no packet can be.
func filterEntry(f *Filter, local netip.Prefix, rule *Rule) (e abi.Filter, ok bool) {
	if local, ok = both(f.Local, local); !ok {
		return e, false
	}
	var flags abi.FilterFlags
	if f.Remote.IsValid() {
		e.Remote, e.RemoteLength = abi.In6Of(f.Remote.Masked().Addr()), abi.MappedBits(f.Remote)
		flags |= family(f.Remote, abi.FilterFlagsFILTER_REMOTE4, abi.FilterFlagsFILTER_REMOTE6)
	}
	if local.IsValid() {
		e.Local, e.LocalLength = abi.In6Of(local.Masked().Addr()), abi.MappedBits(local)
		flags |= family(local, abi.FilterFlagsFILTER_LOCAL4, abi.FilterFlagsFILTER_LOCAL6)
	}
	if !f.AnyProtocol {
		e.Protocol = f.Protocol
		flags |= abi.FilterFlagsFILTER_PROTOCOL
	}
	if f.RemotePorts != anyPort || f.LocalPorts != anyPort {
		e.RemotePorts, e.LocalPorts = f.RemotePorts, f.LocalPorts
		flags |= abi.FilterFlagsFILTER_PORTS
	}
	if f.HasFlowLabel {
		e.FlowLabel = f.FlowLabel & 0xfffff
		flags |= abi.FilterFlagsFILTER_FLOW_LABEL
	}
	if f.HasSPI { // a packet has either ports or an SPI
		e.RemotePorts = [2]uint16{uint16(f.SPI >> 16), uint16(f.SPI)}
		flags |= abi.FilterFlagsFILTER_SPI
	}
	e.Tos, e.TosMask = f.ToS&f.ToSMask, f.ToSMask
	e.Flags, e.Qfis = uint8(flags), rule.QFIs
	if f.Frame != nil {
		e.FlowLabel |= filterFrame
	}
	binary.NativeEndian.PutUint16(e.Pad[:], rule.ID)
	return e, true
}

func family(p netip.Prefix, four, six abi.FilterFlags) abi.FilterFlags {
	if p.Addr().Is4() {
		return four
	}
	return six
}

// both is the prefix of what is in a and in b; ok is false if there is nothing.
func both(a, b netip.Prefix) (p netip.Prefix, ok bool) {
	switch {
	case !a.IsValid():
		return b, true
	case !b.IsValid():
		return a, true
	case !a.Overlaps(b):
		return p, false
	case a.Bits() > b.Bits():
		return a, true
	}
	return b, true
}

// takesAll says whether every packet passes.
func takesAll(f *abi.Filter) bool {
	return f.Flags == 0 && f.Qfis == 0 && f.TosMask == 0 && f.FlowLabel&filterFrame == 0
}

// filters are runs of filters, with the part of each that is about frames.
type filters struct {
	entries []abi.Filter
	frames  []abi.FrameFilter
}

// cut drops the entries from n on.
func (f *filters) cut(n int) { f.entries, f.frames = f.entries[:n], f.frames[:n] }

// appendRun appends the filters of a head's members; local: with their sources.
// A run ends with a filter that takes everything.
func (p *Plan) appendRun(h *head, local bool) (filterRun, error) {
	f := &p.runs
	from := len(f.entries)
	for _, n := range p.membersOf(h) {
		if appendFilters(f, p.rules[n], local, h.asksQFI(), from+maxRun) {
			break // no packet gets to the rest
		}
	}
	n := len(f.entries) - from
	if n > maxRun {
		return filterRun{}, fmt.Errorf("%s: %d filters: %w", h.key, n, &table.FullError{Table: "filters of a session", Max: maxRun})
	}
	if n == 0 || n < maxRun && !takesAll(&f.entries[len(f.entries)-1]) {
		f.entries, f.frames = append(f.entries, abi.Filter{}), append(f.frames, abi.FrameFilter{})
	}
	return filterRun{from: from, to: len(f.entries)}, nil
}

// appendFilters appends those of a rule, to a length of one more than most. It
// says whether they take everything.
func appendFilters(f *filters, r plannedRule, local, qfis bool, most int) bool {
	if !qfis {
		any := *r.Rule
		any.QFIs, r.Rule = 0, &any
	}
	locals := []netip.Prefix{{}}
	if local && len(r.Sources) > 0 {
		locals = r.Sources
		if slices.ContainsFunc(locals, func(s netip.Prefix) bool { return s.Addr().Is6() }) {
			locals = append(slices.Clone(locals), linkLocal)
		}
	}
	list := r.Filters
	if len(list) == 0 {
		list = anyFilters
	}
	for i := range list {
		for _, local := range locals {
			e, ok := filterEntry(&list[i], local, r.Rule)
			if !ok {
				continue
			}
			e.Pdr = r.at
			f.entries, f.frames = append(f.entries, e), append(f.frames, frameEntry(list[i].Frame))
			if takesAll(&e) {
				return true
			}
			if len(f.entries) > most {
				return false
			}
		}
	}
	return false
}

// hasRun says whether a run of filters is at an entry.
func (t *tables) hasRun(at uint32, run []abi.Filter, frames []abi.FrameFilter) bool {
	if int(at)+len(run) > int(t.Filter.Len) {
		return false
	}
	for i, f := range run {
		index := at + uint32(i)
		if t.Filter.Get(index) != f || f.FlowLabel&filterFrame != 0 && t.FrameFilter.Get(index) != frames[i] {
			return false
		}
	}
	return true
}

// filterFrame is FILTER_FRAME (bpf/def/tables.h).
const filterFrame = 1 << 31

// frameEntry is the part of a filter that is about frames.
func frameEntry(f *FrameFilter) (e abi.FrameFilter) {
	if f == nil {
		return e
	}
	var flags abi.FrameFilterFlags
	set := func(is bool, flag abi.FrameFilterFlags) {
		if is {
			flags |= flag
		}
	}
	none := [6]byte{}
	e.Source, e.Destination, e.Type = f.Source, f.Destination, f.EtherType
	e.SourceTo, e.DestinationTo = cmp.Or(f.SourceTo, f.Source), cmp.Or(f.DestinationTo, f.Destination)
	set(f.Source != none, abi.FrameFilterFlagsFRAME_SOURCE)
	set(f.Destination != none, abi.FrameFilterFlagsFRAME_DESTINATION)
	set(f.EtherType != 0, abi.FrameFilterFlagsFRAME_TYPE)
	set(f.IP, abi.FrameFilterFlagsFRAME_IP)
	if f.CTag != nil {
		e.C_tag, flags = *f.CTag, flags|abi.FrameFilterFlagsFRAME_C_TAG
	}
	if f.STag != nil {
		e.S_tag, flags = *f.STag, flags|abi.FrameFilterFlagsFRAME_S_TAG
	}
	e.Flags = uint8(flags)
	return e
}
