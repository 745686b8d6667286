package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/bpffs"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// process is what the container is called in the state.
const process = "machine"

// bootTime is what the machine's systemd may take to come up when this one is busy.
const bootTime = time.Minute

// Folder is where the machine has the packages: before and after are folders in it.
const Folder = "/packages"

// Start boots the machine, and waits until its services run.
func Start(ctx context.Context, in *instance.Instance, n *topology.Node, packages Packages, say func(string, ...any)) error {
	archive, err := bareTree(ctx, say)
	if err != nil {
		return err
	}
	name := "culvert-lab-" + in.Name + "-" + n.Name
	disk := filepath.Join(instance.DiskDir, in.Name, n.Name)
	root, debs, pins := filepath.Join(disk, "root"), filepath.Join(disk, "packages"), filepath.Join(in.Pins(), n.Name)
	// What nspawn leaves behind where /run is no tmpfs.
	propagate := filepath.Join("/run/systemd/nspawn/propagate", name)
	for _, dir := range []string{disk, propagate} {
		in.State.Disks = instance.AddNew(in.State.Disks, dir)
	}
	in.State.Pins, in.State.Cgroups = instance.AddNew(in.State.Pins, pins), instance.AddNew(in.State.Cgroups, name)
	if err := in.Save(); err != nil {
		return err
	}
	if err := errors.Join(bpffs.Mount(), os.RemoveAll(disk), kubelet.MakeCgroup(name)); err != nil {
		return err
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return err
	}
	if err := errors.Join(unpack(ctx, archive, root), packages.put(ctx, debs)); err != nil {
		return err
	}
	if err := boot(in, n, name, root, debs, pins); err != nil {
		return err
	}
	return in.AwaitProcess(ctx, n, process, bootTime, func() error {
		out, err := Run(ctx, in, n, "systemctl is-system-running || systemctl --failed --no-legend")
		if strings.TrimSpace(out) != "running" {
			return errors.Join(fmt.Errorf("systemd is not up: %s", out), err)
		}
		return nil
	})
}

// boot starts the container in a cgroup of its own, in which it makes others.
func boot(in *instance.Instance, n *topology.Node, name, root, debs, pins string) error {
	cmd := exec.Command("sh", "-c", `for tasks in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do
	own=${tasks%/*}/`+name+`/cgroup.procs
	[ ! -e "$own" ] || echo 0 >"$own"
done
exec "$@"`, "sh",
		"systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe", "--machine="+name, "--directory="+root,
		"--network-namespace-path="+in.Namespace(n).Path(), "--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--bind="+pins+":/sys/fs/bpf", "--bind-ro="+debs+":"+Folder,
		"--capability=all", "--system-call-filter=bpf perf_event_open")
	// Its operator sets what the kernel does with packets.
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network")
	return in.StartCommand(n, process, cmd)
}

// Leader is the number of the machine's first process.
func Leader(in *instance.Instance, n *topology.Node) (int, bool) {
	p, ok := in.Process(n, process)
	if !ok || !p.Alive() {
		return 0, false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID, p.PID))
	children := strings.Fields(string(text))
	if err != nil || len(children) == 0 {
		return 0, false
	}
	pid, err := strconv.Atoi(children[0])
	return pid, err == nil
}

// Run runs a shell script in the machine, and returns what it printed. A command in it that
// fails ends it with an error.
func Run(ctx context.Context, in *instance.Instance, n *topology.Node, script string) (string, error) {
	pid, ok := Leader(in, n)
	if !ok {
		return "", fmt.Errorf("%s does not run", n.Name)
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--all", "--target", fmt.Sprint(pid), "--", "/usr/bin/env", "-i",
		"PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=",
		"/bin/sh", "-euc", script)
	cmd.WaitDelay = time.Second // the script's own processes may hold its output when it is ended
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("a script in %s: %w: %s", n.Name, errors.Join(ctx.Err(), err), strings.TrimSpace(string(out)))
	}
	return string(out), err
}
