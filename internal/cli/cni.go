package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
)

// cni are the steps of a node's pod in a cluster, as its containers run them.
func (a *app) cni() *cobra.Command {
	c := &cobra.Command{Use: "cni", Short: "Make a node ready for pods: the kernel, the plugin, and whether it is"}
	c.AddCommand(a.cniPrepare(), a.cniInstall(), a.cniUninstall(), a.cniReady())
	return c
}

func (a *app) cniPrepare() *cobra.Command {
	return &cobra.Command{
		Use: "prepare", Short: "Have the kernel forward between pods, uplinks and the node", Args: cmdline.NoArgs,
		Long: `Has the kernel forward IPv4 and IPv6, take routes from routers all the same, and
believe sources whose way back is another one. The daemon does that by itself, but
for where it may not write to /proc/sys, as in a container.`,
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
	c.Flags().StringVar(&f.BinDir, "bin-dir", "/opt/cni/bin", "`folder` of the runtime's plugins")
	c.Flags().StringVar(&f.ConfDir, "conf-dir", "/etc/cni/net.d", "`folder` of the runtime's network configurations")
}

// confFlags are of what is in the network configuration.
func confFlags(c *cobra.Command, f *install.Files) {
	c.Flags().StringVar(&f.Version, "cni-version", "1.0.0", "`version` of CNI: 1.0.0, or 1.1.0 for runtimes that take it")
	c.Flags().StringSliceVar(&f.Chain, "cni-chain", []string{"portmap", "bandwidth"}, "`plugins` behind ours, where they are in the folder of plugins")
}

func (a *app) cniInstall() *cobra.Command {
	var f install.Files
	c := &cobra.Command{
		Use: "install", Short: "Put the plugin where the container runtime looks for it", Args: cmdline.NoArgs,
		Long: `Puts the plugin where the container runtime looks for it, and the network
configuration that names it. With --conf-dir "" the latter is left to the daemon
(culvert run --cni-conf-dir), which writes it when pods can be added.`,
		RunE: func(c *cobra.Command, _ []string) error {
			changed, err := f.Install()
			return errors.Join(say(c, "wrote", changed), err)
		},
	}
	cniFlags(c, &f)
	c.Flags().StringVar(&f.Plugin, "plugin", "/usr/bin/"+install.Program, "`file` of the plugin")
	confFlags(c, &f)
	return c
}

func (a *app) cniUninstall() *cobra.Command {
	var f install.Files
	var stay bool
	c := &cobra.Command{
		Use: "uninstall", Short: "Take the plugin away; pods that are there keep their network", Args: cmdline.NoArgs,
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

// readyInterval is how often the daemon looks whether pods can be added now.
const readyInterval = 200 * time.Millisecond

// announce writes the network configuration when pods can be added: before, a
// node would become ready, and its pods fail.
func announce(ctx context.Context, f install.Files, readiness func() (agent.PodReadiness, error), log *slog.Logger) error {
	look := time.NewTicker(readyInterval)
	defer look.Stop()
	for {
		if r, err := readiness(); err == nil && r.Ready {
			changed, err := f.Configure()
			if err != nil {
				return fmt.Errorf("--cni-conf-dir: %w", err)
			}
			log.Info("pods can be added", "wrote", changed)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

func (a *app) cniReady() *cobra.Command {
	return &cobra.Command{
		Use: "ready", Short: "Whether pods can be added, as CNI's STATUS says; else the exit code is 1", Args: cmdline.NoArgs,
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
