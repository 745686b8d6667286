package kube

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/overlay"
)

// holdings say which node holds what, by what the API server has.
type holdings struct {
	list     []holding
	locators map[string]netip.Prefix // by node
	trust    Trust
}

// Trust is what of nodes counts.
type Trust struct {
	// Pool is overlay.locator_pool of the agents. A claim of a locator outside of it counts for
	// nobody, unless Accept.SIDs has it: who has an agent's credential could claim the prefix of
	// somebody else's addresses.
	Pool   netip.Prefix
	Accept overlay.Accept
}

// hasLocator says whether a claim of a locator may count.
func (t Trust) hasLocator(p netip.Prefix) bool {
	return slices.ContainsFunc(append([]netip.Prefix{t.Pool}, t.Accept.SIDs...), func(q netip.Prefix) bool {
		return q.IsValid() && q.Bits() <= p.Bits() && q.Contains(p.Addr())
	})
}

// holding is something that a node holds.
type holding struct {
	prefix netip.Prefix
	node   string
}

// holdingsOf are those of nodes, with their claims of locators, and with those of nodes of earlier
// builds. A claim of a Node that is gone counts for nobody, nor does one that trust does not have.
func holdingsOf(nodes []*otherNode, claims []*locatorClaim, earlier map[string]netip.Prefix, trust Trust) *holdings {
	h := &holdings{locators: map[string]netip.Prefix{}, trust: trust}
	uids := map[string]string{}
	for _, n := range nodes {
		uids[n.Name] = n.is.UID
		for _, a := range n.is.Addresses {
			h.list = append(h.list, holding{netip.PrefixFrom(a, a.BitLen()), n.Name})
		}
		for _, p := range n.is.PodCIDRs {
			h.list = append(h.list, holding{p, n.Name})
		}
	}
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b *locatorClaim) int { return a.locator.Addr().Compare(b.locator.Addr()) })
	for _, c := range claims {
		if uids[c.node] == string(c.owner) && c.owner != "" && trust.hasLocator(c.locator) {
			h.list = append(h.list, holding{c.locator, c.node})
			if !h.locators[c.node].IsValid() {
				h.locators[c.node] = c.locator
			}
		}
	}
	for node, p := range earlier {
		_, isNode := uids[node]
		_, claims := h.locators[node]
		if isNode && !claims && trust.hasLocator(p) && h.holder(p, node) == "" {
			h.locators[node] = p
			h.list = append(h.list, holding{p, node})
		}
	}
	return h
}

// holder is a node other than `but` that holds a part of a prefix, or "".
func (h *holdings) holder(p netip.Prefix, but string) string {
	for _, o := range h.list {
		if o.node != but && o.prefix.Overlaps(p) {
			return o.node
		}
	}
	return ""
}

// judge returns the part of what a node says of itself that it may. before is what was used of it
// until now.
func (h *holdings) judge(n overlay.Node, is Self, before overlay.Node) overlay.Node {
	return overlay.Vouch(n, overlay.Vouched{Addresses: is.Addresses, PodCIDRs: is.PodCIDRs, Pool: h.trust.Pool, Locator: h.locators[n.Name], Before: before,
		Holder: func(p netip.Prefix) string { return h.holder(p, n.Name) }}, h.trust.Accept)
}

// use returns what is used of what a node says of itself. Where nothing of it is the node's, what
// was used before stays, as far as it still is: the cluster may vouch for the rest in a moment.
func (h *holdings) use(said overlay.Node, is Self, before overlay.Node) overlay.Node {
	n := h.judge(said, is, before)
	if n.Refused == "" || before.Name == "" {
		return n
	}
	kept := h.judge(before, is, before)
	if kept.Refused != "" {
		return n
	}
	kept.Faults = append(kept.Faults, "what it says now is not used: "+n.Refused)
	return kept
}

// sortByAge sorts nodes, the oldest first.
func sortByAge(nodes []*otherNode) {
	slices.SortFunc(nodes, func(a, b *otherNode) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
