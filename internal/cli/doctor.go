package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/feature"
	"github.com/culvert-net/culvert/internal/doctor"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/printer"
)

// examiner makes what `culvert doctor` does, here and in the daemon. files are the
// container runtime's.
func examiner(files *install.Files) api.Examiner {
	return func(_ context.Context, e api.Examination) ([]api.Finding, error) {
		checks := doctor.Run(doctor.Options{
			Features: feature.XDP, PodFeatures: feature.Pods, Whose: attach.Whose,
			Interfaces: e.Interfaces, GTPUOverIPv4: e.GTPUOverIPv4, Config: e.Running, Overlay: memberOf(e.Overlay, files),
		})
		findings := make([]api.Finding, len(checks))
		for i, c := range checks {
			findings[i] = api.Finding{Name: c.Name, Level: string(c.Level), Detail: c.Detail, Fix: c.Fix, Command: c.Command}
		}
		return findings, nil
	}
}

func memberOf(m *api.Membership, files *install.Files) *doctor.Overlay {
	if m == nil {
		return nil
	}
	return &doctor.Overlay{Uplinks: m.Uplinks, Address: m.Address, Nodes: m.Nodes, Faults: m.Faults, BinDir: files.BinDir, ConfDir: files.ConfDir}
}

// membership is what a configuration says of the cluster; nil: it is none's.
func membership(c *config.Config) *api.Membership {
	o := &c.Overlay
	if !o.IsSet() {
		return nil
	}
	m, self := &api.Membership{Uplinks: o.Uplinks, Address: o.Address}, observed.NodeName(o)
	for _, n := range o.Nodes {
		switch {
		case n.Name != self:
			m.Nodes = append(m.Nodes, overlay.Complete(n, o.SIDs == config.SIDsDouble))
		case !m.Address.IsValid():
			m.Address = n.Address
		}
	}
	return m
}

func doctorCommand(a *app) *cobra.Command {
	var file string
	var fix, yes, remote bool
	var files install.Files
	c := &cobra.Command{
		Use: "doctor [INTERFACE...]", Short: "Check this machine and suggest fixes",
		Long: `Check this machine: kernel, capabilities, bpffs, and offloads of interfaces that
break tunnels. No daemon is needed. It checks the interfaces named, those of the
configuration file, or all that are up. On a node of a cluster it checks uplinks,
paths to the other nodes and the container runtime's directories, and other
interfaces only if they are named or configured. --fix shows the commands that fix
what was found, asks, runs them and checks again. The exit code is 3 if something
does not work.`,
		Example: "  culvert doctor --config /etc/culvert/culvert.yaml\n  culvert doctor --config /etc/culvert/culvert.yaml --fix",
		RunE: func(c *cobra.Command, interfaces []string) error {
			e := api.Examination{Interfaces: interfaces}
			if file != "" {
				wanted, err := readConfig(file)
				if err != nil {
					return err
				}
				e.Interfaces = append(e.Interfaces, wanted.InterfaceNames()...)
				e.GTPUOverIPv4, e.Running = wanted.SendsGTPUOverIPv4(), wanted
				e.Overlay = membership(wanted)
			}
			examine := func() ([]api.Finding, error) {
				if remote {
					return ask(a, c, readTimeout, func(client *api.Client, ctx context.Context) ([]api.Finding, error) {
						return client.Doctor(ctx, e.Interfaces)
					})
				}
				return examiner(&files)(c.Context(), e)
			}
			if remote && fix {
				return cmdline.Usagef("--fix runs commands on this machine, and --remote looks at the daemon's: give one of them")
			}
			if yes && !fix {
				return cmdline.Usagef("--yes is for --fix")
			}
			findings, err := examine()
			if err != nil {
				return err
			}
			if fix {
				return a.fixFindings(c, findings, yes, examine)
			}
			return a.printFindings(c, findings)
		},
	}
	c.Flags().StringVar(&file, "config", "", "check the interfaces of this configuration `file`")
	c.Flags().BoolVar(&fix, "fix", false, "show the commands that fix what was found, ask, and run them")
	c.Flags().BoolVar(&yes, "yes", false, "with --fix: do not ask")
	c.Flags().BoolVar(&remote, "remote", false, "ask the daemon about its machine")
	c.Flags().StringVar(&files.BinDir, "cni-bin-dir", "/opt/cni/bin", "`directory` of the container runtime's plugins, on a node of a cluster")
	c.Flags().StringVar(&files.ConfDir, "cni-conf-dir", "/etc/cni/net.d", "`directory` of its network configurations")
	return a.printing(c)
}

// readConfig reads the configuration file that --config names.
func readConfig(file string) (*config.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	wanted, err := config.Parse(data)
	if err != nil {
		return nil, config.InFile(file, err)
	}
	return wanted, nil
}

func (a *app) printFindings(c *cobra.Command, findings []api.Finding) error {
	failed := 0
	for _, f := range findings {
		if f.Level == string(doctor.Fail) {
			failed++
		}
	}
	err := a.print(c, findings, func(g *printer.Grid) {
		g.Row("LEVEL", "CHECK", "FINDING")
		for _, f := range findings {
			g.Row(f.Level, f.Name, f.Detail)
			if f.Fix != "" {
				g.Row(" ", " ", "fix: "+f.Fix)
			}
		}
	})
	if err == nil && failed > 0 {
		plural := "s"
		if failed == 1 {
			plural = ""
		}
		return cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("%d check%s failed", failed, plural))
	}
	return err
}
