package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

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

// Serve has a node translate what is for Services: by kube-proxy where there is a
// Kubernetes API, which gets the objects, else by rules of our own.
func Serve(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	switch kube := in.State.Variant == topology.KubeMode; {
	case len(in.Services) == 0:
		return nil
	case n.Kind == topology.APIServer && kube:
		return putServices(ctx, in, in.Services)
	case n.Kind != topology.Cluster:
		return nil
	case kube && n.Proxy != "":
		return errors.Join(network.LoadNFT(in, n, noTranslation), startProxy(ctx, in, n))
	}
	return errors.Join(stopProxy(in, n), network.LoadNFT(in, n, translation(in)))
}

// Moved has Services follow a pod to its new addresses.
func Moved(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	services := slices.DeleteFunc(slices.Clone(in.Services), func(s topology.Service) bool { return !slices.Contains(s.Pods(), p.Name) })
	if len(services) == 0 {
		return nil
	}
	if in.State.Variant == topology.KubeMode {
		return putServices(ctx, in, services)
	}
	var errs []error
	for _, n := range in.ClusterNodes() {
		errs = append(errs, Serve(ctx, in, n))
	}
	return errors.Join(errs...)
}

// servicesIn is the namespace of Services.
const servicesIn = "default"

// putServices writes Services and the pods behind them to the Kubernetes API.
func putServices(ctx context.Context, in *instance.Instance, services []topology.Service) error {
	for _, s := range services {
		if err := ApplyObject(ctx, in, serviceObject(&s)); err != nil {
			return err
		}
		for _, a := range s.Addresses() {
			if err := ApplyObject(ctx, in, endpoints(in, &s, topology.FamilyOf(a))); err != nil {
				return err
			}
		}
	}
	return nil
}

// apiFamilies are their names in the Kubernetes API.
var apiFamilies = map[string]string{topology.IPv4: "IPv4", topology.IPv6: "IPv6"}

// protocols of a Service's port.
var protocols = []string{"tcp", "udp"}

// serviceObject is the Service as somebody would write it.
func serviceObject(s *topology.Service) map[string]any {
	var addresses, families []string
	for _, a := range s.Addresses() {
		families = append(families, apiFamilies[topology.FamilyOf(a)])
		addresses = append(addresses, a.String())
	}
	spec := map[string]any{"clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilies": families, "ipFamilyPolicy": "PreferDualStack"}
	var ports []map[string]any
	for _, protocol := range protocols {
		port := map[string]any{"name": protocol, "protocol": strings.ToUpper(protocol), "port": s.Port, "targetPort": s.TargetPort}
		if s.NodePort != 0 {
			spec["type"], port["nodePort"] = "NodePort", s.NodePort
		}
		ports = append(ports, port)
	}
	spec["ports"] = ports
	if s.Local {
		spec["externalTrafficPolicy"] = "Local"
	}
	if s.Affinity {
		spec["sessionAffinity"] = "ClientIP"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": s.Name, "namespace": servicesIn}, "spec": spec,
	}
}

// endpoints are the pods behind a Service that have an address of the family.
func endpoints(in *instance.Instance, s *topology.Service, family string) map[string]any {
	list := []map[string]any{}
	for _, name := range s.Pods() {
		if a, err := in.Address(name, family); err == nil {
			list = append(list, map[string]any{
				"addresses": []string{a.String()}, "nodeName": in.Node(name).Host, "conditions": map[string]any{"ready": true},
			})
		}
	}
	var ports []map[string]any
	for _, protocol := range protocols {
		ports = append(ports, map[string]any{"name": protocol, "protocol": strings.ToUpper(protocol), "port": s.TargetPort})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": apiFamilies[family],
		"metadata": map[string]any{
			"name": s.Name + "-" + family, "namespace": servicesIn, "labels": map[string]any{"kubernetes.io/service-name": s.Name},
		},
		"endpoints": list, "ports": ports,
	}
}

// ProxyProcess is what kube-proxy is called in the state.
const ProxyProcess = "kube-proxy"

const proxyHealth = "127.0.0.1:10256"

// startProxy starts kube-proxy in a node, if it does not run there, and waits
// until it has translated what it knows.
func startProxy(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if p, ok := in.Process(n, ProxyProcess); ok && p.Alive() {
		return nil
	}
	isHealthy := func() error {
		response, err := network.Get(ctx, in, n, proxyHealth, "/healthz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("kube-proxy is not healthy: %s", response.Status)
		}
		return nil
	}
	// The limits of conntrack are not a namespace's to set.
	return in.StartAwait(ctx, n, ProxyProcess, instance.ReadyTime, isHealthy, filepath.Join(Programs(), ProxyProcess), "--kubeconfig", instance.Kubeconfig(in), "--hostname-override", n.Name,
		"--proxy-mode", n.Proxy, "--detect-local-mode", "NodeCIDR", "--healthz-bind-address", proxyHealth,
		"--conntrack-max-per-core", "0", "--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0s",
		"--conntrack-tcp-timeout-close-wait", "0s")
}

// stopProxy ends kube-proxy and takes its rules away, if it runs.
func stopProxy(in *instance.Instance, n *topology.Node) error {
	p, ok := in.Process(n, ProxyProcess)
	if !ok {
		return nil
	}
	if err := p.Stop(unix.SIGTERM, instance.ReadyTime); err != nil {
		return err
	}
	in.Forget(n, ProxyProcess)
	if err := in.Save(); err != nil {
		return err
	}
	_, err := in.Namespace(n).Output(filepath.Join(Programs(), ProxyProcess), "--cleanup")
	return err
}
