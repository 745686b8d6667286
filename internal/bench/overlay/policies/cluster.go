package policies

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/overlay/clusterapi"
)

// Names and addresses of the cluster: the node that is measured, and one that is not there, whose
// pods are the other ends of all flows.
const (
	ownNode   = "bench"
	otherNode = "other"
	namespace = "bench"
)

var (
	ownAddress   = netip.MustParseAddr("2001:db8:2::1") // of out0, and beside it
	ownIPv4      = netip.MustParseAddr("198.51.100.1")  // of out0
	otherAddress = netip.MustParseAddr("2001:db8:2::2")
	ownSID       = netip.MustParseAddr("fc00:0:1:4::") // End.DT4
	otherSID     = netip.MustParseAddr("fc00:0:2:4::")
	ownPods      = netip.MustParsePrefix("10.244.1.0/24")
	otherPods    = netip.MustParsePrefix("10.245.0.0/16")

	outsidePrefix = netip.MustParsePrefix("10.246.0.0/16") // by the kernel's default route
)

// remote is the address of a pod of the other node.
func remote(number int) netip.Addr { return within(otherPods, number) }

// outside is an address outside of the cluster.
func outside(number int) netip.Addr { return within(outsidePrefix, number) }

func within(p netip.Prefix, number int) netip.Addr {
	a := p.Addr().As4()
	a[2], a[3] = byte(number>>8), byte(number)
	return netip.AddrFrom4(a)
}

// fillCluster puts what the agent follows: Nodes, and the Pods that are measured.
func fillCluster(s *clusterapi.Server, pods []string) error {
	self, err := json.Marshal(map[string]any{"address": otherAddress, "locator": "fc00:0:2::/48", "prefixes": []netip.Prefix{otherPods}, "ipv4": []netip.Addr{otherSID}})
	if err != nil {
		return err
	}
	for name, x := range map[string]struct {
		address netip.Addr
		pods    netip.Prefix
		says    string
	}{ownNode: {ownAddress, ownPods, ""}, otherNode: {otherAddress, otherPods, string(self)}} {
		meta := clusterapi.Object{"name": name}
		if x.says != "" {
			meta["annotations"] = clusterapi.Object{"culvert.net/overlay": x.says}
		}
		s.Put("nodes", clusterapi.Object{
			"apiVersion": "v1", "kind": "Node", "metadata": meta,
			"spec":   clusterapi.Object{"podCIDRs": []any{x.pods.String()}},
			"status": clusterapi.Object{"addresses": []any{clusterapi.Object{"type": "InternalIP", "address": x.address.String()}}},
		})
	}
	s.Put("namespaces", clusterapi.Object{"apiVersion": "v1", "kind": "Namespace", "metadata": clusterapi.Object{"name": namespace}})
	for _, name := range pods {
		s.Put("pods", clusterapi.Object{
			"apiVersion": "v1", "kind": "Pod", "metadata": clusterapi.Object{"namespace": namespace, "name": name, "uid": name, "labels": clusterapi.Object{"app": name}},
			"spec": clusterapi.Object{"nodeName": ownNode},
		})
	}
	return nil
}

// Ports of all packets.
const (
	remotePort = 40000
	podPort    = 8000
)

// putPolicy has a policy of that name isolate a pod in both directions by so many rules each: they allow all
// remotes, of which at has the addresses, each rule as many as the others, and no two rules the same one.
func putPolicy(s *clusterapi.Server, name, pod string, rules, remotes int, at func(int) netip.Addr) {
	each, bits := 1, 32 // addresses of a rule: a power of two
	for ; each*rules < remotes; bits-- {
		each *= 2
	}
	side := func(field string, port int) (list []any) {
		for i := range rules {
			block := netip.PrefixFrom(at(i*each), bits).String()
			list = append(list, clusterapi.Object{
				field:   []any{clusterapi.Object{"ipBlock": clusterapi.Object{"cidr": block}}},
				"ports": []any{clusterapi.Object{"protocol": "UDP", "port": port}},
			})
		}
		return list
	}
	s.Put("networking.k8s.io/networkpolicies", clusterapi.Object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": clusterapi.Object{"namespace": namespace, "name": name},
		"spec": clusterapi.Object{
			"podSelector": clusterapi.Object{"matchLabels": clusterapi.Object{"app": pod}}, "policyTypes": []any{"Ingress", "Egress"},
			"ingress": side("from", podPort), "egress": side("to", remotePort),
		},
	})
}

// kubeconfig is how the agent finds the Server.
func kubeconfig(address string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: "http://%s"}}]
users: [{name: bench, user: {}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
`, address)
}

// uplink is the node's interface to the others.
const uplink = node.PortOut
