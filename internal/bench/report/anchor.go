package report

import (
	"math"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// anchor is somebody else's figure, where it is drawn.
type anchor struct {
	result.Anchor
	at     float64 // NaN: at every x
	y      float64 // in the chart's scale
	inside bool    // false: only the text below the figure has it
	// beyond says at which edge it stands, with its value as label, where it is far
	// from ours: an axis that reached it would show little of them. Those at one place
	// have levels, one above the other.
	beyond edge
	label  string
	level  int
}

// edge is one of the axes' ends.
type edge string

const (
	left   edge = "left"
	right  edge = "right"
	top    edge = "top"
	bottom edge = "bottom"
)

// placeAnchors places others' figures beside ours, where they are in our unit and
// at a place that was measured. The text below the figure has the others.
func (c *chart) placeAnchors() {
	unit, ours := c.axisUnit()
	for _, a := range c.Anchors {
		at := anchor{Anchor: a, at: math.NaN(), y: a.Y / c.scale.by, inside: ours && a.Unit == unit && (!c.LogY || a.Y > 0)}
		switch {
		case a.X == "":
		case c.categories == nil:
			v, err := strconv.ParseFloat(a.X, 64)
			at.at, at.inside = v, at.inside && err == nil && (!c.LogX || v > 0)
		default:
			i := slices.Index(c.categories, a.X)
			at.at, at.inside = float64(i), at.inside && i >= 0
		}
		if at.inside {
			c.findEdge(&at)
		}
		c.anchors = append(c.anchors, at)
	}
	c.placeAtEdges()
}

// How many times as far as all of ours an anchor may be: further out it stands at
// the edge.
const (
	farLinear = 2
	farLog    = 10
)

// findEdge finds the edge that an anchor is beyond, if any, and labels it.
func (c *chart) findEdge(a *anchor) {
	firstX, lastX := c.ownX()
	low, high := c.ownValues()
	far := float64(farLinear)
	if c.LogY {
		far = farLog
	}
	above, below := top, bottom
	if c.flat() {
		above, below = right, left
	}
	switch {
	case c.categories == nil && a.at < firstX:
		a.beyond, a.label = left, "\u25c4 "+tickText(a.at)
	case c.categories == nil && a.at > lastX:
		a.beyond, a.label = right, tickText(a.at)+" \u25ba"
	case a.y > far*high && above == right:
		a.beyond, a.label = right, a.value()+" \u25ba"
	case a.y > far*high:
		a.beyond, a.label = top, "\u25b2 "+a.value()
	case c.LogY && a.y < low/far && below == left:
		a.beyond, a.label = left, "\u25c4 "+a.value()
	case c.LogY && a.y < low/far:
		a.beyond, a.label = bottom, "\u25bc "+a.value()
	}
}

// placeAtEdges finds places for what is beyond them: those without an x of their
// own stand in turn at our categories, or where our lines begin.
func (c *chart) placeAtEdges() {
	firstX, lastX := c.ownX()
	low, high := c.valueRange()
	count := map[edge]int{}
	for i := range c.anchors {
		a := &c.anchors[i]
		if a.beyond == "" {
			continue
		}
		turn := count[a.beyond]
		count[a.beyond]++
		if !c.flat() && (a.beyond == left || a.beyond == right) {
			a.level = 1 // below our line, which may be at the same value
		}
		switch {
		case c.flat() && math.IsNaN(a.at):
			a.at = float64(turn % len(c.categories))
		case math.IsNaN(a.at):
			a.at, a.level = firstX, a.level+turn
		case !c.flat():
			a.at, a.level = min(max(a.at, firstX), lastX), a.level+turn
		}
		a.y = min(max(a.y, low), high)
	}
}

// value is an anchor's in the multiple of its unit that fits.
func (a anchor) value() string {
	s := scaleOf(a.Unit, a.Y)
	return number(a.Y/s.by) + s.suffix()
}

// words say what an anchor is, and what differs.
func (a anchor) words() string {
	words := a.value()
	if a.X != "" {
		words = a.X + ": " + words
	}
	words += " (" + a.Source
	if a.Note != "" {
		words += "; " + a.Note
	}
	return words + ")"
}

// anchorLabels are those that are drawn, each once.
func (c *chart) anchorLabels() (labels []string) {
	for _, a := range c.anchors {
		if a.inside && !slices.Contains(labels, a.Label) {
			labels = append(labels, a.Label)
		}
	}
	return labels
}
