package report

import (
	"image/color"
	"slices"
)

// colours can be told apart by readers with any of the usual colour
// deficiencies, and stand out (3:1) from white and from the page's dark ground,
// so that a series has one colour everywhere.
var colours = []color.RGBA{
	{0x2a, 0x6f, 0xc4, 0xff}, // blue
	{0xc9, 0x85, 0x00, 0xff}, // amber
	{0x0f, 0xa3, 0x6b, 0xff}, // green
	{0xd4, 0x5a, 0x96, 0xff}, // pink
	{0xbb, 0x33, 0x27, 0xff}, // red
	{0x80, 0x57, 0xe6, 0xff}, // violet
	{0x6b, 0x76, 0x84, 0xff}, // grey
}

// palette remembers which series has which colour, over all figures of a report.
type palette map[string]int

// paint gives each series of a chart its colour: the one it has elsewhere, or the
// first that fewest others of this chart have. Of several runs, what is the same
// quantity has the same one; where there is one quantity only, each run has its
// own. More series than colours are told apart by how they are drawn, as runs are.
func (p palette) paint(c *chart) {
	var names []string // by which the series have their colours
	for _, s := range c.series {
		names = append(names, s.quantity)
	}
	if len(c.sources) > 1 && len(slices.Compact(slices.Clone(names))) == 1 {
		for i := range c.series {
			names[i], c.series[i].variant = c.sources[c.series[i].variant].label, 0
		}
	}
	used := make([]int, len(colours)) // by how many names of this chart
	painted := map[string]bool{}
	for _, known := range []bool{true, false} {
		for _, name := range names {
			at, ok := p[name]
			if ok != known || painted[name] {
				continue
			}
			painted[name] = true
			if !ok || used[at] > 0 {
				at = slices.Index(used, slices.Min(used))
			}
			if !ok {
				p[name] = at
			}
			for i := range c.series {
				if names[i] == name {
					c.series[i].colour = at
					c.series[i].variant += used[at]
				}
			}
			used[at]++
		}
	}
}
