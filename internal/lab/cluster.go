package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// resolve puts addresses in the place of the names of a check.
func resolve(in *instance.Instance, c *topology.Check, family string) (*topology.Check, error) {
	if c.ToName == "" {
		return c, nil
	}
	r := *c
	var err error
	if r.To, err = in.Address(c.ToName, family); err != nil {
		return nil, err
	}
	if c.Both {
		if r.Source, err = in.Address(c.From, family); err != nil {
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
		at, err := in.Address(r.At, family)
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
func translation(in *instance.Instance) string {
	var b strings.Builder
	for _, family := range []string{topology.IPv4, topology.IPv6} {
		ip := map[string]string{topology.IPv4: "ip", topology.IPv6: "ip6"}[family]
		// It takes the place of an earlier one, if there is one.
		fmt.Fprintf(&b, "table %s services {}\ndelete table %s services\ntable %s services {\n", ip, ip, ip)
		for _, hook := range []string{"prerouting", "output"} {
			fmt.Fprintf(&b, "chain %s {\ntype nat hook %s priority -100\n", hook, hook)
			translations(in, &b, ip, family)
			b.WriteString("}\n")
		}
		fmt.Fprint(&b, "chain postrouting {\ntype nat hook postrouting priority 100\nmeta mark & 0x4000 == 0x4000 meta mark set meta mark & 0xffffbfff masquerade\n}\n}\n")
	}
	return b.String()
}

func translations(in *instance.Instance, b *strings.Builder, ip, family string) {
	for _, s := range in.Services {
		if s.ByProxy() {
			continue
		}
		vip, err1 := in.Address(s.Name, family)
		pod, err2 := in.Address(s.Pod, family)
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

// serve has a node translate what is for Services: by kube-proxy where there is a
// Kubernetes API, which is told of them, else by rules of our own.
func serve(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	switch kube := in.State.Variant == topology.KubeMode; {
	case len(in.Services) == 0:
		return nil
	case n.Kind == topology.APIServer && kube:
		return putServices(ctx, in, in.Services)
	case n.Kind != topology.Cluster:
		return nil
	case kube && n.Proxy != "":
		return errors.Join(in.LoadNFT(n, noTranslation), startProxy(ctx, in, n))
	}
	return errors.Join(stopProxy(in, n), in.LoadNFT(n, translation(in)))
}

// moved has Services follow a pod to its new addresses.
func moved(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	services := slices.DeleteFunc(slices.Clone(in.Services), func(s topology.Service) bool { return !slices.Contains(s.Pods(), p.Name) })
	if len(services) == 0 {
		return nil
	}
	if in.State.Variant == topology.KubeMode {
		return putServices(ctx, in, services)
	}
	var errs []error
	for _, n := range in.ClusterNodes() {
		errs = append(errs, serve(ctx, in, n))
	}
	return errors.Join(errs...)
}
