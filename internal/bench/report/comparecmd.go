package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// regression is the error of a comparison that found something worse.
type regression int

// ExitRegression is the exit code where a quantity is worse.
const ExitRegression = 3

// ExitStatus is the exit code of the program.
func (regression) ExitStatus() int { return ExitRegression }

func (n regression) Error() string {
	return fmt.Sprintf("%d quantities are worse, by more than chance and the margin explain", int(n))
}

// CompareCommand is `culvert bench compare`.
func CompareCommand() *cobra.Command {
	o, output, all := Options{Compare: Compare{Margin: stats.Margin}}, "table", false
	c := &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Compare two machines or two versions, with intervals",
		Long: `Compares the runs in two folders, or two files run.json: of two machines, to choose
hardware, or of two versions. It sets the machines side by side, prints what differs for
certain, and draws a report page. Each quantity has the ratio of AFTER to BEFORE with its
95 % interval. A difference is real if it stands out from chance with all quantities taken
together (rank test, Holm, 5 %), and by more than --margin. Nothing is real of a run that
is too noisy to claim anything.

Times, memory and losses are worse if there is more of them, rates if there is less.
Between machines, --ratios compares only what stands beside a baseline of the same run.

The exit code is 0 if nothing is worse, 3 if something is, 1 if the runs cannot be
compared, and 2 after wrong usage.`,
		Example: "  culvert bench compare before after\n  culvert bench compare --ratios old/run.json new/run.json -o json\n  culvert bench compare --margin 0.05 xeon epyc --out xeon-epyc",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, dirs []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output %q: give table or json", output)
			}
			if !(o.Margin > 0 && o.Margin < 1) {
				return fmt.Errorf("--margin %v: give a share above 0 and below 1, such as 0.05", o.Margin)
			}
			outcome, err := Draw(dirs, o)
			if err != nil {
				return err
			}
			if err := outcome.show(c.OutOrStdout(), output, all); err != nil {
				return err
			}
			if n := outcome.worse(); n > 0 {
				return regression(n)
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json"}, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f := c.Flags()
	f.StringVar(&o.Out, "out", "", "`folder` for the report (default: comparison)")
	f.Float64Var(&o.Margin, "margin", o.Margin, "`share` by which quantities may differ that are called the same")
	f.BoolVar(&o.RatiosOnly, "ratios", false, "compare only ratios to a baseline of the same run")
	f.BoolVar(&all, "all", false, "print the quantities without a real difference, too")
	f.StringVarP(&output, "output", "o", output, "`format` of what is said on stdout: table or json")
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // only a wrong name above can be the reason
	}
	return c
}

// worse is how many quantities are.
func (o *Outcome) worse() (n int) {
	for _, c := range o.Comparisons {
		for _, d := range c.Differences {
			if d.Change == Worse {
				n++
			}
		}
	}
	return n
}

// show prints a comparison.
func (o *Outcome) show(w io.Writer, format string, all bool) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(o)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	machines := machineTable(o.Machines)
	for _, row := range append([][]string{machines.Head}, machines.Rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	fmt.Fprintln(t)
	for _, c := range o.Comparisons {
		c.print(t, all)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, text := range o.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	_, err := fmt.Fprintf(w, "%d files are written, see %s\n", len(o.Files), o.page())
	return err
}

// print writes the differences of an experiment, what is worse first.
func (c *Comparison) print(w io.Writer, all bool) {
	fmt.Fprintf(w, "%s\t%s\t%s\tratio\t95 %% interval\tverdict\n", c.Experiment, c.Runs[0], c.Runs[1])
	order := []string{Worse, Improved, real, notShown, noRatio}
	rank := func(d Difference) int { return slices.Index(order, d.word()) }
	list := slices.SortedStableFunc(slices.Values(c.Differences), func(a, b Difference) int { return cmp.Compare(rank(a), rank(b)) })
	count := 0
	for _, d := range list {
		if d.Verdict == real {
			count++
		} else if !all {
			continue
		}
		ratio, interval := d.words()
		s := scaleOf(d.Unit, max(d.First, d.Second))
		value := func(v float64) string { return number(v/s.by) + s.suffix() }
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.name(), value(d.First), value(d.Second), ratio, interval, d.word())
	}
	fmt.Fprintf(w, "%d of %d differences are real\n\n", count, len(c.Differences))
}

// word is a difference's verdict, and which way it goes.
func (d Difference) word() string { return cmp.Or(d.Change, d.Verdict) }

// name says what differs: the metric, and the labels in the order of their names.
func (d Difference) name() string {
	words := strings.TrimPrefix(inWords(d.Labels), " with ")
	name := strings.ReplaceAll(d.Metric, "_", " ")
	if d.Value == result.ToBaseline || d.Value == result.OfBaseline {
		name += ", " + strings.ReplaceAll(string(d.Value), "_", " ")
	}
	return name + ": " + words
}
