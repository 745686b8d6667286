package linkstate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/srv6"
)

// Topology is what objects describe, in an order that does not depend on theirs. What cannot be
// used is in the list, with its reason.
//
// A node is called as its name TLV says, or by its router ID. A link counts once, however many
// levels, areas and producers describe it, and only if its other direction is there. Links have
// the metric of IPv6: that of topology 2 between routers that have it (RFC 5120). They are named
// by the lower address of their ends, or by their interfaces' numbers.
//
// A node's SID is the lowest of its End SIDs of algorithm 0. Its locator has the length that the
// SID's structure says, or is the longest prefix of the router that contains it.
func Topology(objects []Object) (te.Topology, []te.LeftOut) {
	b := builder{nodes: map[Router]*te.Node{}, overloaded: map[Router]bool{}, lans: map[Router]bool{}, prefixes: map[Router][]netip.Prefix{}, foreign: map[string]int{}}
	b.sort(objects)
	b.name()
	b.locate()
	b.join()
	for why, n := range b.foreign {
		b.leaveOut(fmt.Sprintf("what %s advertise", plural.Of(n, "object")), why)
	}
	byName := func(a, c te.Node) int { return strings.Compare(a.Name, c.Name) }
	for _, n := range b.nodes {
		b.topology.Nodes = append(b.topology.Nodes, *n)
	}
	slices.SortFunc(b.topology.Nodes, byName)
	slices.SortFunc(b.topology.Links, func(a, c te.Link) int {
		return cmp.Or(strings.Compare(a.From, c.From), strings.Compare(a.To, c.To), strings.Compare(a.Name, c.Name))
	})
	slices.SortFunc(b.left, func(a, c te.LeftOut) int {
		return cmp.Or(strings.Compare(a.What, c.What), strings.Compare(a.Why, c.Why))
	})
	return b.topology, slices.Compact(b.left)
}

// builder makes a topology of objects.
type builder struct {
	topology te.Topology
	left     []te.LeftOut
	foreign  map[string]int // objects that are left out, by the reason

	said       []Node
	links      []Link
	sids       []SID
	prefixes   map[Router][]netip.Prefix
	nodes      map[Router]*te.Node // routers
	lans       map[Router]bool
	overloaded map[Router]bool
}

func (b *builder) leaveOut(what, why string) {
	b.left = append(b.left, te.LeftOut{What: what, Why: why})
}

// routes says whether a protocol's links carry SRv6, and counts objects of one that does not.
func (b *builder) routes(p Protocol) bool {
	if p == ISISLevel1 || p == ISISLevel2 || p == OSPFv3 {
		return true
	}
	b.foreign[fmt.Sprintf("they are of %s, and not of an IGP of IPv6 (IS-IS, OSPFv3)", p)]++
	return false
}

// sort puts objects by kind, those of IS-IS level 1 first.
func (b *builder) sort(objects []Object) {
	for _, o := range objects {
		switch v := o.(type) {
		case Node:
			if b.routes(v.Protocol) {
				v.Router = v.Router.router()
				b.said = append(b.said, v)
			}
		case Link:
			if b.routes(v.Protocol) {
				v.From, v.To = v.From.router(), v.To.router()
				b.links = append(b.links, v)
			}
		case SID:
			if b.routes(v.Protocol) {
				v.Router = v.Router.router()
				b.sids = append(b.sids, v)
			}
		case Prefix:
			if b.routes(v.Protocol) {
				r := v.Router.router()
				b.prefixes[r] = append(b.prefixes[r], v.Prefix)
			}
		case Unreadable:
			b.leaveOut(v.What, v.Why)
		}
	}
	slices.SortFunc(b.said, func(a, c Node) int {
		return cmp.Or(compareRouters(a.Router, c.Router), cmp.Compare(a.Protocol, c.Protocol), strings.Compare(a.Name, c.Name))
	})
	slices.SortFunc(b.links, compareLinks)
	slices.SortFunc(b.sids, func(a, c SID) int { return cmp.Or(compareRouters(a.Router, c.Router), a.SID.Compare(c.SID)) })
}

func compareRouters(a, c Router) int {
	return cmp.Or(cmp.Compare(a.Instance, c.Instance), cmp.Compare(a.ASN, c.ASN), cmp.Compare(a.Domain, c.Domain), strings.Compare(a.ID, c.ID))
}

// name finds the nodes and their names.
func (b *builder) name() {
	names, owners := map[Router]string{}, map[string]Router{}
	for _, n := range b.said {
		r := n.Router
		if r.lan() {
			b.lans[r] = true
			continue
		}
		b.overloaded[r] = b.overloaded[r] || n.Overloaded
		if _, known := names[r]; !known {
			names[r] = ""
		}
		switch {
		case n.Name == "" || n.Name == names[r]:
		case len(srv6.CheckName("", n.Name)) > 0:
			b.leaveOut(fmt.Sprintf("name %q of router %s", n.Name, r), "it has characters that no name has: the router ID is in its place")
		case names[r] != "":
			b.leaveOut(fmt.Sprintf("name %q of router %s", n.Name, r), fmt.Sprintf("it is called %q, too", names[r]))
		default:
			names[r] = n.Name
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(names), compareRouters) {
		name := cmp.Or(names[r], r.String())
		if first, again := owners[name]; again {
			b.leaveOut(fmt.Sprintf("node %s (router %s, instance %d, AS %d)", name, r, r.Instance, r.ASN),
				fmt.Sprintf("router %s of instance %d and AS %d has its name, too", first, first.Instance, first.ASN))
			continue
		}
		owners[name] = r
		b.nodes[r] = &te.Node{Name: name}
	}
}

// called is a router's name, or its ID.
func (b *builder) called(r Router) string {
	if n, known := b.nodes[r]; known {
		return n.Name
	}
	return r.String()
}

// locate gives nodes their SIDs and locators.
func (b *builder) locate() {
	for _, s := range b.sids {
		n, known := b.nodes[s.Router]
		if !known || n.SID.IsValid() || s.Algorithm != 0 || !is(srv6.End, s.Behavior) {
			continue
		}
		what := fmt.Sprintf("SID %s of %s", s.SID, n.Name)
		if errs := srv6.CheckUnicast6("", s.SID); len(errs) > 0 {
			b.leaveOut(what, errs[0].Problem)
			continue
		}
		n.SID = s.SID
		bits := int(s.Block) + int(s.Node)
		if bits > s.SID.BitLen() {
			b.leaveOut("the structure of "+what, fmt.Sprintf("its locator would have %d bits", bits))
			bits = 0
		}
		if bits > 0 {
			n.Locator = netip.PrefixFrom(s.SID, bits).Masked()
			continue
		}
		for _, p := range b.prefixes[s.Router] {
			if p.Contains(s.SID) && p.Bits() < s.SID.BitLen() && p.Bits() > 0 && p.Bits() > n.Locator.Bits() {
				n.Locator = p
			}
		}
	}
}

// is says whether a codepoint is of a behaviour, with any flavors.
func is(behavior srv6.Behavior, codepoint uint16) bool {
	for flavors := srv6.Flavor(0); flavors <= srv6.PSP|srv6.USP|srv6.USD|srv6.NextCSID; flavors++ {
		if c, has := srv6.Codepoint(behavior, flavors); has && c == codepoint {
			return true
		}
	}
	return false
}
