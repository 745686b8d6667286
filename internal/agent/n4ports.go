package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// n4Ports returns the indexes of the interfaces by which PFCP may come in: those that
// have an address of n4. SMFs reach an address of the loopback or of a dummy interface
// by any interface that the configuration lists.
func n4Ports(n4 []netip.Addr, listed map[string]bool, links *netdev.Snapshot) []int {
	ports := map[int]bool{}
	for _, a := range links.Addresses {
		if !slices.Contains(n4, a.Prefix.Addr()) {
			continue
		}
		ports[a.Ifindex] = true
		if l, _ := links.LinkByIndex(a.Ifindex); !l.Loopback && l.Kind != "dummy" {
			continue
		}
		for _, l := range links.Links {
			if listed[l.Name] {
				ports[l.Index] = true
				addStacked(ports, l, links)
			}
		}
	}
	return slices.Sorted(maps.Keys(ports))
}

// listed returns the names of the interfaces that the configuration lists.
func listed(goal *plan.Goal) map[string]bool {
	names := map[string]bool{}
	for r := range goal.All() {
		if v, is := r.Value.(config.Interface); is {
			names[v.Name] = true
		}
	}
	return names
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
