package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/machine"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

func execCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec [flags] NAME NODE COMMAND [ARGUMENT...]", Short: "Run a command in a node of a lab that is up",
		Long: `Runs a command in the network of a node or pod. In a node of kind kubelet or machine it sees
the node's files and processes, too. In labs with kube-apiserver kubectl and its
configuration are at hand: culvert lab exec cluster api kubectl get pods -o wide`,
		Args: cobra.MinimumNArgs(3), ValidArgsFunction: completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SilenceUsage = true
			t, err := named(args[0])
			if err != nil {
				return err
			}
			if strings.HasPrefix(args[1], "-") {
				return cmdline.Usagef("%s: give flags before the lab, as in culvert lab exec --as mine %s NODE COMMAND", args[1], t.Name)
			}
			in, err := instance.Look(t, o.as)
			if err != nil {
				return err
			}
			n := in.Node(args[1])
			if n == nil {
				return fmt.Errorf("lab %s has no node %q", t.Name, args[1])
			}
			return runIn(in, cmd, n, args[2:])
		},
	}
	cmd.Flags().StringVar(&o.as, "as", "", "`name` of this instance of the lab (default: the lab's)")
	cmd.Flags().SetInterspersed(false) // the command's flags are its own
	return cmd
}

// runIn runs a command in a node, which has our signals and ends with its status.
func runIn(in *instance.Instance, cobra *cobra.Command, n *topology.Node, args []string) error {
	enter := []string{"--net=" + in.Namespace(n).Path()}
	if p, ok := in.Process(n, instance.NodeProcess); ok {
		enter = []string{"--all", "--target", fmt.Sprint(p.PID)}
	} else if pid, ok := machine.Leader(in, n); ok {
		enter = []string{"--all", "--target", fmt.Sprint(pid)}
	}
	cmd := exec.Command("nsenter", append(append(enter, "--"), args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = cobra.InOrStdin(), cobra.OutOrStdout(), cobra.ErrOrStderr()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+instance.Kubeconfig(in), "PATH="+searched(self, os.Getenv("PATH")))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended meanwhile
		}
	}()
	err = cmd.Wait()
	signal.Stop(signals)
	close(signals)
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended{e}
	}
	return err
}

// searched are the folders with the commands of nodes, culvert's own first: it is beside this program.
func searched(self, path string) string {
	return strings.Join([]string{filepath.Dir(self), path, "/usr/sbin", "/sbin", cluster.Programs(), kubelet.Bin}, ":")
}

// ended is a command that ran in a node and failed: it has said why itself.
type ended struct{ *exec.ExitError }

// Error has nothing to add.
func (ended) Error() string { return "" }

// ExitStatus is what a shell would call the command's.
func (e ended) ExitStatus() int {
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return e.ExitCode()
}

// way is the command by which somebody looks around in a node.
func way(in *instance.Instance, n *topology.Node) string {
	command := "bash"
	switch {
	case n.Kind == topology.APIServer && len(in.Kubelets()) > 0:
		command = "kubectl get nodes,pods -A -o wide"
	case n.Kind != topology.Kubelet && n.Kind != topology.Machine:
		return "ip netns exec " + in.Namespace(n).Name + " bash"
	}
	as := ""
	if in.Name != in.Topology.Name {
		as = " --as " + in.Name
	}
	return fmt.Sprintf("culvert lab exec%s %s %s %s", as, in.Topology.Name, n.Name, command)
}
