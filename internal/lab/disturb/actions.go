package disturb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// daemonOf is the process of kube-apiserver, or of culvert, at a node. It runs.
func daemonOf(a action) (instance.Process, error) {
	name := cluster.APIServerProcess
	if a.node.Daemon() {
		name = daemon.CulvertProcess
	}
	p, ok := a.Process(a.node, name)
	if !ok || !p.Alive() {
		return p, fmt.Errorf("%s does not run", name)
	}
	return p, nil
}

// signalDaemon pauses kube-apiserver or culvert, with all that it has open, or resumes it.
func signalDaemon(a action, signal unix.Signal) error {
	p, err := daemonOf(a)
	if err != nil {
		return err
	}
	return unix.Kill(p.PID, signal)
}

// stop kills kube-apiserver, or culvert.
func stop(_ context.Context, a action) error {
	p, err := daemonOf(a)
	if err != nil {
		return err
	}
	return p.Stop(unix.SIGKILL, instance.ReadyTime)
}

// start starts it again, with the state that it left.
func start(ctx context.Context, a action) error {
	if a.node.Daemon() {
		return daemon.RunCulvert(ctx, a.Instance, a.node, a.Culvert)
	}
	return cluster.RunAPIServer(ctx, a.Instance, a.node)
}

// failNode takes all links of a node down, and kills what runs there: as a router that loses power.
func failNode(a action) error {
	if err := network.SetDown(a.Instance, a.node, a.Devices(a.node)...); err != nil {
		return err
	}
	var errs []error
	for _, p := range a.State.Processes {
		if p.Node == a.node.Name {
			errs = append(errs, p.Stop(unix.SIGKILL, instance.ReadyTime))
		}
	}
	return errors.Join(errs...)
}

// reviveNode starts the node anew.
func reviveNode(ctx context.Context, a action) error {
	if err := network.SetUp(a.Instance, a.node, a.Devices(a.node)...); err != nil {
		return err
	}
	if err := network.AddRoutes(a.Instance, a.node); err != nil {
		return err
	}
	return daemon.StartFRR(ctx, a.Instance, a.node)
}

// setRoute adds a route in a node or pod, or deletes it.
func setRoute(a action, verb string) error {
	family := "-4"
	if network.RouteIsIPv6(a.event.Route) {
		family = "-6"
	}
	return a.Namespace(a.node).Batch([]string{"route " + verb + " " + a.event.Route}, family)
}

// moveTunnel sets the F-TEID to which a GTP-U endpoint sends by a tunnel.
func moveTunnel(ctx context.Context, a action) error {
	address, teid, err := tunnelOf(ctx, a)
	if err != nil {
		return err
	}
	if a.event.SID.IsValid() {
		address = a.event.SID
	}
	_, err = daemon.AskEndpoint(a.Instance, a.node, gtpulink.Request{Op: "Tunnel", Device: a.event.Device, To: address, TEID: teid})
	return err
}

// tunnelOf is where a tunnel shall go: to what an SMF of ours is told, or to what a UPF
// has from a core, once it has a session of the UE.
func tunnelOf(ctx context.Context, a action) (address netip.Addr, teid uint32, err error) {
	e := a.event
	if e.UPF == "" {
		return daemon.FTEID(ctx, a.Instance, e.FTEID, e.IPv6)
	}
	gnb := slices.IndexFunc(a.node.GTPU, func(l gtpulink.Link) bool { return l.Device == e.Device }) // it is there: validated
	err = instance.Await(ctx, e.For.Or(instance.ReadyTime), func() (err error) {
		address, teid, err = daemon.SessionTunnel(ctx, a.Instance, a.Node(e.UPF), e.UE, &a.node.GTPU[gnb])
		return err
	})
	return address, teid, err
}

const injectorProcess = "injector"

// injectPaths has the node's speaker of SAFI 73 advertise the paths of the event to
// its peers, and no others: with none it withdraws what it advertised. The speaker
// is `culvert policy inject`, which follows its file.
func injectPaths(_ context.Context, a action) error {
	paths := a.event.Paths
	if paths == nil {
		paths = []map[string]any{}
	}
	text, err := yaml.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return err
	}
	file := a.File(a.node, "paths.yaml")
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	if p, ok := a.Process(a.node, injectorProcess); ok && p.Alive() {
		return nil
	}
	args := []string{a.Culvert, "policy", "inject", "--to", "bgp", "--file", file, "--asn", "65000", "--router-id", "192.0.2.99"}
	for _, c := range a.ClusterNodes() {
		at, err := a.Address(c.Name, topology.IPv6)
		if err != nil {
			return err
		}
		args = append(args, at.String())
	}
	return a.Start(a.node, injectorProcess, args...)
}

func attach(ctx context.Context, a action) error {
	if a.IsReal(a.node) {
		if err := cluster.Create(ctx, a.Instance, []map[string]any{cluster.PodObject(a.Instance, a.node)}); err != nil {
			return err
		}
	}
	if err := cluster.Attach(ctx, a.Instance, a.node); err != nil {
		return err
	}
	return cluster.Moved(ctx, a.Instance, a.node)
}
