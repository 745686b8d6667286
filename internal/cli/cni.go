package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
	"github.com/culvert-net/culvert/internal/logevent"
)

// cniCommand has the steps that the containers of a node's pod run in a cluster.
func cniCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "cni", Short: "Prepare a node for pods: kernel settings, plugin, readiness"}
	c.AddCommand(cniPrepareCommand(), cniInstallCommand(), cniUninstallCommand(), cniReadyCommand(a), cniAbsentCommand())
	return c
}

func cniPrepareCommand() *cobra.Command {
	return &cobra.Command{
		Use: "prepare", Short: "Set up the kernel to forward between pods, uplinks and the node", Args: cmdline.NoArgs,
		Long: `Sets the kernel to forward IPv4 and IPv6, to keep accepting router advertisements,
and to accept packets whose return route differs. The daemon does this itself where
it may write to /proc/sys, which it may not in a container.`,
		RunE: func(c *cobra.Command, _ []string) error {
			changed, err := install.Prepare("/proc/sys")
			return errors.Join(say(c, "set", changed), err)
		},
	}
}

// say prints a line for each of what was done.
func say(c *cobra.Command, what string, names []string) error {
	for _, name := range names {
		if _, err := fmt.Fprintln(c.OutOrStdout(), what, name); err != nil {
			return err
		}
	}
	return nil
}

func cniFlags(c *cobra.Command, f *install.Files) {
	c.Flags().StringVar(&f.BinDir, "bin-dir", "/opt/cni/bin", "`directory` of the runtime's plugins")
	c.Flags().StringVar(&f.ConfDir, "conf-dir", "/etc/cni/net.d", "`directory` of the runtime's network configurations")
}

// confFlags are of what is in the network configuration.
func confFlags(c *cobra.Command, f *install.Files) {
	c.Flags().StringVar(&f.Version, "cni-version", "1.0.0", "`version` of CNI: 1.0.0, or 1.1.0 for runtimes that support it")
	c.Flags().StringSliceVar(&f.Chain, "cni-chain", []string{"portmap", "bandwidth"}, "`plugins` to run after ours, if the runtime has them")
}

func cniInstallCommand() *cobra.Command {
	var f install.Files
	c := &cobra.Command{
		Use: "install", Short: "Install the plugin for the container runtime", Args: cmdline.NoArgs,
		Long: `Installs the plugin, and the network configuration that names it, where the
container runtime looks for them. With --conf-dir "" the daemon writes the
configuration as soon as pods can be added (culvert run --cni-conf-dir).`,
		RunE: func(c *cobra.Command, _ []string) error {
			changed, err := f.Install()
			return errors.Join(say(c, "wrote", changed), err)
		},
	}
	cniFlags(c, &f)
	c.Flags().StringVar(&f.Plugin, "plugin", "/usr/bin/"+install.Program, "`file` to install as the plugin")
	confFlags(c, &f)
	return c
}

func cniUninstallCommand() *cobra.Command {
	var f install.Files
	var stay bool
	c := &cobra.Command{
		Use: "uninstall", Short: "Remove the plugin; existing pods keep their network", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			removed, err := f.Remove()
			if err := errors.Join(say(c, "removed", removed), err); err != nil || !stay {
				return err
			}
			<-c.Context().Done()
			return nil
		},
	}
	cniFlags(c, &f)
	c.Flags().BoolVar(&stay, "stay", false, "go on running, as a container of a DaemonSet has to")
	return c
}

func cniAbsentCommand() *cobra.Command {
	var f install.Files
	c := &cobra.Command{
		Use: "absent", Short: "Fail where Culvert connects this node's pods", Args: cmdline.NoArgs,
		Long: `Fails where the plugin or its network configuration is. The chart of a UPF asks so
before its daemon starts: on such a node the pins and the state are those of the daemon
that connects the pods.`,
		RunE: func(*cobra.Command, []string) error {
			paths, err := f.Present()
			if err != nil || len(paths) == 0 {
				return err
			}
			return fmt.Errorf("culvert connects the pods of this node (%s): a UPF here would take its pins and its state; "+
				"run the UPF on another node, or uninstall the plugin of this one first", strings.Join(paths, ", "))
		},
	}
	cniFlags(c, &f)
	return c
}

// readyInterval is how often the daemon looks whether pods can be added now.
const readyInterval = 200 * time.Millisecond

// announce writes the network configuration when pods can be added: before, a
// node would become ready, and its pods fail.
func announce(ctx context.Context, f install.Files, readiness func() (pods.Readiness, error), log *slog.Logger) error {
	look := time.NewTicker(readyInterval)
	defer look.Stop()
	for {
		if r, err := readiness(); err == nil && r.Ready {
			changed, err := f.Configure()
			if err != nil {
				return fmt.Errorf("--cni-conf-dir: %w", err)
			}
			log.Info("pods can be added", "event", logevent.CNIReady, "wrote", changed)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

func cniReadyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "ready", Short: "Show whether pods can be added, as CNI's STATUS does; the exit code is 1 if not", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
			defer cancel()
			r, err := api.PodReadiness(ctx, a.endpoint.Socket)
			switch {
			case err != nil:
				return err
			case !r.Ready:
				return fmt.Errorf("not ready: %s", r.Reason)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "ready")
			return err
		},
	}
}
