package topology

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// NameForm is the form of all names: they become parts of file and namespace names.
var NameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// proxyModes are what kube-proxy can translate by.
var proxyModes = []string{"nftables", "iptables"}

// kinds of nodes.
var kinds = []Kind{Host, Kernel, FRR, Culvert, Cluster, Pod, APIServer, Kubelet, Switch, SMFs, Core, Machine}

// validator collects what is wrong with a topology, each with the path of its field.
type validator struct {
	t        *Topology
	at       string
	problems *[]error
}

// in is a validator of something below.
func (v validator) in(format string, args ...any) validator {
	v.at += fmt.Sprintf(format, args...) + ": "
	return v
}

// want notes a problem unless ok, and returns ok.
func (v validator) want(ok bool, format string, args ...any) bool {
	if !ok {
		v.none(fmt.Errorf(format, args...))
	}
	return ok
}

// none records err unless it is nil. It reports whether err is nil.
func (v validator) none(err error) bool {
	if err != nil {
		*v.problems = append(*v.problems, fmt.Errorf("%s%w", v.at, err))
	}
	return err == nil
}

// name wants a well-formed name that nobody else has.
func (v validator) name(name string, seen map[string]bool) {
	v.want(NameForm.MatchString(name), "name: %q: use lower-case letters, digits and '-'", name)
	v.want(!seen[name], "name: %q is there twice", name)
	seen[name] = true
}

func (v validator) prefixes(field string, list []string) {
	for _, s := range list {
		_, err := netip.ParsePrefix(s)
		v.want(err == nil, "%s: %q: give an address and its prefix length, as in 10.0.0.1/24", field, s)
	}
}

// device: 15 bytes is what the kernel takes as an interface's name.
func (v validator) device(name string) {
	v.want(name != "" && len(name) <= 15 && !strings.ContainsAny(name, "/ "), "name: %q is no interface name of at most 15 bytes", name)
}

// exists wants the topology to have a node.
func (v validator) exists(name string) bool {
	return v.want(v.t.Node(name) != nil, "no node is called %q", name)
}

func (v validator) topology() {
	v.name(v.t.Name, map[string]bool{})
	v.want(len(v.t.N9) == 0 || len(v.t.Modes) == 0, "n9, modes: a lab has variants of one of them")
	nodes, smfs, devices, checks, programs := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, n := range v.t.Nodes {
		v.in("nodes[%d]", i).node(n, nodes, smfs)
		v.in("nodes[%d]", i).programs(n, programs)
	}
	v.in("outside").outside(v.t.Outside)
	for i, s := range v.t.Services {
		in := v.in("services[%d]", i)
		in.name(s.Name, map[string]bool{})
		for _, name := range s.Pods() {
			p := v.t.Node(name)
			in.want(p != nil && p.Kind == Pod, "pod: no pod is called %q", name)
		}
		in.want(s.Port != 0 && s.TargetPort != 0, "port, target_port: missing")
	}
	for i, l := range v.t.Links {
		in := v.in("links[%d]", i)
		in.want(len(l.Ends) == 2, "ends: %d given: a link has two", len(l.Ends))
		in = in.in("ends")
		for _, e := range l.Ends {
			n := v.t.Node(e.Node)
			in.want(l.Kbits == 0 || l.Kbits > 0 && n != nil && (n.Kind == FRR || n.Kind == Kernel), "kbit_s: %s is no router of the kernel", e.Node)
			in.exists(e.Node)
			in.device(e.Name)
			in.want(!devices[e.Node+" "+e.Name], "node %s has two interfaces %q", e.Node, e.Name)
			devices[e.Node+" "+e.Name] = true
			in.prefixes("addresses", e.Addresses)
		}
	}
	if len(*v.problems) > 0 {
		return // what follows names nodes and SMFs, and takes them for valid
	}
	for i := range v.t.Setup {
		v.in("setup[%d]", i).event(&v.t.Setup[i])
	}
	for i := range v.t.Checks {
		c := &v.t.Checks[i]
		in := v.in("checks[%d] (%s)", i, c.Name)
		in.check(c)
		in.want(!checks[c.Name], "name: %q is there twice", c.Name)
		checks[c.Name] = true
	}
}

