package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/overlay/clusterapi"
	"github.com/culvert-net/culvert/internal/bench/overlay/services"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// host is a node of the cluster: an agent, and pods.
type host struct {
	node.Undo
	*rig.Rig
	daemon  *node.Daemon
	api     *clusterapi.Server
	culvert string // the binary
	pods    map[string]pod
	added   []time.Duration // how long the plugin took for each
}

// pod is a pod of a host.
type pod struct {
	address   netip.Addr
	mac, host net.HardwareAddr // its own, and that of the host's end
	end       string           // the interface of the host
	outward   uint16           // the port of its flows to outside: its own, which masquerading keeps
}

const (
	cniPlugin    = "culvert-cni"
	podInterface = "eth0"
)

// openHost starts a node NAME with an agent that enforces NetworkPolicies or not, and its pods.
func openHost(ctx context.Context, plan Plan, name, enforce string, pods []string) (_ *host, err error) {
	h := &host{culvert: plan.Culvert, pods: map[string]pod{}, api: clusterapi.New()}
	defer h.OnError(&err)
	if h.Rig, err = rig.New(name, 1); err != nil {
		return nil, err
	}
	h.Later(h.Rig.Close)
	h.Later(h.api.Close)
	if err := fillCluster(h.api, pods); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, err
	}
	h.Later(func() error { return os.RemoveAll(dir) })
	var listener net.Listener
	err = h.Net.Node.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return nil, err
	}
	h.api.Serve(listener)
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig(listener.Addr().String())), 0o600); err != nil {
		return nil, err
	}
	everything := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	c := &config.Config{
		Interfaces: []config.Interface{{Name: node.PortIn, Roles: []config.Role{config.RoleAny}}},
		Overlay: config.Overlay{
			Mode: config.OverlayKube, Node: ownNode, Address: ownAddress, Uplinks: []string{uplink}, Locator: netip.MustParsePrefix("fc00:0:1::/48"), Masquerade: true,
		},
	}
	c.Overlay.Accept.SIDs = []netip.Prefix{everything}
	c.Overlay.Kube = config.Kube{Kubeconfig: file, NetworkPolicies: enforce}
	if h.daemon, err = node.Start(ctx, plan.Culvert, filepath.Join(plan.BPFFS, name), h.Net.Node, c); err != nil {
		return nil, err
	}
	h.Later(h.daemon.Close)
	if err := h.loadServices(plan.Services); err != nil {
		return nil, err
	}
	if err := h.addPods(ctx, pods); err != nil {
		return nil, errors.Join(err, errors.New(h.daemon.Tail()))
	}
	for _, state := range []string{"", "_stream"} {
		if err := h.Net.Node.Sysctl("net/netfilter/nf_conntrack_udp_timeout"+state, conntrackSeconds); err != nil {
			return nil, err
		}
	}
	return h, h.prepare()
}

// conntrackSeconds is for how long conntrack knows a flow: longer than between rounds.
const conntrackSeconds = "86400"

// loadServices gives the node the rules of so many Services.
func (h *host) loadServices(n int) error {
	if n == 0 {
		return nil // which takes no nft
	}
	if err := h.Net.Node.Do(func() error { return services.Load(services.Rules(n)) }); err != nil {
		return fmt.Errorf("%d Services: %w (fix: install nftables, or --services 0)", n, err)
	}
	return nil
}

// prepare has packets made at both ends, and counted where they arrive.
func (h *host) prepare() error {
	for _, p := range h.pods {
		index, err := h.Net.Node.Ifindex(p.end)
		if err != nil {
			return err
		}
		h.Index[p.end] = index
	}
	err := h.Net.Node.Do(func() error {
		for port, index := range h.Index {
			if port != node.PortIn { // where the daemon's program is
				if err := h.Bench.OpenReceive(index); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return errors.Join(err, h.Sink((*progrun.Bench).SinkXDP))
}

// addPods adds them as a container runtime does.
func (h *host) addPods(ctx context.Context, names []string) error {
	network, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "culvert", "type": cniPlugin, "socket": h.daemon.Socket()})
	if err != nil {
		return err
	}
	programs := filepath.Dir(h.culvert)
	for _, name := range names {
		ns, err := proc.NewNamespace(func() error { return nil })
		if err != nil {
			return err
		}
		h.Later(ns.Close)
		args := &invoke.Args{Command: "ADD", ContainerID: name, NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), IfName: podInterface, Path: programs,
			PluginArgsStr: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", namespace, name, name)}
		err = h.Net.Node.Do(func() error { // the plugin is started by this thread
			begun := time.Now()
			r, err := invoke.ExecPluginWithResult(ctx, filepath.Join(programs, cniPlugin), network, args, nil)
			if err != nil {
				return err
			}
			h.added = append(h.added, time.Since(begun))
			p, err := podOf(r)
			p.outward = podPort + uint16(len(h.pods))
			h.pods[name] = p
			return err
		})
		if err != nil {
			return fmt.Errorf("CNI ADD of pod %s: %w", name, err)
		}
		if err := h.sinkIn(ns); err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
	}
	return nil
}

// podOf reads what the plugin answers.
func podOf(answer types.Result) (p pod, err error) {
	r, err := current.NewResultFromResult(answer)
	if err != nil {
		return p, err
	}
	for _, i := range r.Interfaces {
		mac, err := net.ParseMAC(i.Mac)
		if err != nil {
			return p, err
		}
		if i.Sandbox != "" {
			p.mac = mac
		} else {
			p.end, p.host = i.Name, mac
		}
	}
	for _, a := range r.IPs {
		if addr, ok := netip.AddrFromSlice(a.Address.IP.To4()); ok {
			p.address = addr
		}
	}
	if p.end == "" || p.mac == nil || !p.address.IsValid() {
		return p, fmt.Errorf("the plugin's answer has no interface or no IPv4 address: %s", r)
	}
	return p, nil
}

// sinkIn counts what a pod receives.
func (h *host) sinkIn(ns *os.File) error {
	return proc.Inside(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), func() error {
		i, err := net.InterfaceByName(podInterface)
		if err != nil {
			return err
		}
		return h.Bench.SinkSKB(i.Index)
	})
}

// establish has packets go in both directions of a pod's flows to outside, each of which has one with a
// probability of 1 - e^-32 at least.
func (h *host) establish(plan Plan, p pod) error {
	plan.Packets = 32 * plan.Flows
	if _, err := h.live(plan, h.load(Forwarded, p, plan.Flows)); err != nil {
		return fmt.Errorf("flows to outside: %w", err)
	}
	if _, err := h.live(plan, h.answers(p, plan.Flows)); err != nil {
		return fmt.Errorf("answers from outside: %w", err)
	}
	return nil
}

// live sends packets of a load, and returns the CPU time of one.
func (h *host) live(plan Plan, l rig.Load) (ns float64, err error) {
	err = h.OnCPU(plan.CPU, func(c proc.Clock) error {
		ns, err = h.Live(c, l, uint32(plan.Packets))
		return err
	})
	return ns, err
}
