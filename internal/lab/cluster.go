package lab

import (
	"context"
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
	// What only kube-proxy does: Also are more pods behind it, Local takes what
	// comes from outside only where one of them is (externalTrafficPolicy), and
	// Affinity has a client stay with one of them.
	Also     []string `json:"also,omitempty"`
	Local    bool     `json:"local,omitempty"`
	Affinity bool     `json:"affinity,omitempty"`
}

// pods are all that are behind it.
func (s *Service) pods() []string { return append([]string{s.Pod}, s.Also...) }

// byProxy says that only kube-proxy translates it.
func (s *Service) byProxy() bool { return len(s.Also) > 0 || s.Local || s.Affinity }

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
		for _, name := range s.pods() {
			if p := t.node(name); p == nil || p.Kind != Pod {
				return fmt.Errorf("services[%d]: pod: no pod is called %q", i, name)
			}
		}
		if s.Port == 0 || s.TargetPort == 0 {
			return fmt.Errorf("services[%d]: port, target_port: missing", i)
		}
	}
	return nil
}

func (t *Topology) validatePod(n *Node) error {
	if n.Kind != Pod {
		if n.Host != "" || len(n.HostPorts) > 0 || n.Bandwidth != nil {
			return fmt.Errorf("host, host_ports, bandwidth: %s is no pod", n.Name)
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
	if b := n.Bandwidth; b != nil && (b.Ingress <= 0 || b.Egress <= 0) {
		return errors.New("bandwidth: give ingress and egress, in kbit/s")
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

// noTranslation takes the rules of translation away, if they are there.
const noTranslation = "table ip services {}\ndelete table ip services\ntable ip6 services {}\ndelete table ip6 services\n"

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
		if s.byProxy() {
			continue
		}
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

// serve has a node translate what is for Services: by kube-proxy where there is a
// Kubernetes API, which is told of them, else by rules of our own.
func (in *instance) serve(ctx context.Context, n *Node) error {
	switch kube := in.state.Variant == kubeMode; {
	case len(in.Services) == 0:
		return nil
	case n.Kind == APIServer && kube:
		return in.putServices(ctx, in.Services)
	case n.Kind != Cluster:
		return nil
	case kube && n.Proxy != "":
		return errors.Join(in.loadNFT(n, noTranslation), in.startProxy(ctx, n))
	}
	return errors.Join(in.stopProxy(n), in.loadNFT(n, in.translation()))
}

// moved has Services follow a pod to its new addresses.
func (in *instance) moved(ctx context.Context, p *Node) error {
	services := slices.DeleteFunc(slices.Clone(in.Services), func(s Service) bool { return !slices.Contains(s.pods(), p.Name) })
	if len(services) == 0 {
		return nil
	}
	if in.state.Variant == kubeMode {
		return in.putServices(ctx, services)
	}
	var errs []error
	for _, n := range in.clusterNodes() {
		errs = append(errs, in.serve(ctx, n))
	}
	return errors.Join(errs...)
}
