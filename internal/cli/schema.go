package cli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/docs"
	"github.com/culvert-net/culvert/internal/cmdline"
)

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
