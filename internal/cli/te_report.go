package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine/picture"
	"github.com/culvert-net/culvert/internal/engine/simulate"
)

func teReport(a *app) *cobra.Command {
	var f planFlags
	fail := ""
	c := &cobra.Command{
		Use:   "report FILE [--fail LINK|NODE|all] > PAGE.html",
		Short: "Draw a network, the paths of demands, and a plan, as a page for a browser",
		Long: `Writes a page of HTML to standard output: the network by utilisation, now and after each
step of the plan, the paths of a demand, and what changes. It is one file that fetches
nothing. With --fail it also has what failures do. The page of a running engine, with
what happened over time, is at its engine.listen.`,
		Example: "  culvert te report network.yaml > network.html\n  culvert te report network.yaml --fail all > network.html",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.network(c, args)
			if err != nil {
				return err
			}
			p, err := f.compute(c, n)
			if err != nil {
				return err
			}
			var outcomes []simulate.Outcome
			if fail != "" {
				failures, err := simulate.Failures(n.Topology, fail)
				if err != nil {
					return cmdline.Usagef("--fail: %w", err)
				}
				if outcomes, err = simulate.Run(c.Context(), n, failures, progressOn(c, len(failures), "failures")); err != nil {
					return err
				}
			}
			title := "Traffic engineering"
			if args[0] != "-" {
				title += ": " + filepath.Base(args[0])
			}
			return picture.Write(c.OutOrStdout(), picture.OfPlan(title, n, p, f.target/100, outcomes))
		},
	}
	f.add(c)
	c.Flags().StringVar(&fail, "fail", fail, "what fails: a `name` of a node, FROM-TO of a link, or all, one after the other")
	return c
}
