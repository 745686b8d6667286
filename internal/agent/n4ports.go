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
// configuration lists with the role n4, and those that have an address of n4 and that it
// does not list, or lists without roles. SMFs reach an address of the loopback or of a
// dummy interface also by those without roles.
func n4Ports(n4 []netip.Addr, listed map[string]config.Interface, links *netdev.Snapshot) []int {
	ports := map[int]bool{}
	isInside := false // an address is on no interface to others
	for _, a := range links.Addresses {
		if !slices.Contains(n4, a.Prefix.Addr()) {
			continue
		}
		l, _ := links.LinkByIndex(a.Ifindex)
		ports[a.Ifindex] = len(listed[l.Name].Roles) == 0
		isInside = isInside || l.Loopback || l.Kind == "dummy"
	}
	for _, l := range links.Links {
		in, isListed := listed[l.Name]
		if in.HasRole(config.RoleN4) || isListed && isInside && len(in.Roles) == 0 {
			ports[l.Index] = true
			addStacked(ports, l, links)
		}
	}
	maps.DeleteFunc(ports, func(_ int, heard bool) bool { return !heard })
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
