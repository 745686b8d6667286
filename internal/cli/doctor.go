package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/doctor"
)

// examine is what `culvert doctor` does, here and in the daemon.
func examine(_ context.Context, e api.Examination) ([]api.Finding, error) {
	checks := doctor.Run(doctor.Options{
		Prober:     doctor.ProberFunc(dataplane.Features),
		Interfaces: e.Interfaces, GTPUOverIPv4: e.GTPUOverIPv4,
	})
	findings := make([]api.Finding, len(checks))
	for i, c := range checks {
		findings[i] = api.Finding{Name: c.Name, Level: string(c.Level), Detail: c.Detail, Fix: c.Fix, Command: c.Command}
	}
	return findings, nil
}

func (a *app) doctor() *cobra.Command {
	var file string
	var fix, remote bool
	c := &cobra.Command{
		Use: "doctor [INTERFACE...]", Short: "Check this machine, and say how to mend what is found",
		Long: `Check this machine: kernel, capabilities, bpffs, and what interfaces do to
packets that breaks tunnels. It needs no daemon; interfaces are those named, or
of the configuration file, or all that are up. The exit code is 3 if something
does not work.`,
		Example: "  culvert doctor --config /etc/culvert/culvert.yaml\n  culvert doctor --fix eth1 | sh",
		RunE: func(c *cobra.Command, interfaces []string) error {
			e := api.Examination{Interfaces: interfaces}
			if file != "" {
				wanted, err := configOf(file)
				if err != nil {
					return err
				}
				e.Interfaces = append(e.Interfaces, wanted.InterfaceNames()...)
				e.GTPUOverIPv4 = wanted.SendsGTPUOverIPv4()
			}
			findings, err := a.examined(c, e, remote)
			if err != nil {
				return err
			}
			return a.printFindings(c, findings, fix)
		},
	}
	c.Flags().StringVar(&file, "config", "", "look at the interfaces of this configuration `FILE`")
	c.Flags().BoolVar(&fix, "fix", false, "print only the commands that mend what was found, to be read and run")
	c.Flags().BoolVar(&remote, "remote", false, "ask the daemon about its machine")
	a.outputFlag(c)
	return c
}

func configOf(file string) (*config.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	wanted, err := config.Parse(data)
	if err != nil {
		return nil, inFile(file, err)
	}
	return wanted, nil
}

func (a *app) examined(c *cobra.Command, e api.Examination, remote bool) (findings []api.Finding, err error) {
	if !remote {
		return examine(c.Context(), e)
	}
	err = a.read(c, func(ctx context.Context, client *api.Client) error {
		findings, err = client.Doctor(ctx, e.Interfaces)
		return err
	})
	return findings, err
}

func (a *app) printFindings(c *cobra.Command, findings []api.Finding, fix bool) error {
	failed := 0
	for _, f := range findings {
		if f.Level == string(doctor.Fail) {
			failed++
		}
		if fix && len(f.Command) > 0 {
			fmt.Fprintln(c.OutOrStdout(), strings.Join(f.Command, " "))
		}
	}
	if fix {
		return nil
	}
	err := a.print(c, findings, func(g *grid) {
		g.row("LEVEL", "CHECK", "FINDING")
		for _, f := range findings {
			g.row(f.Level, f.Name, f.Detail)
			if f.Fix != "" {
				g.row(" ", " ", "fix: "+f.Fix)
			}
		}
	})
	if err == nil && failed > 0 {
		text := "1 check failed"
		if failed > 1 {
			text = fmt.Sprintf("%d checks failed", failed)
		}
		return &exitError{ExitCheckFailed, errors.New(text)}
	}
	return err
}
