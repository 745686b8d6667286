package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

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
		if !NameForm.MatchString(s.Name) {
			return fmt.Errorf("services[%d]: name: %q: use lower-case letters, digits and '-'", i, s.Name)
		}
		for _, name := range s.Pods() {
			if p := t.Node(name); p == nil || p.Kind != Pod {
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
	if on := t.Node(n.Host); on == nil || on.Kind != Cluster && on.Kind != Kubelet {
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

func (i *ISIS) Validate(t *Topology, n *Node) error {
	if i.System < 1 || i.System > 9999 {
		return fmt.Errorf("isis: system: %d: give a number from 1 to 9999", i.System)
	}
	for device := range i.Metrics {
		if !slices.Contains(t.Devices(n), device) {
			return fmt.Errorf("isis: metrics: %s has no link %q", n.Name, device)
		}
	}
	return validatePrefixes("isis: kernel", i.Kernel)
}

// proxyModes are what kube-proxy can translate by.
var proxyModes = []string{"nftables", "iptables"}

// Names of nodes become parts of file and namespace names.
var NameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func (t *Topology) validate() error {
	if !NameForm.MatchString(t.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", t.Name)
	}
	seen := map[string]bool{}
	for i, n := range t.Nodes {
		if err := n.validate(); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
		if seen[n.Name] {
			return fmt.Errorf("nodes[%d]: name: %q is there twice", i, n.Name)
		}
		seen[n.Name] = true
	}
	if err := t.validateSMFs(); err != nil {
		return err
	}
	if err := t.validateCluster(); err != nil {
		return err
	}
	if err := t.validateVariants(); err != nil {
		return err
	}
	devices := map[string]bool{}
	for i, l := range t.Links {
		if err := t.validateLink(l, devices); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
	}
	for i, n := range t.Nodes {
		if n.FRR != nil && n.FRR.ISIS != nil {
			if err := n.FRR.ISIS.Validate(t, n); err != nil {
				return fmt.Errorf("nodes[%d]: %w", i, err)
			}
		}
	}
	for i := range t.Setup {
		if err := t.validateEvent(&t.Setup[i]); err != nil {
			return fmt.Errorf("setup[%d]: %w", i, err)
		}
	}
	names := map[string]bool{}
	for i := range t.Checks {
		c := &t.Checks[i]
		if err := t.validateCheck(c); err != nil {
			return fmt.Errorf("checks[%d] (%s): %w", i, c.Name, err)
		}
		if names[c.Name] {
			return fmt.Errorf("checks[%d]: name: %q is there twice", i, c.Name)
		}
		names[c.Name] = true
	}
	return nil
}

func (t *Topology) validateLink(l Link, devices map[string]bool) error {
	if len(l.Ends) != 2 {
		return fmt.Errorf("ends: %d given: a link has two", len(l.Ends))
	}
	for _, e := range l.Ends {
		if t.Node(e.Node) == nil {
			return fmt.Errorf("ends: no node is called %q", e.Node)
		}
		if err := validateInterface(e.Name); err != nil {
			return fmt.Errorf("ends: %w", err)
		}
		if devices[e.Node+" "+e.Name] {
			return fmt.Errorf("ends: node %s has two interfaces %q", e.Node, e.Name)
		}
		devices[e.Node+" "+e.Name] = true
		if err := validatePrefixes("addresses", e.Addresses); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) validate() error {
	if !NameForm.MatchString(n.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", n.Name)
	}
	switch n.Kind {
	case Host, Kernel, FRR, Culvert, Cluster, Pod, APIServer, Kubelet, Switch, SMFs:
	default:
		return fmt.Errorf("kind: %q: use host, kernel, frr, culvert, cluster, pod, apiserver, kubelet, switch or smf", n.Kind)
	}
	if n.Daemon() != (n.Config != nil) {
		return fmt.Errorf("config: %s: a node of kind culvert or cluster has one, others do not", n.Name)
	}
	if !n.Daemon() && len(n.N9)+len(n.Modes)+len(n.Overlays) > 0 {
		return fmt.Errorf("n9, modes, overlays: %s: only a node of kind culvert or cluster has a configuration to change", n.Name)
	}
	if (n.Kind == SMFs) != (len(n.SMFs) > 0) {
		return fmt.Errorf("smfs: %s: a node of kind smf has some, others do not", n.Name)
	}
	if n.Kind == FRR && n.FRR == nil {
		return fmt.Errorf("frr: %s: a node of kind frr says what FRR runs", n.Name)
	}
	if n.Kind != Cluster && (len(n.PodCIDRs) > 0 || n.Proxy != "" && n.Kind != Kubelet || len(n.Labels) > 0) {
		return fmt.Errorf("pod_cidrs, proxy, labels: %s: only a node of kind cluster has them, and one of kind kubelet proxy", n.Name)
	}
	if n.Kind == Kubelet && n.Proxy == "" {
		return fmt.Errorf("proxy: %s: missing: use %s", n.Name, strings.Join(proxyModes, " or "))
	}
	if n.Proxy != "" && !slices.Contains(proxyModes, n.Proxy) {
		return fmt.Errorf("proxy: %q: use %s", n.Proxy, strings.Join(proxyModes, " or "))
	}
	for i := range n.GTPU {
		if err := n.GTPU[i].Validate(); err != nil {
			return fmt.Errorf("gtpu[%d]: %w", i, err)
		}
	}
	for i, d := range n.Devices {
		if err := d.validate(); err != nil {
			return fmt.Errorf("devices[%d]: %w", i, err)
		}
	}
	return validatePrefixes("addresses", n.Addresses)
}

func (d Device) validate() error {
	if err := validateInterface(d.Name); err != nil {
		return err
	}
	if d.Type == "" {
		return fmt.Errorf("type: missing: %s is of none", d.Name)
	}
	return validatePrefixes("addresses", d.Addresses)
}

// validateInterface: 15 bytes is what the kernel takes as an interface's name.
func validateInterface(name string) error {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ ") {
		return fmt.Errorf("name: %q is no interface name of at most 15 bytes", name)
	}
	return nil
}

func validatePrefixes(field string, list []string) error {
	for _, s := range list {
		if _, err := netip.ParsePrefix(s); err != nil {
			return fmt.Errorf("%s: %q: give an address and its prefix length, as in 10.0.0.1/24", field, s)
		}
	}
	return nil
}
