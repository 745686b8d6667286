package printer

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Grid is a table in the making.
type Grid struct {
	w     *tabwriter.Writer
	begun bool
}

// Print writes v as JSON or YAML, or the table that fill makes.
func (f Format) Print(w io.Writer, v any, fill func(*Grid)) error {
	return f.Write(w, v, func(w io.Writer) error { return WriteTable(w, fill) })
}

// WriteTable writes the table that fill makes.
func WriteTable(w io.Writer, fill func(*Grid)) error {
	g := &Grid{w: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	fill(g)
	return g.w.Flush()
}

// Row adds a row. An empty cell is shown as "-", so that columns can be counted
// by scripts and eyes.
func (g *Grid) Row(cells ...any) {
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

// Gap ends a table before another one, which has columns of its own.
func (g *Grid) Gap() {
	if g.begun {
		g.Line("")
	}
}

// Line adds text outside of the columns.
func (g *Grid) Line(text string) {
	fmt.Fprintln(g.w, text)
	g.begun = true
}
