package cluster

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// podRanges are those of a cluster whose nodes are kubelets, by family: each node
// gets a part of each. serviceRanges are those of Services.
var (
	podRanges     = map[string]string{topology.IPv4: "10.244.0.0/16", topology.IPv6: "fd00:10:244::/48"}
	serviceRanges = map[string]string{topology.IPv4: "10.96.0.0/16", topology.IPv6: "fd00:10:96::/112"}
)

// Families that the cluster knows, that of kube-apiserver first. A variant that is
// called like a family has no other.
func Families(in *instance.Instance) []string {
	if v := in.State.Variant; v == topology.IPv4 || v == topology.IPv6 {
		return []string{v}
	}
	if in.APIServer() != nil && in.Addresses(in.APIServer())[0].Is6() {
		return []string{topology.IPv6, topology.IPv4}
	}
	return []string{topology.IPv4, topology.IPv6}
}

// ranges are those of the cluster's families, with a comma between.
func ranges(in *instance.Instance, of map[string]string) string {
	var list []string
	for _, family := range Families(in) {
		list = append(list, of[family])
	}
	return strings.Join(list, ",")
}

// known are the addresses of a node that the cluster knows.
func known(in *instance.Instance, n *topology.Node) []netip.Addr {
	return slices.DeleteFunc(in.Addresses(n), func(a netip.Addr) bool { return !slices.Contains(Families(in), topology.FamilyOf(a)) })
}
