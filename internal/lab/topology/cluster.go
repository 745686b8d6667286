package topology

import (
	"net/netip"
	"slices"
)

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) string {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Families of addresses, as checks name them.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// Service is an address of the cluster that stands for one pod.
type Service struct {
	Name string     `json:"name"`
	IPv4 netip.Addr `json:"ipv4,omitzero"`
	IPv6 netip.Addr `json:"ipv6,omitzero"`
	Port uint16     `json:"port"`
	// TargetPort is the pod's, and NodePort that of all nodes.
	TargetPort uint16 `json:"target_port"`
	NodePort   uint16 `json:"node_port,omitempty"`
	Pod        string `json:"pod"`
	// What only kube-proxy does: Also are more pods behind it, Local takes what
	// comes from outside only where one of them is (externalTrafficPolicy), and
	// Affinity has a client stay with one of them.
	Also     []string `json:"also,omitempty"`
	Local    bool     `json:"local,omitempty"`
	Affinity bool     `json:"affinity,omitempty"`
}

// Pods are all that are behind it.
func (s *Service) Pods() []string { return append([]string{s.Pod}, s.Also...) }

// ByProxy says that only kube-proxy translates it.
func (s *Service) ByProxy() bool { return len(s.Also) > 0 || s.Local || s.Affinity }

// Service returns the one called name, or nil.
func (t *Topology) Service(name string) *Service {
	for i := range t.Services {
		if t.Services[i].Name == name {
			return &t.Services[i]
		}
	}
	return nil
}

// Select returns the nodes for which keep holds.
func (t *Topology) Select(keep func(*Node) bool) (list []*Node) {
	for _, n := range t.Nodes {
		if keep(n) {
			list = append(list, n)
		}
	}
	return list
}

// Pods are those of a node.
func (t *Topology) Pods(n *Node) []*Node {
	return t.Select(func(p *Node) bool { return p.Kind == Pod && p.Host == n.Name })
}

// ClusterNodes are the nodes of kind cluster.
func (t *Topology) ClusterNodes() []*Node {
	return t.Select(func(n *Node) bool { return n.Kind == Cluster })
}

// Kubelets are the nodes of kind kubelet.
func (t *Topology) Kubelets() []*Node {
	return t.Select(func(n *Node) bool { return n.Kind == Kubelet })
}

// APIServer is the first node of kind apiserver, or nil.
func (t *Topology) APIServer() *Node {
	return first(t.Nodes, func(n *Node) bool { return n.Kind == APIServer })
}

// Addresses of the Service, one of each family that it has.
func (s *Service) Addresses() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{s.IPv4, s.IPv6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// HasSuites says whether checks of a lab run tests of Kubernetes', which need more of a cluster.
func HasSuites(t *Topology) bool {
	return slices.ContainsFunc(t.Checks, func(c Check) bool { return c.Kind == "suite" })
}

// IsReal says whether a node of the lab is a pod of a real kubelet's.
func (t *Topology) IsReal(n *Node) bool { return n.Kind == Pod && t.Node(n.Host).Kind == Kubelet }
