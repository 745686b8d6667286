package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Tenant is an L3VPN of pods (RFC 9252). They reach each other by a table of their own,
// and nobody else; other tenants may have the same addresses.
type Tenant struct {
	Name string `json:"name"`
	// ID numbers the tenant on all nodes: its SIDs follow from it. 1 to 255.
	ID uint8 `json:"id"`
	// Namespaces are those whose pods may be attached to the tenant's network.
	Namespaces []string `json:"namespaces"`
	// Pools are the tenant's addresses. Each node has the part of a pool that its own pods'
	// prefix of the same family has of the cluster's: a node with pods in 10.244.3.0/24 has
	// 10.9.3.0/24 of 10.9.0.0/16. So a pool is as long as the prefix of all pods, or shorter.
	Pools []netip.Prefix `json:"pools"`
	// Routes are the destinations that a pod reaches by the tenant's network. Default: Pools.
	Routes []netip.Prefix `json:"routes,omitempty"`
	// RouteDistinguisher, ImportTargets and ExportTargets are of the VPN that the tenant is
	// for BGP peers. Default, where BGP is in use: this node's router ID, or the AS number,
	// and the tenant's id.
	Distinguisher string   `json:"route_distinguisher,omitempty"`
	Import        []string `json:"import_targets,omitempty"`
	Export        []string `json:"export_targets,omitempty"`
}

// tenantFunction is the function of tenant 0, which there is not. A tenant's is this and its
// id. It is also the color of the policies to a node for the tenant.
const tenantFunction = 0x100

func (t Tenant) function() uint16 { return tenantFunction | uint16(t.ID) }

// Color is that of the policies that carry the tenant's packets.
func (t Tenant) Color() uint32 { return uint32(t.function()) }

// SIDIn is the tenant's SID in the locator of a node. It is invalid without one.
func (t Tenant) SIDIn(locator netip.Prefix) netip.Addr {
	if !locator.IsValid() {
		return netip.Addr{}
	}
	return sid(locator, t.function())
}

// Reached are the destinations that a pod reaches by the tenant's network.
func (t Tenant) Reached() []netip.Prefix {
	if len(t.Routes) > 0 {
		return t.Routes
	}
	return t.Pools
}

// Prefixes are the tenant's on a node whose pods have the prefixes `of`.
func (t Tenant) Prefixes(of []netip.Prefix) (out []netip.Prefix) {
	for _, pool := range t.Pools {
		for _, p := range of {
			if part := partOf(pool, p); part.IsValid() && !slices.Contains(out, part) {
				out = append(out, part)
			}
		}
	}
	return out
}

// partOf is the part of a pool with the bits that p has behind the pool's length. It is not
// valid where the families differ, or p is no longer than the pool.
func partOf(pool, p netip.Prefix) netip.Prefix {
	if pool.Addr().Is4() != p.Addr().Is4() || p.Bits() <= pool.Bits() {
		return netip.Prefix{}
	}
	out, bits := pool.Masked().Addr().AsSlice(), p.Masked().Addr().AsSlice()
	for i := pool.Bits(); i < p.Bits(); i++ {
		out[i/8] |= bits[i/8] & (0x80 >> (i % 8))
	}
	a, _ := netip.AddrFromSlice(out)
	return netip.PrefixFrom(a, p.Bits())
}

// tenantSIDs are this node's, one for each tenant; none without a locator.
func (s Self) tenantSIDs() (out []srv6.LocalSID) {
	if !s.Locator.IsValid() {
		return nil
	}
	for _, t := range s.Tenants {
		out = append(out, srv6.LocalSID{SID: s.sidPrefix(t.SIDIn(s.Locator)), Behavior: srv6.EndDT46, Tenant: t.ID})
	}
	return out
}

// Part is a prefix of a tenant on this node, and the SID that leads to it.
type Part struct {
	Destination
	SID netip.Addr
}

// Parts are this node's parts of all tenants; none without a locator.
func (s Self) Parts() (out []Part) {
	for i, l := range s.tenantSIDs() {
		for _, p := range s.Tenants[i].Prefixes(s.Prefixes) {
			out = append(out, Part{Destination{l.Tenant, p}, l.SID.Addr()})
		}
	}
	return out
}

// tenants adds a way to a node's part of each tenant.
func (b *builder) tenants(n Node) (problems []string) {
	for _, t := range b.Self.Tenants {
		prefixes := t.Prefixes(n.Prefixes)
		if len(prefixes) == 0 {
			continue
		}
		if !n.Locator.IsValid() {
			problems = append(problems, fmt.Sprintf("tenant %s: the node has no locator, so its SID of the tenant is not known", t.Name))
			continue
		}
		color := Color{t.Color(), n.Address}
		name := n.Name + ":" + t.Name
		if n.Name == "" || len(name) > srv6.MaxNameLength {
			name = ByAddress(color.Color, n.Address)
		}
		isDouble := len(n.IPv4) == 2 || len(n.IPv6) == 2
		b.policy(color, name, segmentList(n.Address, t.SIDIn(n.Locator), isDouble), netip.Addr{})
		for _, p := range prefixes {
			if why := b.steerTenant(t, p, n.Name, b.policies[color]); why != "" {
				problems = append(problems, why)
			}
		}
	}
	return problems
}

// steerTenant steers what the tenant's pods send to a prefix, or reports why it cannot.
func (b *builder) steerTenant(t Tenant, p netip.Prefix, owner, policy string) (problem string) {
	place := Destination{t.ID, p}
	if former := b.parts[place]; former != "" {
		return fmt.Sprintf("tenant %s: prefix %s is already that of %s: is the pool longer than the prefix of all pods?", t.Name, p, former)
	}
	b.parts[place] = owner
	b.Steering = append(b.Steering, srpolicy.Steering{Prefix: p, Tenant: t.ID, Policy: policy})
	return ""
}

// tenantReach adds a prefix of a tenant that BGP advertised, with the SID that it came with.
func (b *builder) tenantReach(r Reach) {
	i := slices.IndexFunc(b.Self.Tenants, func(t Tenant) bool { return t.ID == r.Tenant })
	if i < 0 || b.addresses[r.Address] == thisNode {
		return // of an earlier configuration, or back through a route reflector
	}
	peer := b.peer(r.Address)
	if owner := b.parts[r.Destination()]; owner != "" && owner == peer.Name {
		return // the node is known by itself
	}
	if why := b.steerTenant(b.Self.Tenants[i], r.Prefix.Masked(), cmp.Or(peer.Name, r.Address.String()), b.toSID(r.Segments)); why != "" {
		peer = b.peer(r.Address)
		peer.Problems = append(peer.Problems, why)
	}
}

// ReservedFix says what to do about a reserved color.
const ReservedFix = "give a color of your own, such as 1000, and policies of it"

// ReservedFor says what policies of a color carry in a cluster with tenants; empty: no color of the
// cluster's own is this one.
func ReservedFor(color uint32, tenants []Tenant) string {
	switch color {
	case ColorIPv4:
		return "IPv4 between pods"
	case ColorIPv6:
		return "IPv6 between pods"
	}
	for _, t := range tenants {
		if t.Color() == color {
			return "the packets of tenant " + t.Name
		}
	}
	return ""
}
