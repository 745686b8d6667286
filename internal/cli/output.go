package cli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

// outputFlag adds --output to a command.
func (a *app) outputFlag(c *cobra.Command) { cmdline.OutputFlag(c, &a.format) }

// print writes v in the format that the user chose; table writes it as a table.
func (a *app) print(c *cobra.Command, v any, table func(*printer.Grid)) error {
	return a.format.Print(c.OutOrStdout(), v, table)
}
