package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
)

func applyCommand(a *app) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "apply FILE", Short: "Apply a configuration file, changing only what differs",
		Long: `Apply a configuration file. Only what differs from the running configuration
changes. Resources that "add" added stay. If anything is wrong, nothing changes.

Without --socket and --address, and with nothing at the default socket, it takes
the socket that FILE names (api.socket).`,
		Args: cmdline.Exactly(1, "one FILE (- for standard input)"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			var lines config.Lines
			wanted, err := cmdline.Await(c.Context(), func() (wanted *config.Config, err error) {
				wanted, lines, err = config.ParseLines(data)
				return wanted, err
			})
			if err != nil {
				return config.InFile(args[0], err)
			}
			if !c.Flags().Changed("socket") {
				a.endpoint.Socket = socketOf(a.endpoint.Socket, wanted)
			}
			err = a.change(c, func(client *api.Client, ctx context.Context) ([]desired.Change, error) {
				return client.Apply(ctx, wanted, dryRun)
			})
			return config.InFile(args[0], lines.Of(err))
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	return a.printing(c)
}

// socketOf is the socket of a daemon with this configuration, where nothing is at the default one.
func socketOf(usual string, c *config.Config) string {
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) && c.API.Socket != "" {
		return c.API.Socket
	}
	return usual
}

// configCommand prints the running configuration in the form that apply takes.
func configCommand(a *app) *cobra.Command {
	return a.printing(&cobra.Command{
		Use: "config", Short: "Print the running configuration, as apply accepts it", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return show(a, c, (*api.Client).Running, nil)
		},
	})
}
