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
	i := slices.IndexFunc(t.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Services[i]
}

// Pods are those of a node.
func (t *Topology) Pods(n *Node) (list []*Node) {
	for _, p := range t.Nodes {
		if p.Kind == Pod && p.Host == n.Name {
			list = append(list, p)
		}
	}
	return list
}

// ClusterNodes are the nodes of the cluster.
func (t *Topology) ClusterNodes() (list []*Node) {
	for _, n := range t.Nodes {
		if n.Kind == Cluster {
			list = append(list, n)
		}
	}
	return list
}

// APIServer is the node of that kind, or nil.
func (t *Topology) APIServer() *Node {
	i := slices.IndexFunc(t.Nodes, func(n *Node) bool { return n.Kind == APIServer })
	if i < 0 {
		return nil
	}
	return t.Nodes[i]
}

// Kubelets are the nodes of that kind.
func (t *Topology) Kubelets() (list []*Node) {
	for _, n := range t.Nodes {
		if n.Kind == Kubelet {
			list = append(list, n)
		}
	}
	return list
}

// FamilyNames that the Service has an address of.
func (s *Service) FamilyNames() (list []string) {
	if s.IPv4.IsValid() {
		list = append(list, IPv4)
	}
	if s.IPv6.IsValid() {
		list = append(list, IPv6)
	}
	return list
}

// IsReal says whether a node of the lab is a pod of a real kubelet's.
func (t *Topology) IsReal(n *Node) bool { return n.Kind == Pod && t.Node(n.Host).Kind == Kubelet }
