package picture

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/te"
)

// Sizes of the graph, in pixels of its width.
const (
	graphWidth, margin = 1000.0, 50.0
	lowest, highest    = 200.0, 760.0 // its height
	// mostDrawn is how many nodes can be drawn, mostNamed how many have names in the picture,
	// and mostLabels how many directions of links have their utilisation there.
	mostDrawn, mostNamed, mostLabels = 1000, 100, 120
	longestName                      = 14
)

// levels are classes of utilisation, for the legend and for colours: from this on.
var levels = []struct {
	from float64
	name string
}{{-1, "no traffic"}, {0.001, "below 50 %"}, {0.5, "50 to 80 %"}, {0.8, "80 to 100 %"}, {1, "full"}}

// level is the class of a utilisation; -1: the link is not there.
func level(u float32) (at int) {
	if u < 0 {
		return -1
	}
	for i, l := range levels {
		if float64(u) >= l.from {
			at = i
		}
	}
	return at
}

// about is what a link is, in words.
func about(l te.Link) string {
	text := fmt.Sprintf("%s, %s, metric %d", l.Direction(), netfile.Rate(l.Capacity), l.Metric)
	if l.Delay > 0 {
		text += ", " + l.Delay.Round(time.Microsecond).String()
	}
	return text
}

// graph draws nodes and links. Each direction of a link is the half that begins at its node.
func (p *Page) graph(w *writer) {
	if len(p.Nodes) > mostDrawn {
		w.add("<p>%d nodes are more than a picture shows; the tables have the fullest links and the largest demands.</p>", len(p.Nodes))
		return
	}
	index := map[string]int{}
	for i, n := range p.Nodes {
		index[n] = i
	}
	ends := make([][2]int, len(p.Links))
	for i, l := range p.Links {
		ends[i] = [2]int{index[l.From], index[l.To]}
	}
	at, height := scaled(layout(len(p.Nodes), ends))
	w.add(`<figure class="scroll" tabindex="0"><svg class="graph" viewBox="0 0 %.0f %.0f" role="img" aria-label="The network; the tables below have its figures.">`, graphWidth, height)
	beside := map[[2]int]int{} // links between two nodes that are drawn
	labels := &writer{}
	for i, l := range p.Links {
		u := float32(-1)
		if last := p.last(); i < len(last) {
			u = last[i]
		}
		shift := beside[ends[i]]
		beside[ends[i]]++
		h := halfOf(at[ends[i][0]], at[ends[i][1]], shift)
		w.add(`<g class="link u%d" id="l%d" data-about="%s"><title>%s: %s</title><path d="M%.1f %.1fL%.1f %.1f" marker-end="url(#tip%d)"/></g>`,
			level(u), i, about(l), about(l), used(u), h.from.x, h.from.y, h.to.x, h.to.y, level(u))
		if len(p.Links) <= mostLabels {
			labels.add(`<text class="used" id="t%d" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, i, h.label.x, h.label.y, h.anchor, shortUsed(u))
		}
	}
	w.Write(labels.Bytes())
	p.nodes(w, at)
	w.add("<defs>")
	for i := -1; i < len(levels); i++ {
		w.add(`<marker id="tip%d" viewBox="0 0 6 6" refX="4" refY="3" markerWidth="3" markerHeight="3" orient="auto"><path class="tip u%d" d="M0 0L6 3L0 6z"/></marker>`, i, i)
	}
	w.add(`</defs></svg></figure><p class="legend">`)
	for i, l := range levels {
		w.add(`<span><i class="key u%d"></i>%s</span>`, i, l.name)
	}
	w.add(`<span><i class="key u-1"></i>not there</span></p>` + "\n")
}

// shortUsed is what a link's direction is labelled with: nothing where nothing is to be said.
func shortUsed(u float32) string {
	if u < 0.0005 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*u)
}

// nodes draws nodes over links.
func (p *Page) nodes(w *writer, at []position) {
	for i, name := range p.Nodes {
		if len(p.Nodes) > mostNamed {
			w.add(`<circle class="node" cx="%.1f" cy="%.1f" r="4"><title>%s</title></circle>`, at[i].x, at[i].y, name)
			continue
		}
		short := name
		if utf8.RuneCountInString(name) > longestName {
			short = string([]rune(name)[:longestName-1]) + "…"
		}
		half := 5*float64(utf8.RuneCountInString(short)) + 8
		w.add(`<g class="node"><title>%s</title><rect x="%.1f" y="%.1f" width="%.1f" height="26" rx="13"/><text x="%.1f" y="%.1f">%s</text></g>`,
			name, at[i].x-half, at[i].y-13, 2*half, at[i].x, at[i].y+5, short)
	}
}

// scaled fits a layout to the picture, and says how high that is.
func scaled(at []position) (fitted []position, height float64) {
	var most position
	for _, p := range at {
		most = position{max(most.x, p.x), max(most.y, p.y)}
	}
	inner := graphWidth - 2*margin
	byX := inner / max(most.x, 1)
	byY := min(byX, (highest-2*margin)/max(most.y, 0.1))
	height = max(lowest, most.y*byY+2*margin)
	for _, p := range at {
		fitted = append(fitted, position{margin + p.x*byX + (inner-most.x*byX)/2, p.y*byY + (height-most.y*byY)/2})
	}
	return fitted, height
}

// half is the drawn half of a link, and where its label is, which begins, ends or is centred there.
type half struct {
	from, to, label position
	anchor          string
}

// halfOf is the half of a link from a to b that begins at a. Links beside each other are shifted.
func halfOf(a, b position, shift int) half {
	dx, dy := b.x-a.x, b.y-a.y
	length := max(math.Hypot(dx, dy), 1)
	nx, ny := -dy/length, dx/length // to the right of a's direction
	side := 11 * float64((shift+1)/2)
	if shift%2 == 1 {
		side = -side
	}
	if dx < 0 || dx == 0 && dy < 0 { // both directions of a link are shifted to the same side
		side = -side
	}
	along := func(part, beside float64) position {
		return position{a.x + dx*part + nx*beside, a.y + dy*part + ny*beside}
	}
	h := half{along(0, side), along(0.488, side), along(0.3, side+9), "middle"}
	h.label.y += 5 + 4*ny
	switch { // beside a steep link
	case nx > 0.4:
		h.anchor = "start"
	case nx < -0.4:
		h.anchor = "end"
	}
	return h
}
