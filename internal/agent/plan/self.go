package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
)

// SelfOf is this node as a member of its cluster. The configuration decides
// before Kubernetes, and Kubernetes before the node's links, of which the former
// address comes first.
func SelfOf(o *config.Overlay, k observed.Self, links *netdev.Snapshot, former netip.Addr) overlay.Self {
	s := overlay.Self{
		Name: observed.NodeName(o), Double: o.SIDs == config.SIDsDouble,
		DT4: k.SIDs.DT4, DT6: k.SIDs.DT6, DT46: k.SIDs.DT46,
	}
	var entry overlay.Node // of this node in the configuration's list
	if i := slices.IndexFunc(o.Nodes, func(n overlay.Node) bool { return n.Name == s.Name }); i >= 0 {
		entry = o.Nodes[i]
		s.DT4, s.DT6 = last(entry.IPv4, s.DT4), last(entry.IPv6, s.DT6)
	}
	s.Address = cmp.Or(o.Address, entry.Address, k.IPv6())
	if uplinks := Uplinks(o, nil, links); !s.Address.IsValid() && len(uplinks) > 0 {
		s.Address = uplinkAddress(uplinks, links, former)
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
	others := make([]netip.Addr, len(peers))
	for i, p := range peers {
		others[i] = p.Address
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
