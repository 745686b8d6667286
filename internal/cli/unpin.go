package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
)

func unpinCommand(a *app) *cobra.Command {
	var pinPath string
	c := &cobra.Command{
		Use: "unpin", Short: "Detach the data path and remove its pins: forwarding stops",
		Long: `Detach the data path from its interfaces and remove its pins: forwarding stops.
On a node of a cluster this also removes the kernel's interfaces, routes and
masquerading of the overlay; pods and their addresses stay.
Stop the daemon first. Resources added through the API stay in the state file.`,
		Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(dataplane.Remove(pinPath), netdev.RemoveOverlay()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "nothing of culvert is left at %s\n", pinPath)
			return err
		},
	}
	c.Flags().StringVar(&pinPath, "pin-path", agent.DefaultPinPath, "`DIR` of the pins")
	return c
}
