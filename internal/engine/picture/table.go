package picture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/engine/netfile"
)

// shown is how many rows a table shows before it is folded.
const shown = 12

// table writes a table; a long one is folded after its first rows.
func (w *writer) table(t Table) {
	w.add("<section><h2>%s</h2>", t.Title)
	if t.Caption != "" {
		w.add("<p>%s</p>", t.Caption)
	}
	first, rest := t.Rows, [][]string(nil)
	if len(t.Rows) > shown+3 {
		first, rest = t.Rows[:shown], t.Rows[shown:]
	}
	w.rows(t.Head, first)
	if len(rest) > 0 {
		w.add("<details><summary>%d more</summary>", len(rest))
		w.rows(t.Head, rest)
		w.add("</details>")
	}
	w.add("</section>\n")
}

func (w *writer) rows(head []string, rows [][]string) {
	w.add(`<div class="scroll"><table><thead><tr>`)
	for _, h := range head {
		w.add(`<th scope="col">%s</th>`, h)
	}
	w.add("</tr></thead><tbody>")
	for _, r := range rows {
		w.add("<tr>")
		for _, c := range r {
			w.add("<td>%s</td>", c)
		}
		w.add("</tr>")
	}
	w.add("</tbody></table></div>")
}

// demands lists the largest demands, and their paths over time.
func (p *Page) demands(w *writer) {
	if len(p.Demands) == 0 {
		return
	}
	t := Table{Title: "Demands", Head: []string{"demand", "rate", "path"}}
	if more := p.All - len(p.Demands); more > 0 {
		t.Caption = fmt.Sprintf("The %d largest of %d.", len(p.Demands), p.All)
	}
	for _, d := range p.Demands {
		path := "none"
		if n := len(d.Paths); n > 0 {
			path = d.Paths[n-1].Lists
		}
		t.Rows = append(t.Rows, []string{d.Name(), netfile.Rate(d.Rate).String(), path})
	}
	w.table(t)
	w.add(`<section id="paths" hidden><h2>Paths of <span id="of"></span></h2><div class="scroll"><table><thead><tr><th scope="col">from</th><th scope="col">path</th></tr></thead><tbody></tbody></table></div></section>`)
}

// links lists the directions of links, the fullest first.
func (p *Page) links(w *writer) {
	order := make([]int, len(p.Links))
	for i := range order {
		order[i] = i
	}
	last := p.last()
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(last[b], last[a]) })
	t := Table{Title: "Links", Head: []string{"link", "capacity", "metric", "delay"}}
	for _, f := range p.columns() {
		t.Head = append(t.Head, "used "+f.label())
	}
	for _, i := range order[:min(len(order), 200)] {
		l := p.Links[i]
		row := []string{l.Direction(), netfile.Rate(l.Capacity).String(), fmt.Sprint(l.Metric), l.Delay.String()}
		for _, f := range p.columns() {
			row = append(row, used(f.Used[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	if len(p.Links) > len(t.Rows) {
		t.Caption = fmt.Sprintf("The %d fullest of %d.", len(t.Rows), len(p.Links))
	}
	w.table(t)
}

// columns are the frames that the table of links has: of a time the last one only.
func (p *Page) columns() []Frame {
	n := len(p.Frames)
	if n > 1 && p.Frames[0].At.IsZero() {
		return []Frame{p.Frames[0], p.Frames[n-1]}
	}
	return p.Frames[max(0, n-1):]
}
