package instance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Address of a node, pod or Service, in a family.
func (in *Instance) Address(name, family string) (netip.Addr, error) {
	var list []netip.Addr
	switch n := in.Node(name); {
	case n == nil:
		s := in.Service(name)
		if s == nil {
			return netip.Addr{}, fmt.Errorf("no node, pod or Service is called %q", name)
		}
		list = s.Addresses()
	case n.Kind == topology.Pod:
		list = in.State.Pods[name]
	default:
		list = in.Addresses(n)
	}
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return topology.FamilyOf(a) == family })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("%s has no %s address", name, family)
	}
	return list[i], nil
}
