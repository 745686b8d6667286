package cli

import (
	"runtime"

	"github.com/spf13/cobra"
)

// versionInfo is what is to be told about a program in a report.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	System  string `json:"system"`
}

func (a *app) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "The version of this program", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionInfo{a.version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.print(c, v, func(g *grid) { g.row("culvert", v.Version, v.Go, v.System) })
		},
	}
	a.outputFlag(c)
	return c
}
