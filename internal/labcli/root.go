// Package labcli is the command line of culvert-lab: lab, bench, smf and gnb. Users
// type `culvert lab`; culvert then runs culvert-lab in its place.
package labcli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/lab"
	"github.com/culvert-net/culvert/internal/printer"
)

// app is what the commands of the SMF and of the gNB share.
type app struct{ format printer.Format }

// New returns the root command. It is named culvert, because that is what users
// type.
func New(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "Culvert's laboratory: networks on this machine, benchmarks, an SMF, a gNB",
		Long: `Culvert's laboratory: networks on this machine, benchmarks, an SMF, a gNB.

This program is culvert-lab. "culvert lab", "culvert bench", "culvert smf" and
"culvert gnb" run it; it runs the culvert that is in its directory, else the one in
PATH.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cmdline.Usage(err) })
	a := &app{format: printer.Table}
	root.AddCommand(lab.Command(), bench.Command(), a.smf(), a.gnb())
	exemplify(root)
	cmdline.RefuseUnknown(root)
	return root
}
