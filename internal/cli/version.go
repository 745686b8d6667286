package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

// versionInfo is what is to be told about a program in a report.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func versionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionInfo{a.version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.print(c, v, func(g *printer.Grid) { g.Row("culvert", v.Version, v.Go, v.System) })
		},
	}
	a.outputFlag(c)
	return c
}
