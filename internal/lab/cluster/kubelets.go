package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// ClusterTime is what parts of a cluster may take to come up on a busy machine.
const ClusterTime = 3 * time.Minute

// container is a version of containerd.
type container struct {
	folder        func() string // of the machine
	inNode        string
	configVersion int
	cni           string // the version that culvert gets as --cni-version
}

// containers are those by the lab's modes. Debian's is where packages are, the newer
// one where tools/cluster/build.sh puts it; it takes CNI 1.1.0, too, which is
// chosen for the clusters of one family. A mode that is called like one of kube-proxy's is
// that of all nodes.
var containers = map[string]container{
	"containerd-1.6": {func() string { return "/usr/bin" }, "/usr/bin", 2, cniVersion},
	"containerd-2":   {Programs, kubelet.Bin, 3, cniVersion},
	topology.IPv4:    {Programs, kubelet.Bin, 3, newCNIVersion},
	topology.IPv6:    {Programs, kubelet.Bin, 3, newCNIVersion},
	"nftables":       {Programs, kubelet.Bin, 3, cniVersion},
	"iptables":       {Programs, kubelet.Bin, 3, cniVersion},
}

// StartKubelet starts a node of kind kubelet. That it is one of the cluster is
// waited for later: all start at the same time.
func StartKubelet(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if n == in.Kubelets()[0] {
		if err := writeImages(ctx, in); err != nil {
			return err
		}
	}
	spec, err := KubeletSpec(in, n)
	if err != nil {
		return err
	}
	in.State.Disks, in.State.Cgroups = instance.AddNew(in.State.Disks, spec.Root), instance.AddNew(in.State.Cgroups, spec.Cgroup)
	if err := in.Save(); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(spec.Root, 0o755), kubelet.MakeCgroup(spec.Cgroup), spec.Write()); err != nil {
		return err
	}
	return RunKubelet(in, n, spec)
}

// RunKubelet starts the node's first process, which is this program.
func RunKubelet(in *instance.Instance, n *topology.Node, spec kubelet.Spec) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd, err := spec.Command(in.File(n, "node.json"), self, "lab", "kubelet")
	if err != nil {
		return err
	}
	return in.StartCommand(n, instance.NodeProcess, cmd)
}

// KubeletSpec describes a node of kind kubelet.
func KubeletSpec(in *instance.Instance, n *topology.Node) (kubelet.Spec, error) {
	c := containers[in.State.Variant]
	s := kubelet.Spec{
		Name: n.Name, Root: disk(in, n), Addresses: known(in, n), Cgroup: "culvert-lab-" + in.Name + "-" + n.Name,
		Programs: filepath.Dir(Programs()), Images: Images(in), Containerd: c.inNode, ConfigVersion: c.configVersion,
		Pause: podImage, ProxyMode: proxyMode(in, n), DNS: dnsAddresses[0], PodCIDRs: ranges(in, podRanges),
	}
	api := in.APIServer()
	ca, err := os.ReadFile(in.File(api, "kubelet-ca.crt"))
	if err != nil {
		return s, err
	}
	own, err := kubeconfigText(in, api, nodeUser(n))
	if err != nil {
		return s, err
	}
	proxy, err := kubeconfigText(in, api, proxyUser)
	s.ClientCA, s.Kubelet, s.Proxy = string(ca), string(own), string(proxy)
	return s, err
}

// proxyMode is that of the node's kube-proxy.
func proxyMode(in *instance.Instance, n *topology.Node) string {
	if v := in.State.Variant; v == "nftables" || v == "iptables" {
		return v
	}
	return n.Proxy
}

// disk is the directory that is the node's root file system.
func disk(in *instance.Instance, n *topology.Node) string {
	return filepath.Join(instance.DiskDir, in.Name, n.Name)
}

// JoinCluster waits until the node's kubelet has registered it.
func JoinCluster(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	err := in.AwaitProcess(ctx, n, instance.NodeProcess, ClusterTime, func() error {
		_, err := Kubectl(ctx, in, nil, "get", "node", n.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("the kubelet: %w\n%s", err, KubeletLog(in, n))
	}
	return nil
}

// KubeletLog is the end of the kubelet's own log.
func KubeletLog(in *instance.Instance, n *topology.Node) string {
	return instance.Tail(filepath.Join(disk(in, n), "var/log/kubelet.log"))
}

// Processes returns the matching processes of a node of kind kubelet, without its
// first process, from which all others descend.
func Processes(in *instance.Instance, n *topology.Node, match func(pid int) bool) (pids []int, err error) {
	p, _ := in.Process(n, instance.NodeProcess)
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, one := range all {
		if stat, err := one.Stat(); err == nil { // else it has ended
			children[stat.PPID] = append(children[stat.PPID], one.PID)
		}
	}
	for next := children[p.PID]; len(next) > 0; next = next[1:] {
		if match(next[0]) {
			pids = append(pids, next[0])
		}
		next = append(next, children[next[0]]...)
	}
	return pids, nil
}

// Runs says whether a process was started with these words, the first of which is
// the name of a program in whatever folder.
func Runs(pid int, words ...string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	args, err := p.CmdLine()
	if err != nil || len(args) < len(words) {
		return false
	}
	args[0] = filepath.Base(args[0])
	return slices.Equal(args[:len(words)], words)
}
