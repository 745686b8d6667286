package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// cniVersion is the newest that Debian's containerd takes.
const cniVersion = "1.0.0"

// podInterface is what runtimes call the interface of a pod.
const podInterface = "eth0"

// network is the configuration list that a node's container runtime has.
func (in *instance) network(n *Node) (*libcni.NetworkConfigList, error) {
	limits := map[string]bool{"bandwidth": true}
	plugins := []map[string]any{{"type": "culvert-cni", "socket": in.socket(n), "capabilities": limits}}
	pods := in.pods(n)
	if slices.ContainsFunc(pods, func(p *Node) bool { return len(p.HostPorts) > 0 }) {
		plugins = append(plugins, map[string]any{"type": "portmap", "backend": "nftables", "capabilities": map[string]bool{"portMappings": true}})
	}
	if slices.ContainsFunc(pods, func(p *Node) bool { return p.Bandwidth != nil }) {
		plugins = append(plugins, map[string]any{"type": "bandwidth", "capabilities": limits})
	}
	text, err := json.Marshal(map[string]any{"cniVersion": cniVersion, "name": "culvert", "plugins": plugins})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(text)
}

// runtime is the part of a container runtime that a pod's network sees.
func (in *instance) runtime(p *Node) (*libcni.CNIConfig, *libcni.RuntimeConf) {
	paths := []string{filepath.Dir(in.culvert), clusterPrograms()}
	var ports []map[string]any
	for _, port := range p.HostPorts {
		ports = append(ports, map[string]any{"hostPort": port.Host, "containerPort": port.Pod, "protocol": port.Protocol})
	}
	told := map[string]any{"portMappings": ports}
	if b := p.Bandwidth; b != nil {
		const kilo, burst = 1000, 80_000 // bits
		told["bandwidth"] = map[string]any{"ingressRate": b.Ingress * kilo, "ingressBurst": burst, "egressRate": b.Egress * kilo, "egressBurst": burst}
	}
	conf := &libcni.RuntimeConf{
		ContainerID: "lab-" + in.name + "-" + p.Name, NetNS: in.namespace(p).path(), IfName: podInterface,
		Args:           [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "lab"}, {"K8S_POD_NAME", p.Name}},
		CapabilityArgs: told,
	}
	return libcni.NewCNIConfigWithCacheDir(paths, filepath.Join(in.dir(), p.Host, "cni"), nil), conf
}

// attach makes the pod's network, as its node's container runtime does.
func (in *instance) attach(ctx context.Context, p *Node) error {
	if p.Kind != Pod {
		return nil
	}
	on := in.node(p.Host)
	if on.Kind == Kubelet {
		return in.join(ctx, p)
	}
	list, err := in.network(on)
	if err != nil {
		return err
	}
	plugins, conf := in.runtime(p)
	var found []netip.Addr
	// The plugins are started by this thread.
	err = in.namespace(on).Do(func() error {
		result, err := plugins.AddNetworkList(ctx, list, conf)
		if err != nil {
			return err
		}
		r, err := types100.NewResultFromResult(result)
		if err != nil {
			return err
		}
		for _, ip := range r.IPs {
			if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
				found = append(found, a.Unmap())
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("CNI ADD: %w", err)
	}
	if in.state.Pods == nil {
		in.state.Pods = map[string][]netip.Addr{}
	}
	in.state.Pods[p.Name] = found
	return in.save()
}

// detach takes the pod's network away.
func (in *instance) detach(ctx context.Context, p *Node) error {
	on := in.node(p.Host)
	if on.Kind == Kubelet {
		return in.deletePod(ctx, p)
	}
	list, err := in.network(on)
	if err != nil {
		return err
	}
	plugins, conf := in.runtime(p)
	if err := in.namespace(on).Do(func() error { return plugins.DelNetworkList(ctx, list, conf) }); err != nil {
		return fmt.Errorf("CNI DEL: %w", err)
	}
	delete(in.state.Pods, p.Name)
	return in.save()
}
