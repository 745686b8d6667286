package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// n4Ports returns the indexes of the interfaces by which PFCP may come in: those that the
// configuration lists with the role n4, or any, and those that have an address of n4 and
// that it does not list.
func n4Ports(n4 []netip.Addr, listed map[string]config.Interface, links *netdev.Snapshot) []int {
	ports := map[int]bool{}
	for _, l := range links.Links {
		in, isListed := listed[l.Name]
		isHere := slices.ContainsFunc(links.Addresses, func(a netdev.Address) bool {
			return a.Ifindex == l.Index && slices.Contains(n4, a.Prefix.Addr())
		})
		switch {
		case in.HasRole(config.RoleN4, config.RoleAny):
			ports[l.Index] = true
			addStacked(ports, l, links)
		case isHere && !isListed:
			ports[l.Index] = true
		}
	}
	return slices.Sorted(maps.Keys(ports))
}

// listed returns the interfaces that the configuration lists, by name.
func listed(goal *plan.Goal) map[string]config.Interface {
	interfaces := map[string]config.Interface{}
	for r := range goal.All() {
		if v, is := r.Value.(config.Interface); is {
			interfaces[v.Name] = v
		}
	}
	return interfaces
}

// addStacked adds the interfaces that the kernel names in place of one: its bond or
// bridge, and the VLANs on top.
func addStacked(ports map[int]bool, below netdev.Link, links *netdev.Snapshot) {
	for _, l := range links.Links {
		isVLAN := l.Kind == "vlan" && l.Parent == below.Index && !l.ParentElsewhere
		if !ports[l.Index] && (isVLAN || l.Index == below.Master) {
			ports[l.Index] = true
			addStacked(ports, l, links)
		}
	}
}
