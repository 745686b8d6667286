package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Versions of CNI: the newest that Debian's containerd takes, and the one that has
// STATUS and GC.
const (
	cniVersion    = "1.0.0"
	newCNIVersion = "1.1.0"
)

// PodNetwork is the name of the network of CNI that pods are attached to.
const PodNetwork = "culvert"

// networkList is the configuration list that a node's container runtime has, for pods of the
// cluster's own network or of a tenant's.
func networkList(in *instance.Instance, n *topology.Node, version, tenant string) (*libcni.NetworkConfigList, error) {
	limits := map[string]bool{"bandwidth": true}
	plugins := []map[string]any{{"type": "culvert-cni", "socket": daemon.Socket(in, n), "tenant": tenant, "capabilities": limits}}
	pods := in.Pods(n)
	if slices.ContainsFunc(pods, func(p *topology.Node) bool { return len(p.HostPorts) > 0 }) {
		plugins = append(plugins, map[string]any{"type": "portmap", "backend": "nftables", "capabilities": map[string]bool{"portMappings": true}})
	}
	if slices.ContainsFunc(pods, func(p *topology.Node) bool { return p.Bandwidth != nil }) {
		plugins = append(plugins, map[string]any{"type": "bandwidth", "capabilities": limits})
	}
	text, err := json.Marshal(map[string]any{"cniVersion": version, "name": PodNetwork, "plugins": plugins})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(text)
}

// onNode calls f with a node's plugins and their configuration for pods of a tenant or of none, on
// a thread in the node's namespace, which starts them. What ADD says is kept in the folder cache.
func onNode(in *instance.Instance, n *topology.Node, version, tenant, cache string, f func(*libcni.CNIConfig, *libcni.NetworkConfigList) error) error {
	list, err := networkList(in, n, version, tenant)
	if err != nil {
		return err
	}
	plugins := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(in.Culvert), Programs()}, in.File(n, cache), nil)
	return in.Namespace(n).Do(func() error { return f(plugins, list) })
}

// runtimeOf is the part of a container runtime that a pod's network sees.
func runtimeOf(in *instance.Instance, p *topology.Node) *libcni.RuntimeConf {
	var ports []map[string]any
	for _, port := range p.HostPorts {
		ports = append(ports, map[string]any{"hostPort": port.Host, "containerPort": port.Pod, "protocol": port.Protocol})
	}
	capabilities := map[string]any{"portMappings": ports}
	if b := p.Bandwidth; b != nil {
		const kilo, burst = 1000, 80_000 // bits
		capabilities["bandwidth"] = map[string]any{"ingressRate": b.Ingress * kilo, "ingressBurst": burst, "egressRate": b.Egress * kilo, "egressBurst": burst}
	}
	return &libcni.RuntimeConf{
		ContainerID: "lab-" + in.Name + "-" + p.Name, NetNS: in.Namespace(p).Path(), IfName: topology.PodInterface,
		Args:           [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", podNamespace}, {"K8S_POD_NAME", p.Name}},
		CapabilityArgs: capabilities,
	}
}

// Attach makes the pod's network, as its node's container runtime does.
func Attach(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	on := in.Node(p.Host)
	if on.Kind == topology.Kubelet {
		return JoinPod(ctx, in, p)
	}
	var found []netip.Addr
	err := onNode(in, on, cniVersion, p.Tenant, "cni", func(plugins *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		result, err := plugins.AddNetworkList(ctx, list, runtimeOf(in, p))
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
	return instance.SavePod(in, p, found)
}

// Detach takes the pod's network away.
func Detach(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	on := in.Node(p.Host)
	if on.Kind == topology.Kubelet {
		if err := LeavePod(in, p); err != nil {
			return err
		}
		_, err := Kubectl(ctx, in, nil, "delete", "pod", p.Name, "--wait")
		return err
	}
	err := onNode(in, on, cniVersion, p.Tenant, "cni", func(plugins *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return plugins.DelNetworkList(ctx, list, runtimeOf(in, p))
	})
	if err != nil {
		return fmt.Errorf("CNI DEL: %w", err)
	}
	delete(in.State.Pods, p.Name)
	return in.Save()
}

// CNIStatus returns the answer of a node's plugins to CNI's STATUS: no error if pods
// can be attached.
func CNIStatus(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	return onNode(in, n, newCNIVersion, "", "cni", func(plugins *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return plugins.GetStatusNetworkList(ctx, list)
	})
}

// Collect has the plugins of a pod's node remove what belongs to no pod (CNI GC): the
// runtime names all pods but this one, of which it has lost its records, too, as
// it would call DEL itself otherwise.
func Collect(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	on := in.Node(p.Host)
	var valid []types.GCAttachment
	for _, other := range in.Pods(on) {
		if conf := runtimeOf(in, other); other != p {
			valid = append(valid, types.GCAttachment{ContainerID: conf.ContainerID, IfName: conf.IfName})
		}
	}
	err := onNode(in, on, newCNIVersion, "", "cni-lost", func(plugins *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return plugins.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	})
	if err != nil {
		return fmt.Errorf("CNI GC: %w", err)
	}
	delete(in.State.Pods, p.Name)
	return in.Save()
}
