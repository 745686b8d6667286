package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Ends knows at which SIDs the nodes of a cluster take packets for pods. The nil value knows of
// none.
type Ends struct {
	byAddress map[netip.Addr]*Node
	bySID     map[netip.Addr]*Node // of the cluster's own network
	locators  map[netip.Prefix]*Node
	lengths   []int // of locators
}

// NewEnds knows those of nodes.
func NewEnds(nodes []Node) *Ends {
	e := &Ends{byAddress: map[netip.Addr]*Node{}, bySID: map[netip.Addr]*Node{}, locators: map[netip.Prefix]*Node{}}
	for i := range nodes {
		n := &nodes[i]
		e.byAddress[n.Address] = n
		for _, list := range [][]netip.Addr{n.IPv4, n.IPv6} {
			if end := last(list); end.IsValid() {
				e.bySID[end] = n
			}
		}
		if !n.Locator.IsValid() {
			continue
		}
		e.locators[n.Locator.Masked()] = n
		if !slices.Contains(e.lengths, n.Locator.Bits()) {
			e.lengths = append(e.lengths, n.Locator.Bits())
		}
	}
	return e
}

// Wrong says why a policy of a color to an endpoint cannot end at a SID; empty: it can, or it is
// not known. Of an endpoint that is a member all SIDs for pods are known: those of the cluster's own
// network and of tenants. A policy of another color than these have may end in somebody else's network.
func (e *Ends) Wrong(color uint32, endpoint, sid netip.Addr, tenants []Tenant) string {
	if e == nil || color == 0 {
		return ""
	}
	n := e.byAddress[endpoint]
	if n == nil || n.Name == "" {
		return ""
	}
	only := func(what string, end netip.Addr) string {
		if !end.IsValid() || sid == end {
			return ""
		}
		return fmt.Sprintf("it ends at %s, and %s takes %s at %s", sid, n.Name, what, end)
	}
	switch color {
	case ColorIPv4:
		return only("IPv4", last(n.IPv4))
	case ColorIPv6:
		return only("IPv6", last(n.IPv6))
	}
	for _, t := range tenants {
		if t.Color() == color {
			return only("tenant "+t.Name, t.SIDIn(n.Locator))
		}
	}
	owner := e.owner(sid)
	if owner == nil || owner == n && n.takes(sid, tenants) {
		return ""
	}
	if owner != n {
		return fmt.Sprintf("it ends at %s, which is a SID of %s, and its endpoint is %s", sid, owner.called(), n.Name)
	}
	return fmt.Sprintf("it ends at %s, and %s takes packets for pods at %s", sid, n.Name, strings.Join(n.ends(tenants), ", "))
}

// Lost says why packets of the cluster's own network to a prefix are lost in a policy that ends at a
// SID; empty: they are not, or it is not known. A prefix that is not valid is any.
func (e *Ends) Lost(sid netip.Addr, to netip.Prefix) string {
	if e == nil {
		return ""
	}
	n := e.owner(sid)
	switch {
	case n == nil || n.Name == "" && e.bySID[sid] == nil && !isTenant(sid, n.Locator):
		return ""
	case e.bySID[sid] == nil:
		return fmt.Sprintf("it ends at %s, where %s takes no packets of the cluster's pods", sid, n.called())
	case sid != last(n.IPv4) && (!to.IsValid() || to.Addr().Is4()):
		return fmt.Sprintf("it ends at %s, where %s takes IPv6 only", sid, n.called())
	case sid != last(n.IPv6) && (!to.IsValid() || to.Addr().Is6()):
		return fmt.Sprintf("it ends at %s, where %s takes IPv4 only", sid, n.called())
	}
	return ""
}

// owner is the node that has a SID, or nil.
func (e *Ends) owner(sid netip.Addr) *Node {
	if n := e.bySID[sid]; n != nil {
		return n
	}
	for _, bits := range e.lengths {
		if p, err := sid.Prefix(bits); err == nil && e.locators[p] != nil {
			return e.locators[p]
		}
	}
	return nil
}

// takes says whether a node takes packets for pods at a SID.
func (n *Node) takes(sid netip.Addr, tenants []Tenant) bool {
	return sid == last(n.IPv4) || sid == last(n.IPv6) ||
		slices.ContainsFunc(tenants, func(t Tenant) bool { return t.SIDIn(n.Locator) == sid })
}

// ends lists the SIDs at which a node takes packets for pods.
func (n *Node) ends(tenants []Tenant) (out []string) {
	for _, end := range []struct {
		sid  netip.Addr
		what string
	}{{last(n.IPv4), "IPv4"}, {last(n.IPv6), "IPv6"}} {
		if end.sid.IsValid() {
			out = append(out, fmt.Sprintf("%s (%s)", end.sid, end.what))
		}
	}
	for _, t := range tenants {
		if end := t.SIDIn(n.Locator); end.IsValid() {
			out = append(out, fmt.Sprintf("%s (tenant %s)", end, t.Name))
		}
	}
	return out
}

// called is a node's name, or its address.
func (n *Node) called() string {
	if n.Name == "" {
		return n.Address.String()
	}
	return n.Name
}

// isTenant says whether a SID in a locator is a tenant's.
func isTenant(sid netip.Addr, locator netip.Prefix) bool {
	for id := 1; id <= 255; id++ {
		if (Tenant{ID: uint8(id)}).SIDIn(locator) == sid {
			return true
		}
	}
	return false
}

// last is the last segment of a list; not valid without one.
func last(list []netip.Addr) netip.Addr {
	if len(list) == 0 {
		return netip.Addr{}
	}
	return list[len(list)-1]
}
