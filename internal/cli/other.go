package cli

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/docs"
	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/doctor"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/printer"
)

// versionInfo is what a bug report must say about the program.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func versionCommand(a *app) *cobra.Command {
	return a.printing(&cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := a.versionInfo()
			return a.print(c, v, func(g *printer.Grid) { g.Row("culvert", v.Version, v.Go, v.System) })
		},
	})
}

func (a *app) versionInfo() versionInfo {
	return versionInfo{a.version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func schemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of the configuration file", Args: cmdline.NoArgs,
		Long: `Print the JSON schema of the configuration file. Editors use it to complete and
check what you type.`,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(docs.Schema)
			return err
		},
	}
}

// needs refuses a command that would fail step by step for want of capabilities.
func needs(c *cobra.Command, capabilities ...string) error {
	if lacks := doctor.Lacks(capabilities...); len(lacks) > 0 {
		return fmt.Errorf("%s needs %s: run it as root", c.CommandPath(), strings.Join(lacks, ", "))
	}
	return nil
}

func unpinCommand(a *app) *cobra.Command {
	var pinPath string
	var spare bool
	var cni install.Files
	c := &cobra.Command{
		Use: "unpin", Short: "Detach the data path and remove its pins: forwarding stops",
		Long: `Detach the data path from its interfaces and remove its pins: forwarding stops.
Interfaces that are closed are opened: the kernel gets every frame.
On a node of a cluster this also removes the kernel's interfaces, routes and
masquerading of the overlay; pods and their addresses stay.
Stop the daemon first. Resources added through the API stay in the state file.`,
		Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if spare {
				paths, err := cni.Present()
				if err != nil || len(paths) > 0 {
					return errors.Join(err, say(c, "nothing is detached, because culvert connects the pods of this node:", paths))
				}
			}
			if err := needs(c, "CAP_BPF", "CAP_NET_ADMIN"); err != nil {
				return err
			}
			if err := errors.Join(dataplane.Remove(pinPath), netdev.RemoveOverlay()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "nothing of culvert is left at %s\n", pinPath)
			return err
		},
	}
	c.Flags().StringVar(&pinPath, "pin-path", agent.DefaultPinPath, "`directory` of the pins")
	c.Flags().BoolVar(&spare, "spare-pods", false, "do nothing where the plugin for pods is in --bin-dir, or its configuration in --conf-dir")
	cniFlags(c, &cni)
	return c
}
