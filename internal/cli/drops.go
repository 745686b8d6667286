package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

func dropsCommand(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "drops", Short: "Show why packets were dropped", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.read(c, func(ctx context.Context, client *api.Client) error {
				outcomes, err := client.Outcomes(ctx, "")
				if err != nil {
					return err
				}
				drops := []agent.Outcome{}
				for _, o := range outcomes {
					if o.Drop && (all || o.Packets > 0) {
						drops = append(drops, o)
					}
				}
				return a.print(c, drops, func(g *printer.Grid) {
					g.Row("REASON", "PACKETS", "BYTES", "MEANING")
					for _, o := range drops {
						g.Row(o.Reason, o.Packets, o.Bytes, o.Text)
					}
				})
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "reasons that never happened too")
	a.outputFlag(c)
	return c
}
