package srpolicy

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

// Behaviors lists the behaviours that a policy may have.
func Behaviors() []srv6.Behavior {
	return []srv6.Behavior{srv6.HEncaps, srv6.HEncapsRed, srv6.HEncapsL2, srv6.HEncapsL2Red}
}

// EffectiveBehavior returns the policy's behaviour, with the default filled in.
func (p Policy) EffectiveBehavior() srv6.Behavior {
	return cmp.Or(p.Behavior, srv6.HEncapsRed)
}

// Reduced says whether the SRH omits the first segment.
func (p Policy) Reduced() bool {
	b := p.EffectiveBehavior()
	return b == srv6.HEncapsRed || b == srv6.HEncapsL2Red
}

// L2 says whether the policy encapsulates Ethernet frames.
func (p Policy) L2() bool {
	return p.Behavior == srv6.HEncapsL2 || p.Behavior == srv6.HEncapsL2Red
}

// BindingBehavior returns the behaviour of the policy's binding SID (RFC 8986 sections
// 4.13 and 4.14).
func (p Policy) BindingBehavior() srv6.Behavior {
	if p.Reduced() {
		return srv6.EndB6EncapsRed
	}
	return srv6.EndB6Encaps
}

// Lists are the policy's lists, those of Protection last.
func (p Policy) Lists() []SegmentList {
	if len(p.Protection) == 0 {
		return p.SegmentLists
	}
	return slices.Concat(p.SegmentLists, p.Protection)
}

// InUse returns which of Lists packets take, from first on and before end: those of Protection
// where one of these carries packets, and none of SegmentLists does. Where none does at all, a
// list that packets do not take for its delay is better than one that is down.
func (p Policy) InUse() (first, end int) {
	n := len(p.SegmentLists)
	all := n + len(p.Protection)
	switch {
	case p.carry(0, n):
	case p.carry(n, all):
		return n, all
	case !p.live(0, n) && p.live(n, all):
		return n, all
	}
	return 0, n
}

// carry says whether one of some of Lists carries packets.
func (p Policy) carry(first, end int) bool {
	for i := first; i < end; i++ {
		if p.DownAt(i) == "" && p.SlowAt(i) == "" {
			return true
		}
	}
	return false
}

// live says whether packets can take one of some of Lists.
func (p Policy) live(first, end int) bool {
	p.Slow = nil
	return p.carry(first, end)
}

// Out returns which of Lists packets do not take, by number, where they take those from first on and
// before end. If none of these carries packets, slow ones do; if all are down, packets try all.
func (p Policy) Out(first, end int) (out []int) {
	if !p.live(first, end) {
		return nil
	}
	slow := p.carry(first, end)
	for i := range len(p.SegmentLists) + len(p.Protection) {
		if p.DownAt(i) != "" || slow && p.SlowAt(i) != "" {
			out = append(out, i)
		}
	}
	return out
}

// DownAt returns why packets cannot take one of Lists now; empty: they can.
func (p Policy) DownAt(list int) string { return at(p.Down, list) }

// SlowAt returns why packets do not take one of Lists for its delay; empty: they do, or it is down.
func (p Policy) SlowAt(list int) string { return at(p.Slow, list) }

func at(reasons []string, i int) string {
	if i >= len(reasons) {
		return ""
	}
	return reasons[i]
}

// EffectiveWeight returns the list's weight, with the default filled in.
func (l SegmentList) EffectiveWeight() uint32 {
	return cmp.Or(l.Weight, 1)
}

// Thresholds divides the flow hashes among SegmentLists by weight, and among Protection: a
// flow takes the first list in use whose threshold is not below its hash. The last threshold
// of either is the largest hash.
func (p Policy) Thresholds() []uint32 {
	return append(thresholds(p.SegmentLists), thresholds(p.Protection)...)
}

func thresholds(lists []SegmentList) []uint32 {
	var sum, below uint64
	for _, l := range lists {
		sum += uint64(l.EffectiveWeight())
	}
	thresholds := make([]uint32, len(lists))
	for i, l := range lists {
		below += uint64(l.EffectiveWeight())
		// Of 2^32 hashes, below/sum go to the lists up to this one. The
		// product takes more than 64 bits where weights are large.
		hi, lo := bits.Mul64(below, 1<<32)
		share, _ := bits.Div64(hi, lo, sum)
		thresholds[i] = uint32(max(share, 1) - 1)
	}
	return thresholds
}

// faults collects what is wrong with a value.
type faults []srv6.FieldError

func (f *faults) add(field, fix, format string, args ...any) {
	*f = append(*f, srv6.FieldError{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

// Validate checks a policy. It looks up nothing.
func (p Policy) Validate() []srv6.FieldError {
	errs := faults(srv6.CheckName("name", p.Name))
	if !slices.Contains(Behaviors(), p.EffectiveBehavior()) {
		errs.add("behavior", "give H.Encaps, H.Encaps.Red, H.Encaps.L2 or H.Encaps.L2.Red", "%s is not a policy's behaviour", p.Behavior)
	}
	if p.Source.IsValid() {
		errs = append(errs, srv6.CheckUnicast6("source", p.Source)...)
	}
	if p.BindingSID.IsValid() {
		errs = append(errs, srv6.CheckUnicast6("binding_sid", p.BindingSID)...)
		if p.L2() {
			errs.add("binding_sid", "remove it, or give behavior: H.Encaps or H.Encaps.Red",
				"a packet cannot be bound to %s, which takes frames", p.Behavior)
		}
	}
	if p.Endpoint.Zone() != "" {
		errs.add("endpoint", "give the address of the policy's end without a zone", "%s has a zone", p.Endpoint)
	}
	errs = append(errs, p.DelayConstraint.Check()...)
	if len(p.SegmentLists) == 0 {
		return errs // candidate paths may provide them
	}
	return append(errs, checkLists(p.SegmentLists)...)
}

// checkLists requires 1 to MaxSegmentLists lists.
func checkLists(lists []SegmentList) []srv6.FieldError {
	var errs faults
	if n := len(lists); n == 0 {
		errs.add("segment_lists", "give segment_lists: [{segments: [...]}]", "is missing: there is no way without a segment list")
	} else if n > MaxSegmentLists {
		errs.add("segment_lists", fmt.Sprintf("give at most %d", MaxSegmentLists), "has %d lists", n)
		return errs
	}
	for i, l := range lists {
		for _, e := range checkSegments(l.Segments) {
			e.Field = fmt.Sprintf("segment_lists[%d].segments%s", i, e.Field)
			errs = append(errs, e)
		}
	}
	return errs
}

// checkSegments requires 1 to MaxSegments SIDs. Its fields begin behind "segments":
// there may be very many lists, and few have errors.
func checkSegments(segments []netip.Addr) []srv6.FieldError {
	var errs faults
	if n := len(segments); n == 0 {
		errs.add("", "give the SIDs to visit, the first one first", "is missing: a segment list needs a segment")
	} else if n > MaxSegments {
		errs.add("", fmt.Sprintf("give at most %d, or put several C-SIDs into one segment (NEXT-C-SID)", MaxSegments), "has %d segments", n)
		return errs
	}
	for i, s := range segments {
		for _, e := range srv6.CheckUnicast6("", s) {
			e.Field = fmt.Sprintf("[%d]", i)
			errs = append(errs, e)
		}
	}
	return errs
}

// Key names a list by its segments, in order.
func (l SegmentList) Key() string {
	texts := make([]string, len(l.Segments))
	for i, s := range l.Segments {
		texts[i] = s.String()
	}
	return strings.Join(texts, ",")
}
