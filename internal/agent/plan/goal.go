package plan

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Goal is the desired and the observed state together, and what follows from
// them. It never changes in place.
type Goal struct {
	Desired  desired.State
	Observed observed.State
	// Self is this node as a member of its cluster; the zero value: it is none, or
	// not yet.
	Self overlay.Self
	// Derived are the resources that follow: Derive makes them, and the rest of
	// what follows here.
	Derived  []desired.Resource
	Wanted   *overlay.Wanted          // of the cluster; a new one each time that it is made
	Named    map[overlay.Color]string // policies by color and endpoint
	Problems []string                 // what cannot be as it is asked for
	Refused  map[string]string        // observed traffic classes that are not used, and why
	// Dead are the segment lists of which no probe returns, by SegmentList.Key, and why.
	Dead map[string]string
	// Standings are what the delays of lists make of them.
	Standings srpolicy.Standings
}

// All are all resources, the file's first.
func (g *Goal) All() iter.Seq[desired.Resource] {
	return func(yield func(desired.Resource) bool) {
		for _, list := range [][]desired.Resource{g.Desired.File, g.Desired.API, g.Derived} {
			for _, r := range list {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Slices are those of the configuration.
func (g *Goal) Slices() (out []slice.Slice) {
	for r := range g.All() {
		if s, is := r.Value.(slice.Slice); is {
			out = append(out, s)
		}
	}
	return out
}

// Imported are the numbers of routes of slices' VPNs, by slice.
func (g *Goal) Imported() map[string]int {
	byNumber := map[uint8]int{}
	for r := range g.All() {
		if s, is := r.Value.(srpolicy.Steering); is && s.Tenant != 0 {
			byNumber[s.Tenant]++
		}
	}
	out := map[string]int{}
	for name, number := range slice.VPNNumbers(g.Slices()) {
		out[name] = byNumber[number]
	}
	return out
}

// resources are those of All that are in a scope.
func (g *Goal) resources(s Scope) []desired.Resource {
	if s.Policies == nil {
		return slices.Concat(g.Desired.File, g.Desired.API, g.Derived)
	}
	var out []desired.Resource
	for r := range g.All() {
		if s.holds(r) {
			out = append(out, r)
		}
	}
	return out
}

// Config is the configuration of the resources in a scope, with its defaults.
func (g *Goal) Config(s Scope) *config.Config {
	c := desired.Config(g.resources(s), g.Desired.Process)
	c.SetDefaults()
	return c
}

// WithFile is g with another configuration file. What control planes said stays
// as far as those of the new file can say it.
func (g *Goal) WithFile(c *config.Config) *Goal {
	next := &Goal{Desired: g.Desired.WithFile(c), Observed: g.Observed.Of(c), Self: g.Self}
	before, now := g.Desired.Process.Overlay.Mode, c.Overlay.Mode
	switch {
	case before == now:
	case now != config.OverlayBGP && now != config.OverlayKube: // the file has all of them
		next.Observed.Former = nil
	default:
		next.Observed.Former = g.nodesInUse()
	}
	return next
}

// nodesInUse are the other nodes with the segments by which this node reaches
// them.
func (g *Goal) nodesInUse() []overlay.Node {
	if g.Wanted == nil {
		return nil
	}
	var out []overlay.Node
	for _, p := range g.Wanted.Peers {
		n := p.Node
		n.Name = cmp.Or(n.Name, n.Address.String())
		for color, list := range map[uint32]*[]netip.Addr{overlay.ColorIPv4: &n.IPv4, overlay.ColorIPv6: &n.IPv6} {
			if paths := g.Observed.PathsOf(overlay.Color{Color: color, Endpoint: n.Address}); len(*list) == 0 && len(paths) > 0 {
				*list = paths[0].SegmentLists[0].Segments
			}
		}
		if len(p.Problems) == 0 {
			out = append(out, n)
		}
	}
	return out
}

// Nodes are the others: those of the file or of Kubernetes, and the former ones
// that remain.
func (g *Goal) Nodes() []overlay.Node {
	o := &g.Desired.Process.Overlay
	if o.Mode == config.OverlayKube {
		return append(g.Observed.InOrder(), g.Observed.Remaining()...)
	}
	out := make([]overlay.Node, len(o.Nodes))
	for i, n := range o.Nodes {
		out[i] = overlay.Complete(n, o.SIDs == config.SIDsDouble)
	}
	return append(out, g.Observed.Remaining()...)
}

// Alone is g without what others say.
func (g *Goal) Alone() *Goal {
	next := *g
	next.Observed = g.Observed.Cleared()
	return next.Derive(g.Self, nil, Scope{})
}

// Diff lists the changes between two goals within a scope.
func (g *Goal) Diff(to *Goal, s Scope) ([]desired.Change, error) {
	from := g
	if desired.SameList(from.Desired.File, to.Desired.File) {
		// The change came through the API: the file's resources are the same, and
		// there may be many.
		a, b := *from, *to
		a.Desired.File, b.Desired.File = nil, nil
		from, to = &a, &b
	}
	return desired.Diff(from.resources(s), to.resources(s), from.Desired.Process, to.Desired.Process)
}

// Validate says whether what is in a scope holds together: with what others say
// and, because that may be gone at any time, without it. c is g.Config(s), and lists
// the number of segment lists that policies beyond the scope can have.
func (g *Goal) Validate(c *config.Config, s Scope, lists int) error {
	validate := (*config.Config).Validate
	if s.Policies != nil {
		validate = (*config.Config).ValidatePolicies
	}
	if err := validate(c); err != nil {
		return fmt.Errorf("%w: %w", desired.ErrInvalid, err)
	}
	if lists+c.MostLists() >= int(c.Limits.SegmentLists) {
		return fmt.Errorf("%w: limits.segment_lists: %d is too few", desired.ErrInvalid, c.Limits.SegmentLists)
	}
	if len(g.Derived) == 0 {
		return nil
	}
	asked := slices.DeleteFunc(g.resources(s), func(r desired.Resource) bool { return !r.Origin.Asked() })
	alone := desired.Config(asked, g.Desired.Process)
	alone.SetDefaults()
	if err := validate(alone); err != nil {
		return fmt.Errorf("%w: without what others say: %w", desired.ErrInvalid, err)
	}
	return nil
}

// Dangling names what refers to a deleted resource still, as ErrConflict.
func (g *Goal) Dangling(deleted []desired.Ref) error {
	if len(deleted) == 0 {
		return nil
	}
	gone := make(map[desired.Ref]bool, len(deleted))
	for _, r := range deleted {
		gone[r] = true
	}
	var errs []error
	for r := range g.All() {
		for _, used := range desired.Uses(r.Value) {
			if gone[used] {
				errs = append(errs, fmt.Errorf("%w: %s is used by %s: delete or change that first", desired.ErrConflict, used, r.Ref))
			}
		}
	}
	return errors.Join(errs...)
}

// CheckInterfaces says whether the interfaces exist that a configuration, which is
// the next in a scope, names for the first time: one that went away since is
// reported, not refused.
func (g *Goal) CheckInterfaces(to *config.Config, s Scope, links *netdev.Snapshot) error {
	known := make([]string, len(links.Links))
	for i, l := range links.Links {
		known[i] = l.Name
	}
	for _, r := range g.resources(s) {
		if name := r.Interface(); name != "" {
			known = append(known, name)
		}
	}
	if err := to.CheckInterfaces(known); err != nil {
		return fmt.Errorf("%w: %w", desired.ErrInvalid, err)
	}
	return nil
}

// SelfOf is this node as a member of its cluster. The configuration decides
// before Kubernetes, and Kubernetes before the node's links, of which the former
// address comes first.
func SelfOf(o *config.Overlay, k observed.Self, links *netdev.Snapshot, former netip.Addr) overlay.Self {
	s := overlay.Self{
		Name: observed.NodeName(o), Double: o.SIDs == config.SIDsDouble,
		DT4: k.SIDs.DT4, DT6: k.SIDs.DT6, DT46: k.SIDs.DT46, Tenants: o.Tenants,
	}
	var entry overlay.Node // of this node in the configuration's list
	if i := slices.IndexFunc(o.Nodes, func(n overlay.Node) bool { return n.Name == s.Name }); i >= 0 {
		entry = o.Nodes[i]
		s.DT4, s.DT6 = last(entry.IPv4, s.DT4), last(entry.IPv6, s.DT6)
	}
	s.Address = cmp.Or(o.Address, entry.Address)
	if i := slices.IndexFunc(k.Addresses, netip.Addr.Is6); !s.Address.IsValid() && i >= 0 {
		s.Address = k.Addresses[i]
	}
	if uplinks := Uplinks(o, nil, links); !s.Address.IsValid() && len(uplinks) > 0 {
		s.Address = uplinkAddress(uplinks, links, former)
	}
	if known := knownAddress(o, k); known != s.Address {
		s.Former = known
	}
	s.Locator = cmp.Or(o.Locator, entry.Locator, k.Locator)
	for _, prefixes := range [][]netip.Prefix{o.PodPrefixes, entry.Prefixes, k.PodCIDRs} {
		if len(s.Prefixes) == 0 {
			s.Prefixes = prefixes
		}
	}
	if s.Addresses = entry.Addresses; len(s.Addresses) == 0 {
		s.Addresses = slices.DeleteFunc(slices.Clone(k.Addresses), func(a netip.Addr) bool { return a == s.Address })
	}
	return s
}

// knownAddress is the address that the other nodes know. It is not valid if nobody knows yet.
func knownAddress(o *config.Overlay, k observed.Self) netip.Addr {
	switch o.Mode {
	case config.OverlayKube:
		return k.Told
	case config.OverlayBGP:
		return k.Advertised
	}
	return netip.Addr{}
}

// last is the last SID of a list; of an empty one it is other.
func last(list []netip.Addr, other netip.Addr) netip.Addr {
	if len(list) == 0 {
		return other
	}
	return list[len(list)-1]
}

// uplinkAddress is an address of the uplinks: the former one as long as it is
// there. Other addresses come and go, and tunnels need not move with them.
func uplinkAddress(uplinks []netdev.Link, links *netdev.Snapshot, former netip.Addr) netip.Addr {
	for _, l := range uplinks {
		if slices.Contains(links.GlobalAddresses(l.Index), former) {
			return former
		}
	}
	if there := links.GlobalAddresses(uplinks[0].Index); len(there) > 0 {
		return there[0]
	}
	return netip.Addr{}
}

// Uplinks are the interfaces that lead to other nodes.
func Uplinks(o *config.Overlay, peers []overlay.Peer, links *netdev.Snapshot) []netdev.Link {
	var others []netip.Addr
	for _, p := range peers {
		if !p.Unused {
			others = append(others, p.Address)
		}
	}
	return links.Uplinks(o.Uplinks, o.Address, others)
}

// SelfOn is this node on these links, and whether it differs from g.Self. A node
// stays a member when something is missing for a moment, an address for example.
func (g *Goal) SelfOn(links *netdev.Snapshot) (self overlay.Self, changed bool) {
	if o := &g.Desired.Process.Overlay; o.IsSet() {
		self = SelfOf(o, g.Observed.Self, links, g.Self.Address)
		if self.Missing() != "" {
			self = g.Self
		}
	}
	return self, !desired.Same(self, g.Self)
}
