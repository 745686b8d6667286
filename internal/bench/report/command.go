package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Command is `culvert bench report`, with the boxes of some papers.
func Command(papers []result.Paper) *cobra.Command {
	o, output := Options{Papers: papers}, "table"
	c := &cobra.Command{
		Use:   "report DIR...",
		Short: "Draw a run again, or compare several",
		Long: `Draws the report of a run from the raw data in its folder: report.html, which
opens offline, pictures of each figure, tables, and summary.md. A folder with
several runs below it gets one report of them all.

Of several folders it compares the runs of each experiment with those in the
first: figures over each other, and of every quantity the ratio, its 95 %
interval, and whether the difference is real.`,
		Example: "  culvert bench report results/functions\n  culvert bench report --out better before after\n  culvert bench report -o json before after",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: give table or json", output)
			}
			for _, f := range o.Formats {
				if !slices.Contains(Formats, f) {
					return fmt.Errorf("--format %q: give some of %s", f, strings.Join(Formats, ","))
				}
			}
			outcome, err := Draw(dirs, o)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(outcome)
			}
			return outcome.print(c)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f := c.Flags()
	f.StringVar(&o.Out, "out", "", "`folder` to write into (default: the run's own; of several: comparison)")
	f.StringSliceVar(&o.Formats, "format", nil, "`formats` to write: "+strings.Join(Formats, ",")+" (default: all)")
	f.StringVarP(&output, "output", "o", output, "`format` of what is said on stdout: table or json (the verdicts of a comparison)")
	for name, values := range map[string][]string{"format": Formats, "output": {"table", "json"}} {
		if err := c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // only a wrong name above can be the reason
		}
	}
	if err := c.MarkFlagDirname("out"); err != nil {
		panic(err)
	}
	return c
}

// print says what the report says on its first page, and where it is.
func (o *Outcome) print(c *cobra.Command) error {
	w := c.OutOrStdout()
	for _, text := range o.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	for _, text := range o.Claims {
		fmt.Fprintf(w, "%s\n", text)
	}
	if len(o.Files) == 0 {
		return errors.New("nothing is written: --format leaves nothing of these figures, which are tables")
	}
	_, err := fmt.Fprintf(w, "%d files are written, see %s\n", len(o.Files), o.page())
	return err
}

// page is the file to look at first.
func (o *Outcome) page() string {
	at := slices.IndexFunc(o.Files, func(name string) bool { return strings.HasSuffix(name, "report.html") })
	return o.Files[max(at, 0)]
}
