package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Families of addresses, as checks name them.
const (
	ipv4 = "ipv4"
	ipv6 = "ipv6"
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
}

// service returns the one called name, or nil.
func (t *Topology) service(name string) *Service {
	i := slices.IndexFunc(t.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Services[i]
}

// pods are those of a node.
func (t *Topology) pods(n *Node) (list []*Node) {
	for _, p := range t.Nodes {
		if p.Kind == Pod && p.Host == n.Name {
			list = append(list, p)
		}
	}
	return list
}

// clusterNodes are the nodes of the cluster.
func (t *Topology) clusterNodes() (list []*Node) {
	for _, n := range t.Nodes {
		if n.Kind == Cluster {
			list = append(list, n)
		}
	}
	return list
}

// apiServer is the node of that kind, or nil.
func (t *Topology) apiServer() *Node {
	i := slices.IndexFunc(t.Nodes, func(n *Node) bool { return n.Kind == APIServer })
	if i < 0 {
		return nil
	}
	return t.Nodes[i]
}

func (t *Topology) validateCluster() error {
	for i, n := range t.Nodes {
		if err := t.validatePod(n); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
		if err := validatePrefixes("pod_cidrs", n.PodCIDRs); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
	}
	for i, s := range t.Services {
		if !nameForm.MatchString(s.Name) {
			return fmt.Errorf("services[%d]: name: %q: use lower-case letters, digits and '-'", i, s.Name)
		}
		if p := t.node(s.Pod); p == nil || p.Kind != Pod {
			return fmt.Errorf("services[%d]: pod: no pod is called %q", i, s.Pod)
		}
		if s.Port == 0 || s.TargetPort == 0 {
			return fmt.Errorf("services[%d]: port, target_port: missing", i)
		}
	}
	return nil
}

func (t *Topology) validatePod(n *Node) error {
	if n.Kind != Pod {
		if n.Host != "" || len(n.HostPorts) > 0 {
			return fmt.Errorf("host, host_ports: %s is no pod", n.Name)
		}
		return nil
	}
	if on := t.node(n.Host); on == nil || on.Kind != Cluster && on.Kind != Kubelet {
		return fmt.Errorf("host: %q is no node of kind cluster or kubelet", n.Host)
	}
	for _, p := range n.HostPorts {
		if p.Host == 0 || p.Pod == 0 || p.Protocol != "tcp" && p.Protocol != "udp" {
			return errors.New("host_ports: give host, pod and protocol, which is tcp or udp")
		}
	}
	return nil
}

// address of a node, pod or Service, in a family.
func (in *instance) address(name, family string) (netip.Addr, error) {
	var list []netip.Addr
	switch n := in.node(name); {
	case n == nil:
		s := in.service(name)
		if s == nil {
			return netip.Addr{}, fmt.Errorf("no node, pod or Service is called %q", name)
		}
		list = []netip.Addr{s.IPv4, s.IPv6}
	case n.Kind == Pod:
		list = in.state.Pods[name]
	default:
		list = in.addresses(n)
	}
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.IsValid() && a.Is4() == (family == ipv4) })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("%s has no %s address", name, family)
	}
	return list[i], nil
}

// addresses of a node's links, then those of its loopback device.
func (t *Topology) addresses(n *Node) (list []netip.Addr) {
	var texts []string
	for _, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node == n.Name {
				texts = append(texts, e.Addresses...)
			}
		}
	}
	for _, text := range append(texts, n.Addresses...) {
		list = append(list, netip.MustParsePrefix(text).Addr()) // they are valid: validatePrefixes
	}
	return list
}

// resolve puts addresses in the place of the names of a check.
func (in *instance) resolve(c *Check, family string) (*Check, error) {
	if c.ToName == "" {
		return c, nil
	}
	r := *c
	var err error
	if r.To, err = in.address(c.ToName, family); err != nil {
		return nil, err
	}
	if c.Both {
		if r.Source, err = in.address(c.From, family); err != nil {
			return nil, err
		}
	}
	if s := in.service(c.ToName); s != nil {
		r.Port, r.At, r.AtPort = s.Port, s.Pod, s.TargetPort
	}
	if s := in.service(c.NodePort); s != nil {
		r.Port, r.At, r.AtPort = s.NodePort, s.Pod, s.TargetPort
	}
	if r.At != "" && r.AtPort != 0 {
		at, err := in.address(r.At, family)
		if err != nil {
			return nil, err
		}
		r.listen = netip.AddrPortFrom(at, r.AtPort)
	}
	return &r, nil
}

// translation is what each node does for Services, in nft's language: the way of
// kube-proxy, with one backend for each. Who comes from outside, and a pod that
// comes back to itself, gets the node's address, so that answers do.
func (in *instance) translation() string {
	var b strings.Builder
	for _, family := range []string{ipv4, ipv6} {
		ip := map[string]string{ipv4: "ip", ipv6: "ip6"}[family]
		// It takes the place of an earlier one, if there is one.
		fmt.Fprintf(&b, "table %s services {}\ndelete table %s services\ntable %s services {\n", ip, ip, ip)
		for _, hook := range []string{"prerouting", "output"} {
			fmt.Fprintf(&b, "chain %s {\ntype nat hook %s priority -100\n", hook, hook)
			in.translations(&b, ip, family)
			b.WriteString("}\n")
		}
		fmt.Fprint(&b, "chain postrouting {\ntype nat hook postrouting priority 100\nmeta mark & 0x4000 == 0x4000 meta mark set meta mark & 0xffffbfff masquerade\n}\n}\n")
	}
	return b.String()
}

func (in *instance) translations(b *strings.Builder, ip, family string) {
	for _, s := range in.Services {
		vip, err1 := in.address(s.Name, family)
		pod, err2 := in.address(s.Pod, family)
		if err1 != nil || err2 != nil {
			continue // of the other family only, or without a pod at the moment
		}
		to := netip.AddrPortFrom(pod, s.TargetPort)
		for _, protocol := range []string{"tcp", "udp"} {
			fmt.Fprintf(b, "%s daddr %s %s dport %d %s saddr %s meta mark set 0x4000\n", ip, vip, protocol, s.Port, ip, pod)
			fmt.Fprintf(b, "%s daddr %s %s dport %d dnat to %s\n", ip, vip, protocol, s.Port, to)
			if s.NodePort != 0 {
				fmt.Fprintf(b, "fib daddr type local %s dport %d meta mark set 0x4000 dnat to %s\n", protocol, s.NodePort, to)
			}
		}
	}
}

// loadNFT loads a ruleset in a node.
func (in *instance) loadNFT(n *Node, rules string) error {
	if rules == "" {
		return nil
	}
	return in.namespace(n).Do(func() error { return pipe(rules, "nft", "-f", "-") })
}

// translate has a node translate what is for Services.
func (in *instance) translate(n *Node) error {
	if n.Kind != Cluster || len(in.Services) == 0 {
		return nil
	}
	return in.loadNFT(n, in.translation())
}