func (v validator) node(n *Node, seen, smfs map[string]bool) {
	v.name(n.Name, seen)
	v.want(slices.Contains(kinds, n.Kind), "kind: %q: use one of %s", n.Kind, kinds)
	v.want(n.Daemon() == (n.Config != nil), "config: %s: a node of kind culvert or cluster has one, others do not", n.Name)
	v.want(n.Daemon() || len(n.N9)+len(n.Modes)+len(n.Overlays) == 0,
		"n9, modes, overlays: %s: only a node of kind culvert or cluster has a configuration to change", n.Name)
	v.want((n.Kind == SMFs) == (len(n.SMFs) > 0), "smfs: %s: a node of kind smf has some, others do not", n.Name)
	v.want(n.Kind != FRR || n.FRR != nil, "frr: %s: a node of kind frr says what FRR runs", n.Name)
	v.want(n.Kind == Cluster || len(n.PodCIDRs)+len(n.Labels) == 0 && (n.Proxy == "" || n.Kind == Kubelet),
		"pod_cidrs, proxy, labels: %s: only a node of kind cluster has them, and one of kind kubelet proxy", n.Name)
	v.want(n.Proxy == "" && n.Kind != Kubelet || slices.Contains(proxyModes, n.Proxy), "proxy: %q: use %s", n.Proxy, strings.Join(proxyModes, " or "))
	v.none(v.t.hasVariants(Variants{N9: keys(n.N9), Modes: keys(n.Modes)}))
	if n.Kind == Pod {
		on := v.t.Node(n.Host)
		v.want(on != nil && (on.Kind == Cluster || on.Kind == Kubelet), "host: %q is no node of kind cluster or kubelet", n.Host)
		for _, p := range n.HostPorts {
			v.want(p.Host != 0 && p.Pod != 0 && (p.Protocol == "tcp" || p.Protocol == "udp"), "host_ports: give host, pod and protocol, which is tcp or udp")
		}
		v.want(n.Tenant == "" || on == nil || on.Kind == Cluster, "tenant: %s is no node of kind cluster", n.Host)
		v.want(n.Bandwidth == nil || n.Bandwidth.Ingress > 0 && n.Bandwidth.Egress > 0, "bandwidth: give ingress and egress, in kbit/s")
	} else {
		v.want(n.Host == "" && len(n.HostPorts) == 0 && n.Bandwidth == nil && n.Tenant == "", "host, host_ports, bandwidth, tenant: %s is no pod", n.Name)
	}
	for i := range n.GTPU {
		v.in("gtpu[%d]", i).none(n.GTPU[i].Validate())
	}
	for i, d := range n.Devices {
		in := v.in("devices[%d]", i)
		in.device(d.Name)
		in.want(d.Type != "", "type: missing: %s is of none", d.Name)
		in.prefixes("addresses", d.Addresses)
	}
	for i, s := range n.SMFs {
		in := v.in("smfs[%d]", i)
		in.name(s.Name, smfs)
		in.none(s.read(n))
	}
	if n.FRR != nil && n.FRR.ISIS != nil {
		in, i := v.in("isis"), n.FRR.ISIS
		in.want(i.System >= 1 && i.System <= 9999, "system: %d: give a number from 1 to 9999", i.System)
		for device := range i.Metrics {
			in.want(slices.Contains(v.t.Devices(n), device), "metrics: %s has no link %q", n.Name, device)
		}
		in.prefixes("kernel", i.Kernel)
		in.want(!i.TE || len(n.Addresses) > 0 && strings.Contains(n.Addresses[0], ":"), "te: the first of addresses is no IPv6 address")
	}
	v.want(n.Engine == nil || n.Kind == FRR && n.FRR.ISIS != nil && n.FRR.ISIS.TE, "engine: %s is no node of kind frr whose isis has te", n.Name)
	v.prefixes("addresses", n.Addresses)
	v.prefixes("pod_cidrs", n.PodCIDRs)
}
