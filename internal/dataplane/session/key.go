package session

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// key is what packets carry that leads them to a head: a TEID, an address or
// prefix of the UE, or the link that an Ethernet session's frames come from.
type key struct {
	teid    uint32
	prefix  netip.Prefix
	link    Link // with session
	session uint64
	// slice is that of the SID where packets with the TEID, or from or to the prefix by
	// the direction, arrive; 0: they arrive at none.
	slice     uint32
	direction Direction
}

// lookupKind says by which table packets find a head.
type lookupKind uint8

// The lookups.
const (
	byIndex  lookupKind = iota // pdr itself: by the TEID's low bits, or by an address of a UE pool
	byTEID                     // pdr_by_teid
	byUE                       // pdr_by_ue
	byPrefix                   // target_by_dst4, target_by_dst6
	byLink                     // station; pdr_by_ue has it for a daemon that starts again
	atSID                      // pdr_by_ue
)

// hash names the map that finds a head; "": none does.
func (by lookupKind) hash() string {
	switch by {
	case byTEID:
		return abi.MapPdrByTeid
	case byUE, byLink, atSID:
		return abi.MapPdrByUe
	}
	return ""
}

// appendKeys appends the keys that lead packets to a rule of a session.
func appendKeys(keys []key, r *Rule, session uint64) []key {
	at := &r.AtSID
	switch {
	case r.TEID != 0:
		keys = append(keys, key{teid: r.TEID})
		if at.Slice != 0 {
			keys = append(keys, key{teid: r.TEID, slice: at.Slice})
		}
	case r.Ethernet:
		return append(keys, key{link: r.Link, session: session})
	}
	for _, to := range r.Destinations {
		keys = append(keys, key{prefix: to.Masked()})
	}
	if at.Slice != 0 {
		for _, ue := range at.UEs {
			keys = append(keys, key{prefix: ue.Masked(), slice: at.Slice, direction: r.Direction})
		}
	}
	return keys
}

// leadsTo says whether a key of a session leads to one of its rules.
func (k *key) leadsTo(r *Rule) bool {
	has := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Masked() == k.prefix })
	}
	switch {
	case k.slice != 0 && k.slice != r.AtSID.Slice:
		return false
	case k.slice != 0 && k.teid == 0:
		return k.direction == r.Direction && has(r.AtSID.UEs)
	}
	if k.teid != 0 || r.TEID != 0 {
		return k.teid == r.TEID
	}
	if k.session != 0 {
		return true
	}
	return has(r.Destinations)
}

// asksQFI says whether packets with a key have a QFI, or have none because they came
// without GTP-U: not where nothing tells of it.
func (k *key) asksQFI() bool { return k.slice == 0 || k.teid != 0 }

// String is the key as errors name it.
func (k key) String() string {
	if k.slice != 0 {
		return "at the slice's SID, " + key{teid: k.teid, prefix: k.prefix}.String()
	}
	if k.teid != 0 {
		return fmt.Sprintf("TEID %#x", k.teid)
	}
	if k.session != 0 {
		return "the link " + k.link.String()
	}
	return k.prefix.String()
}

// isUE says whether a prefix is what a UE has: an IPv4 address, or an IPv6 /64.
func isUE(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() == 32 || p.Addr().Is6() && p.Bits() == 64
}

// find returns the lookup that packets with a key use, the index that it leads
// them to, and whether it leads them there now. Without led, index is that of
// a lookup by index, or 0.
func (t *tables) find(k *key) (by lookupKind, index uint32, led bool) {
	switch {
	case k.slice != 0:
		index, led = t.UEs.Lookup(sidEntry(k))
		return atSID, index, led
	case k.teid != 0:
		if at := placeOf(k.teid, t.slots); at.slot != 0 {
			do := t.PDR.Load(at.slot, wordPDRDo)
			if isActive(do) && placeIn(at.slot, do) == at {
				return byIndex, at.slot, true
			}
		}
		index, led = t.TEIDs.Lookup(k.teid)
		return byTEID, index, led
	case k.session != 0:
		index, led = t.UEs.Lookup(linkEntry(k.session))
		return byLink, index, led
	}
	if slot := settings.SlotIn(t.pools, k.prefix); slot != 0 {
		return byIndex, slot, isActive(t.PDR.Load(slot, wordPDRDo))
	}
	if isUE(k.prefix) {
		index, led = t.UEs.Lookup(abi.In6Of(k.prefix.Addr()))
		return byUE, index, led
	}
	if to := t.node.Targets().At(k.prefix); to.Kind == uint32(abi.TargetKindTARGET_PDR) {
		return byPrefix, to.Index, true
	}
	return byPrefix, 0, false
}

// inUEs is what a key has in pdr_by_ue; the zero value for one that has nothing there.
func (k *key) inUEs() (e abi.In6) {
	switch {
	case k.slice != 0:
		return sidEntry(k)
	case k.session != 0:
		return linkEntry(k.session)
	case k.prefix.IsValid():
		return abi.In6Of(k.prefix.Addr())
	}
	return e
}

// put leads a key to an index. By index there is nothing to write.
func (t *tables) put(k key, by lookupKind, index uint32) error {
	switch by {
	case byTEID:
		return t.TEIDs.Put(k.teid, index)
	case byUE, byLink, atSID:
		return t.putUE(k.inUEs(), index)
	case byPrefix:
		return t.node.Targets().Put(k.prefix, abi.Target{Kind: uint32(abi.TargetKindTARGET_PDR), Index: index})
	}
	return nil
}

// del is the reverse of put, for a key that is not found by index.
func (t *tables) del(k key) error {
	switch {
	case k.teid != 0 && k.slice == 0:
		return t.TEIDs.Delete(k.teid)
	case k.slice != 0, k.session != 0, isUE(k.prefix):
		return t.delUE(k.inUEs())
	}
	return t.node.Targets().Delete(k.prefix)
}

// linkEntry is what an Ethernet session has in pdr_by_ue. No packet asks for it:
// the second half is neither 0 nor that of an IPv4 address.
func linkEntry(session uint64) (e abi.In6) {
	binary.BigEndian.PutUint64(e.B[:], session)
	e.B[8], e.B[15] = 0xff, 1
	return e
}

func isLinkEntry(e abi.In6) bool { return e == linkEntry(binary.BigEndian.Uint64(e.B[:])) }

// sidEntry is what a key at a slice's SID has in pdr_by_ue (enum at_sid in
// bpf/def/ue.h).
func sidEntry(k *key) (e abi.In6) {
	what := abi.AtSidAT_SID_TEID
	switch a := k.prefix.Addr(); {
	case k.teid != 0:
		binary.BigEndian.PutUint32(e.B[:], k.teid)
	case a.Is4():
		copy(e.B[:], a.AsSlice())
		what = abi.AtSidAT_SID_SOURCE4
	default:
		copy(e.B[:8], a.AsSlice())
		what = abi.AtSidAT_SID_SOURCE6
	}
	if k.teid == 0 && k.direction == Downlink {
		what += abi.AtSidAT_SID_DESTINATION4 - abi.AtSidAT_SID_SOURCE4
	}
	e.B[8], e.B[9] = uint8(abi.AtSidAT_SID), uint8(what)
	binary.BigEndian.PutUint32(e.B[12:], k.slice)
	return e
}

func isSIDEntry(e abi.In6) bool { return e.B[8] == uint8(abi.AtSidAT_SID) }

// LinkEntry is the entry of pdr that leads to the rules of an Ethernet session for
// frames from its link; 0: it has none.
func (s *Sessions) LinkEntry(id uint64) uint32 { return s.tables.UEs.Get(linkEntry(id)) }
