package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// format is how what is read is printed.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

var formats = []string{string(formatTable), string(formatJSON), string(formatYAML)}

// String, Set and Type make it a flag that refuses what it does not know.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("give one of %s", strings.Join(formats, ", "))
	}
	*f = format(s)
	return nil
}

// outputFlag gives a command that reads its -o.
func (a *app) outputFlag(c *cobra.Command) {
	c.Flags().VarP(&a.format, "output", "o", "`format`: table, json or yaml")
	complete(c, "output", formats)
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
	out := c.OutOrStdout()
	switch a.format {
	case formatJSON:
		return printJSON(out, v)
	case formatYAML:
		return printYAML(out, v)
	}
	return printTable(out, table)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine writes JSON in one line.
func printLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printYAML writes what printJSON would, in the same order: JSON is YAML, in
// another style.
func printYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return err
	}
	blockStyle(&n)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return errors.Join(e.Encode(&n), e.Close())
}

// blockStyle lets the encoder choose quotes, and lines in place of braces.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
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
