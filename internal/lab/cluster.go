package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// address of a node, pod or Service, in a family.
func (in *instance) address(name, family string) (netip.Addr, error) {
	var list []netip.Addr
	switch n := in.Node(name); {
	case n == nil:
		s := in.Service(name)
		if s == nil {
			return netip.Addr{}, fmt.Errorf("no node, pod or Service is called %q", name)
		}
		list = []netip.Addr{s.IPv4, s.IPv6}
	case n.Kind == topology.Pod:
		list = in.state.Pods[name]
	default:
		list = in.Addresses(n)
	}
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.IsValid() && a.Is4() == (family == topology.IPv4) })
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("%s has no %s address", name, family)
	}
	return list[i], nil
}

// resolve puts addresses in the place of the names of a check.
func (in *instance) resolve(c *topology.Check, family string) (*topology.Check, error) {
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
	if s := in.Service(c.ToName); s != nil {
		r.Port, r.At, r.AtPort = s.Port, s.Pod, s.TargetPort
	}
	if s := in.Service(c.NodePort); s != nil {
		r.Port, r.At, r.AtPort = s.NodePort, s.Pod, s.TargetPort
	}
	if r.At != "" && r.AtPort != 0 {
		at, err := in.address(r.At, family)
		if err != nil {
			return nil, err
		}
		r.Listen = netip.AddrPortFrom(at, r.AtPort)
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
	for _, family := range []string{topology.IPv4, topology.IPv6} {
		ip := map[string]string{topology.IPv4: "ip", topology.IPv6: "ip6"}[family]
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
		if s.ByProxy() {
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
func (in *instance) loadNFT(n *topology.Node, rules string) error {
	if rules == "" {
		return nil
	}
	return in.namespace(n).Do(func() error { return namespace.Pipe(rules, "nft", "-f", "-") })
}

// serve has a node translate what is for Services: by kube-proxy where there is a
// Kubernetes API, which is told of them, else by rules of our own.
func (in *instance) serve(ctx context.Context, n *topology.Node) error {
	switch kube := in.state.Variant == topology.KubeMode; {
	case len(in.Services) == 0:
		return nil
	case n.Kind == topology.APIServer && kube:
		return in.putServices(ctx, in.Services)
	case n.Kind != topology.Cluster:
		return nil
	case kube && n.Proxy != "":
		return errors.Join(in.loadNFT(n, noTranslation), in.startProxy(ctx, n))
	}
	return errors.Join(in.stopProxy(n), in.loadNFT(n, in.translation()))
}

// moved has Services follow a pod to its new addresses.
func (in *instance) moved(ctx context.Context, p *topology.Node) error {
	services := slices.DeleteFunc(slices.Clone(in.Services), func(s topology.Service) bool { return !slices.Contains(s.Pods(), p.Name) })
	if len(services) == 0 {
		return nil
	}
	if in.state.Variant == topology.KubeMode {
		return in.putServices(ctx, services)
	}
	var errs []error
	for _, n := range in.ClusterNodes() {
		errs = append(errs, in.serve(ctx, n))
	}
	return errors.Join(errs...)
}
