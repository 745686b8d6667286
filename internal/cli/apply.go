package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

func applyCommand(a *app) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "apply FILE", Short: "Apply a configuration file, changing only what differs",
		Long: `Apply a configuration file. Only what differs from the running configuration
changes. Resources that "add" added stay. If anything is wrong, nothing changes.`,
		Args: cmdline.Exactly(1, "one FILE (- for standard input)"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			wanted, lines, err := config.ParseLines(data)
			if err != nil {
				return inFile(args[0], err)
			}
			return a.change(c, func(ctx context.Context, client *api.Client) error {
				changes, err := client.Apply(ctx, wanted, dryRun)
				if err != nil {
					return inFile(args[0], lines.Of(err))
				}
				return a.printChanges(c, changes)
			})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	a.outputFlag(c)
	return c
}

// configCommand prints the running configuration in the form that apply takes.
func configCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Print the running configuration, as apply accepts it", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.read(c, func(ctx context.Context, client *api.Client) error {
				running, err := client.Running(ctx)
				if err != nil {
					return err
				}
				if a.format == printer.JSON {
					return printer.WriteJSON(c.OutOrStdout(), running)
				}
				return printer.WriteYAML(c.OutOrStdout(), running)
			})
		},
	}
	a.outputFlag(c)
	return c
}
