package disturb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kill leaves a while without a daemon: the data path must go on by itself. At a node
// of kind kubelet it waits until the program runs again and the node is well. A program of
// others stays dead.
func kill(ctx context.Context, a action) error {
	if a.node == nil {
		return daemon.EndProgram(a.Instance, topology.ProgramOf(a.Topology, a.event.Program), unix.SIGKILL)
	}
	if a.node.Kind != topology.Kubelet {
		return daemon.RestartCulvert(ctx, a.Instance, a.node, unix.SIGKILL, 500*time.Millisecond, a.Culvert)
	}
	program := cmp.Or(a.event.Program, daemon.CulvertProcess)
	isIt := func(pid int) bool { return cluster.Runs(pid, topology.NodePrograms[program]...) }
	before, err := cluster.Processes(a.Instance, a.node, isIt)
	if err != nil || len(before) != 1 {
		return errors.Join(fmt.Errorf("%s has processes %v of %s", a.node.Name, before, program), err)
	}
	if err := unix.Kill(before[0], unix.SIGKILL); err != nil {
		return err
	}
	again := instance.WaitFor(cluster.ClusterTime, func() bool {
		after, err := cluster.Processes(a.Instance, a.node, isIt)
		return err == nil && len(after) == 1 && after[0] != before[0] || ctx.Err() != nil
	})
	if !again || ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%s does not run again", program), ctx.Err())
	}
	return well(ctx, a.Instance, a.node)
}

// well waits until a node's containerd, kubelet and culvert answer, and Kubernetes
// takes the node for ready.
func well(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	err := instance.Await(ctx, cluster.ClusterTime, func() error {
		_, err := daemon.Status(ctx, in, n)
		if err == nil {
			_, err = cluster.Kubectl(ctx, in, nil, "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/healthz")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not well again: %w", n.Name, err)
	}
	_, err = cluster.Kubectl(ctx, in, nil, "wait", "--for=condition=Ready", "node/"+n.Name, "--timeout", cluster.ClusterTime.String())
	return err
}

// move gives a node another IPv6 address: the device has it, then the kubelet is restarted with it
// and tells Kubernetes, and then the device has no other one.
func move(ctx context.Context, a action) error {
	in, n, to := a.Instance, a.node, a.event.Address
	spec, err := cluster.KubeletSpec(in, n)
	if err != nil {
		return err
	}
	var present []struct {
		Addresses []struct {
			Local     netip.Addr `json:"local"`
			PrefixLen int        `json:"prefixlen"`
		} `json:"addr_info"`
	}
	if err := network.JSON(in, n, &present, "-6", "address", "show", "dev", a.event.Device, "scope", "global"); err != nil {
		return err
	}
	ns := in.Namespace(n)
	if err := ns.Batch([]string{fmt.Sprintf("address add %s dev %s nodad", to, a.event.Device)}); err != nil {
		return err
	}
	all := slices.DeleteFunc(spec.Addresses, netip.Addr.Is6)
	if err := spec.SetAddresses(append(all, to.Addr())); err != nil {
		return err
	}
	a.event.Program = "kubelet"
	if err := kill(ctx, a); err != nil {
		return err
	}
	err = instance.Await(ctx, cluster.ClusterTime, func() error {
		out, err := cluster.Kubectl(ctx, in, nil, "get", "node", n.Name, "-o", "jsonpath={.status.addresses[*].address}")
		if err == nil && !slices.Contains(strings.Fields(string(out)), to.Addr().String()) {
			err = fmt.Errorf("the Node %s has addresses %s", n.Name, out)
		}
		return err
	})
	if err != nil {
		return err
	}
	var lines []string
	for _, l := range present {
		for _, p := range l.Addresses {
			if p.Local.IsValid() { // iproute2 prints what it leaves out as {}
				lines = append(lines, fmt.Sprintf("address del %s/%d dev %s", p.Local, p.PrefixLen, a.event.Device))
			}
		}
	}
	return ns.Batch(lines)
}

// reboot cuts a node's power, and starts it again: it has its files, a new
// network, and nothing that was in memory.
func reboot(ctx context.Context, a action) error {
	r, n := a.Runner, a.node
	spec, err := cluster.KubeletSpec(r.Instance, n)
	if err != nil {
		return err
	}
	p, _ := r.Process(n, instance.NodeProcess)
	if err := p.Stop(unix.SIGKILL, instance.ReadyTime); err != nil {
		return err
	}
	r.Forget(n, instance.NodeProcess)
	for _, pod := range r.Pods(n) {
		if err := cluster.LeavePod(r.Instance, pod); err != nil {
			return err
		}
	}
	// The kernel takes its time to take a namespace away: other ends would stay.
	var lines []string
	for _, name := range r.Devices(n) {
		lines = append(lines, "link delete dev "+name)
	}
	if err := errors.Join(r.Namespace(n).Batch(lines), network.DropNamespace(r.Instance, n)); err != nil {
		return err
	}
	if err := network.MakeNamespace(r.Instance, n); err != nil {
		return err
	}
	if err := errors.Join(network.MakeLinks(r.Instance, r.LinksOf(n)), network.Configure(r.Instance, n)); err != nil {
		return err
	}
	if err := cluster.RunKubelet(r.Instance, n, spec); err != nil {
		return err
	}
	if err := well(ctx, r.Instance, n); err != nil {
		return fmt.Errorf("%w\n%s", err, cluster.KubeletLog(r.Instance, n))
	}
	for _, p := range r.Pods(n) {
		if err := cluster.JoinPod(ctx, r.Instance, p); err != nil {
			return err
		}
	}
	return nil
}

// upgradeCluster gives the cluster's DaemonSet an image of another build, which all
// nodes have, and waits until every node runs it.
func upgradeCluster(ctx context.Context, r *Runner, o *report.Outcome) error {
	const name = "ghcr.io/culvert-net/culvert:upgraded"
	binary, err := otherBinary(r)
	if err != nil {
		return err
	}
	archive := filepath.Join(cluster.Images(r.Instance), "upgraded.tar")
	if err := cluster.CulvertImage(binary, filepath.Dir(r.Culvert), name).Write(archive); err != nil {
		return err
	}
	defer os.Remove(archive) // a node that is started anew has the image
	before, err := dataPaths(ctx, r.Instance)
	if err != nil {
		return err
	}
	for _, n := range r.Kubelets() {
		if err := cluster.ImportImage(r.Instance, n, archive); err != nil {
			return err
		}
	}
	start := time.Now()
	if _, err := cluster.Kubectl(ctx, r.Instance, nil, "--namespace", "kube-system", "set", "image", "daemonset/culvert", "*="+name); err != nil {
		return err
	}
	if _, err := cluster.Kubectl(ctx, r.Instance, nil, "--namespace", "kube-system", "rollout", "status", "daemonset/culvert"); err != nil {
		return fmt.Errorf("%w\n%s", err, cluster.Describe(r.Instance))
	}
	after, err := dataPaths(ctx, r.Instance)
	if err != nil {
		return err
	}
	for name, is := range after {
		if is == before[name] {
			return fmt.Errorf("%s still runs the data path %.8s", name, is)
		}
	}
	o.Say("%d nodes in %.0f s", len(after), time.Since(start).Seconds())
	return nil
}

// dataPaths are the builds of the data path that nodes run.
func dataPaths(ctx context.Context, in *instance.Instance) (map[string]string, error) {
	list := map[string]string{}
	for _, n := range in.Kubelets() {
		s, err := daemon.Status(ctx, in, n)
		if err != nil {
			return nil, err
		}
		list[n.Name] = s.DataPath
	}
	return list, nil
}
