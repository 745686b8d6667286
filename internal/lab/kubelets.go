package lab

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// clusterTime is what parts of a cluster may take to come up on a busy machine.
const clusterTime = 3 * time.Minute

// container is a version of containerd.
type container struct {
	folder        func() string // of the machine
	inNode        string
	configVersion int
	cni           string // the version that culvert is told
}

// containers are those by the lab's modes. Debian's is where packages are, the newer
// one where tools/cluster/build.sh puts it; it takes CNI 1.1.0, too, which is
// chosen for the clusters of one family.
var containers = map[string]container{
	"containerd-1.6": {func() string { return "/usr/bin" }, "/usr/bin", 2, cniVersion},
	"containerd-2":   {clusterPrograms, kubelet.Bin, 3, cniVersion},
	topology.IPv4:    {clusterPrograms, kubelet.Bin, 3, newCNIVersion},
	topology.IPv6:    {clusterPrograms, kubelet.Bin, 3, newCNIVersion},
}

// haveCluster wants all programs to be there that a cluster with kubelets needs.
func haveCluster(variant string) error {
	names := []string{topology.EtcdProcess, topology.ApiServerProcess, controllerManagerProcess, schedulerProcess, "kubelet", "kube-proxy", "kubectl", "loopback", "portmap", "bandwidth"}
	errs := []error{havePrograms(names...)}
	c := containers[variant]
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		program := filepath.Join(c.folder(), name)
		if _, err := os.Stat(program); err != nil {
			errs = append(errs, fmt.Errorf("%s of %s is not there: tools/need.sh e2e installs Debian's, tools/cluster/build.sh all builds the newer one", program, variant))
		}
	}
	for _, name := range []string{"runc", "iptables", "nft", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", name))
		}
	}
	return errors.Join(append(errs, isStatic(busybox))...)
}

// isStatic wants a program that runs in an image where nothing else is.
func isStatic(program string) error {
	f, err := elf.Open(program)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", program)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs libraries, and test pods have none: install busybox-static", program)
		}
	}
	return nil
}

// startKubelet starts a node of kind kubelet. That it is one of the cluster is
// waited for later: all start at the same time.
func startKubelet(in *instance.Instance, n *topology.Node) error {
	if n.Kind != topology.Kubelet {
		return nil
	}
	if n == in.Kubelets()[0] {
		if err := writeImages(in); err != nil {
			return err
		}
	}
	spec, err := kubeletSpec(in, n)
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
	return runKubelet(in, n, spec)
}

// runKubelet starts the node's first process, which is this program.
func runKubelet(in *instance.Instance, n *topology.Node, spec kubelet.Spec) error {
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

func kubeletSpec(in *instance.Instance, n *topology.Node) (kubelet.Spec, error) {
	c := containers[in.State.Variant]
	s := kubelet.Spec{
		Name: n.Name, Root: in.Disk(n), Addresses: known(in, n), Cgroup: "culvert-lab-" + in.Name + "-" + n.Name,
		Programs: filepath.Dir(clusterPrograms()), Images: images(in), Containerd: c.inNode, ConfigVersion: c.configVersion,
		Pause: podImage, ProxyMode: n.Proxy, PodCIDRs: ranges(in, podRanges),
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

// joinCluster waits until the node's kubelet has told kube-apiserver of it.
func joinCluster(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if n.Kind != topology.Kubelet {
		return nil
	}
	p, _ := in.Process(n, instance.NodeProcess)
	var last error
	instance.WaitFor(clusterTime, func() bool {
		_, last = kubectl(ctx, in, nil, "get", "node", n.Name)
		return last == nil || ctx.Err() != nil || !p.Alive()
	})
	if last != nil {
		return fmt.Errorf("the kubelet did not come up: %w\n%s\n%s", errors.Join(last, ctx.Err()), in.LogTail(n, instance.NodeProcess), kubeletLog(in, n))
	}
	return nil
}

// kubeletLog is the end of the kubelet's own log.
func kubeletLog(in *instance.Instance, n *topology.Node) string {
	return instance.Tail(filepath.Join(in.Disk(n), "var/log/kubelet.log"))
}

// processes of a node of kind kubelet that match, but for its first: all others
// descend from that one.
func processes(in *instance.Instance, n *topology.Node, match func(pid int) bool) (pids []int, err error) {
	p, _ := in.Process(n, instance.NodeProcess)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			parent := instance.ParentOf(pid)
			children[parent] = append(children[parent], pid)
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

// runs says whether a process was started with these words, the first of which is
// the name of a program in whatever folder.
func runs(pid int, words ...string) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // none: it has ended
	args := strings.Split(string(text), "\x00")
	args[0] = filepath.Base(args[0])
	return len(args) >= len(words) && slices.Equal(args[:len(words)], words)
}
