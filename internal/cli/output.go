package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/printer"
)

// outputFlag gives a command that reads its -o.
func (a *app) outputFlag(c *cobra.Command) {
	c.Flags().VarP(&a.format, "output", "o", "`format`: table, json or yaml")
	complete(c, "output", printer.Formats)
}

// complete completes a flag from a fixed list.
func complete(c *cobra.Command, flag string, values []string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag: every test sees it
	}
}

// print writes v, as a table the one that rows make.
func (a *app) print(c *cobra.Command, v any, table func(w *grid)) error {
	return a.format.Write(c.OutOrStdout(), v, func(w io.Writer) error { return printTable(w, table) })
}

// grid is a table in the making.
type grid struct {
	w     *tabwriter.Writer
	begun bool
}

func printTable(w io.Writer, table func(*grid)) error {
	g := &grid{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	table(g)
	return g.w.Flush()
}

// row adds a row. An empty cell is shown as "-", so that columns can be
// counted by scripts and eyes.
func (g *grid) row(cells ...any) {
	for i, cell := range cells {
		text := fmt.Sprint(cell)
		if text == "" {
			text = "-"
		}
		if i > 0 {
			fmt.Fprint(g.w, "\t")
		}
		fmt.Fprint(g.w, text)
	}
	fmt.Fprintln(g.w)
	g.begun = true
}

// gap ends a table before another: the columns of the two are their own.
func (g *grid) gap() {
	if g.begun {
		g.line("")
	}
}

// line adds text outside of the columns.
func (g *grid) line(text string) {
	fmt.Fprintln(g.w, text)
	g.begun = true
}
