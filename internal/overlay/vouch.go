package overlay

import (
	"fmt"
	"net/netip"
	"slices"
)

// Accept lists what nodes may say of themselves although Kubernetes does not vouch for it.
type Accept struct {
	Addresses   []netip.Prefix `json:"addresses,omitempty"`
	PodPrefixes []netip.Prefix `json:"pod_prefixes,omitempty"`
	SIDs        []netip.Prefix `json:"sids,omitempty"`
}

// MaxAnnounced is how many prefixes of pods, and how many addresses beside its own, one node may
// say it has: who has an agent's credential fills nobody's tables.
const MaxAnnounced = 64

// Vouched is what the Kubernetes API says of a node, whatever the node says of itself.
type Vouched struct {
	Addresses []netip.Addr   // InternalIPs of its Node
	PodCIDRs  []netip.Prefix // of its Node
	// Pool is overlay.locator_pool. Locator is what the node has claimed in it.
	Pool, Locator netip.Prefix
	// Before is what was used of the node until now. Its address and its locator stay the
	// node's as long as no other node holds them, so that a node that moves is not lost on the way.
	Before Node
	// Holder returns the other node that holds a part of a prefix as its address, its podCIDR or
	// its claimed locator, or "".
	Holder func(netip.Prefix) string
}

// Vouch returns the part of what a node says of itself that is the node's. Refused says why
// nothing of it is, and Faults what is left out.
func Vouch(n Node, by Vouched, accept Accept) Node {
	n.Refused = cmpOr(func() string { return by.address(n, accept) }, func() string { return by.locator(n, accept) },
		func() string { return by.lists(n, accept) })
	n.Faults = nil
	if why := by.former(n); why != "" {
		n.Faults, n.Former = append(n.Faults, why), netip.Addr{}
	}
	n.Addresses, n.Faults = atMost(n.Addresses, "addresses", n.Faults)
	n.Prefixes, n.Faults = atMost(n.Prefixes, "prefixes", n.Faults)
	n.Addresses = slices.DeleteFunc(n.Addresses, func(a netip.Addr) bool {
		holder := by.Holder(hostPrefix(a))
		if slices.Contains(by.Addresses, a) || holder == "" && within(accept.Addresses, hostPrefix(a)) {
			return false
		}
		n.Faults = append(n.Faults, notHeld(fmt.Sprintf("address %s", a), holder, "is no InternalIP of its Node"))
		return true
	})
	n.Prefixes = slices.DeleteFunc(n.Prefixes, func(p netip.Prefix) bool {
		holder := by.Holder(p)
		if within(by.PodCIDRs, p) || holder == "" && within(accept.PodPrefixes, p) {
			return false
		}
		n.Faults = append(n.Faults, notHeld(fmt.Sprintf("prefix %s", p), holder, "is not in the podCIDRs of its Node"))
		return true
	})
	for _, bsid := range []*netip.Addr{&n.BSID4, &n.BSID6} {
		if bsid.IsValid() && !n.Locator.Contains(*bsid) && !within(accept.SIDs, hostPrefix(*bsid)) {
			n.Faults = append(n.Faults, fmt.Sprintf("binding SID %s is not in its locator", *bsid))
			*bsid = netip.Addr{}
		}
	}
	return n
}

// atMost are the first MaxAnnounced of a list. The rest is one more fault.
func atMost[T any](list []T, what string, faults []string) ([]T, []string) {
	if more := len(list) - MaxAnnounced; more > 0 {
		list, faults = list[:MaxAnnounced], append(faults, fmt.Sprintf("%d of its %d %s are not used: a node may have %d", more, len(list), what, MaxAnnounced))
	}
	return slices.Clone(list), faults
}

// cmpOr returns the first string that is not empty. It calls no function behind that.
func cmpOr(functions ...func() string) string {
	for _, f := range functions {
		if s := f(); s != "" {
			return s
		}
	}
	return ""
}

// notHeld says why something is not a node's: it is another one's, or nobody vouches for it.
func notHeld(what, holder, why string) string {
	if holder != "" {
		return fmt.Sprintf("%s is that of %s", what, holder)
	}
	return what + " " + why
}

func within(list []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
}

// address returns why a node cannot have its address, or "".
func (by Vouched) address(n Node, accept Accept) string {
	p := hostPrefix(n.Address)
	if slices.Contains(by.Addresses, n.Address) || by.Locator.IsValid() && by.Locator.Contains(n.Address) {
		return ""
	}
	holder := by.Holder(p)
	if holder == "" && (n.Address == by.Before.Address || within(accept.Addresses, p)) {
		return ""
	}
	return notHeld(fmt.Sprintf("address %s", n.Address), holder, "is no InternalIP of its Node (overlay.accept.addresses)")
}

// former returns why a node cannot have its former address any more, or "".
func (by Vouched) former(n Node) string {
	if !n.Former.IsValid() || slices.Contains(by.Addresses, n.Former) {
		return ""
	}
	holder := by.Holder(hostPrefix(n.Former))
	if holder == "" && (n.Former == by.Before.Address || n.Former == by.Before.Former) {
		return ""
	}
	return notHeld(fmt.Sprintf("former address %s", n.Former), holder, "was not its address")
}

// locator returns why a node cannot have its locator, or "".
func (by Vouched) locator(n Node, accept Accept) string {
	if !n.Locator.IsValid() || n.Locator.Masked() == by.Locator {
		return ""
	}
	holder := by.Holder(n.Locator)
	if holder == "" && (n.Locator == by.Before.Locator || within(accept.SIDs, n.Locator)) {
		return ""
	}
	why := "is not claimed by the node (overlay.accept.sids)"
	if !by.Pool.IsValid() || !within([]netip.Prefix{by.Pool}, n.Locator) {
		why = "is not in overlay.locator_pool (overlay.accept.sids)"
	}
	return notHeld(fmt.Sprintf("locator %s", n.Locator), holder, why)
}

// lists returns why a node cannot have its segment lists, or "". A SID behind the node's own
// address is looked up there only. One that stands alone is routed.
func (by Vouched) lists(n Node, accept Accept) string {
	for _, list := range [][]netip.Addr{n.IPv4, n.IPv6} {
		switch len(list) {
		case 0:
			continue
		case 1:
			p := hostPrefix(list[0])
			if n.Locator.IsValid() && n.Locator.Contains(list[0]) {
				continue
			}
			if holder := by.Holder(p); holder != "" || !within(accept.SIDs, p) {
				return notHeld(fmt.Sprintf("SID %s", list[0]), holder, "is not in its locator (overlay.accept.sids)")
			}
		case 2:
			if list[0] != n.Address {
				return fmt.Sprintf("segment %s in front of SID %s is not the node's address", list[0], list[1])
			}
		default:
			return fmt.Sprintf("a list to it has %d segments, at most 2 are allowed", len(list))
		}
	}
	return ""
}
