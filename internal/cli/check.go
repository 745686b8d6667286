package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

func checkCommand(a *app) *cobra.Command {
	var offline bool
	c := &cobra.Command{
		Use: "check FILE", Short: "Check a configuration file; no daemon is needed",
		Long: `Check a configuration file; no daemon is needed. All errors are shown at once, each
with the line, the field and the fix. The exit code is 3 if there are errors.`,
		Args: cmdline.Exactly(1, "one FILE (- for standard input)"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			list, err := cmdline.Await(c.Context(), func() (config.Errors, error) { return checkFile(data, offline) })
			if err != nil {
				return err
			}
			if len(list) == 0 || a.format != printer.Table {
				err = a.print(c, list, func(g *printer.Grid) { g.Line(args[0] + ": ok") })
			}
			if err != nil || len(list) == 0 {
				return err
			}
			if a.format != printer.Table {
				return cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("%s: %d errors", args[0], len(list)))
			}
			return cmdline.WithCode(cmdline.ExitCheckFailed, config.InFile(args[0], list))
		},
	}
	c.Flags().BoolVar(&offline, "offline", false, "do not look for the interfaces: the file is for another machine")
	return a.printing(c)
}

// checkFile returns what is wrong in a file. It fails if it cannot list the interfaces.
func checkFile(data []byte, offline bool) (config.Errors, error) {
	err := config.Check(data, !offline)
	if list, ok := errors.AsType[config.Errors](err); ok {
		return list, nil
	}
	return config.Errors{}, err
}
