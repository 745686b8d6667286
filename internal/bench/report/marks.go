package report

import (
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// shades are how a colour is filled, for each run in turn.
var (
	shades = []uint8{0xff, 0x66, 0x26, 0x00}
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}
)

func lineStyle(c color.Color, variant int) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1.8, Dashes: dashes[min(variant, len(dashes)-1)]}
}

func box(c draw.Canvas, x0, y0, x1, y1 vg.Length, fill color.Color, variant int) {
	corners := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
	r, g, b, _ := fill.RGBA()
	c.FillPolygon(color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), shades[min(variant, len(shades)-1)]}, corners)
	if variant > 0 {
		c.StrokeLines(draw.LineStyle{Color: fill, Width: 1}, append(corners, corners[0]))
	}
}

// hollow is the mark of others' figures: diamond, triangle, square in turn.
func hollow(c draw.Canvas, at vg.Point, variant int) {
	const r = 4.5
	shapes := [][]vg.Point{
		{{X: -r}, {Y: r}, {X: r}, {Y: -r}},
		{{X: -r, Y: -r}, {Y: r}, {X: r, Y: -r}},
		{{X: -r, Y: -r}, {X: -r, Y: r}, {X: r, Y: r}, {X: r, Y: -r}},
	}
	var corners []vg.Point
	for _, corner := range shapes[variant%len(shapes)] {
		corners = append(corners, corner.Add(at))
	}
	c.FillPolygon(color.White, corners)
	c.StrokeLines(draw.LineStyle{Color: muted, Width: 1.2}, append(corners, corners[0]))
}

// inward is how far a mark is from the edge that it stands at, so that it leaves room for the axis.
const inward = 6

// levelHeight is how far marks at one place of an edge are apart.
const levelHeight = 14

// atEdge is the mark of a figure that is beyond the axis, with its value beside it.
func atEdge(c draw.Canvas, at vg.Point, variant int, a anchor) {
	const gap = 8
	s := textStyle(9, ink, false)
	s.YAlign = draw.YCenter
	x, width := at.X+gap, s.Width(a.label)
	if a.beyond == right {
		x = at.X - gap - width
	}
	box(c, x-2, at.Y-6, x+width+2, at.Y+6, color.White, 0)
	c.FillText(s, vg.Point{X: x, Y: at.Y}, a.label)
	hollow(c, at, variant)
}

// anchorLine is where others' figures are the same at every x.
func anchorLine(variant int) draw.LineStyle {
	patterns := [][]vg.Length{{4, 4}, {1.5, 3}, {9, 3}}
	return draw.LineStyle{Color: muted, Width: 1.1, Dashes: patterns[variant%len(patterns)]}
}

// across draws a line at a value of the value axis.
func (p *picture) across(c draw.Canvas, at vg.Point, s draw.LineStyle) {
	if p.chart.flat() {
		c.StrokeLine2(s, at.X, c.Min.Y, at.X, c.Max.Y)
		return
	}
	c.StrokeLine2(s, c.Min.X, at.Y, c.Max.X, at.Y)
}

// placer returns what places an x and a value on a canvas.
func (p *picture) placer(c draw.Canvas, to *plot.Plot) func(x, value float64) vg.Point {
	xOf, yOf := to.Transforms(&c)
	return func(x, value float64) vg.Point {
		if p.chart.flat() {
			return vg.Point{X: xOf(value), Y: yOf(p.position(x))}
		}
		return vg.Point{X: xOf(x), Y: yOf(value)}
	}
}

// grid draws a line for each number of the value axis, and for the reference.
func (p *picture) grid(c draw.Canvas, to *plot.Plot) {
	place, value, anyX := p.placer(c, to), to.Y, math.NaN()
	if p.chart.flat() {
		value = to.X
	}
	for _, t := range value.Tick.Marker.Ticks(value.Min, value.Max) {
		if t.Label != "" && t.Value >= value.Min && t.Value <= value.Max {
			p.across(c, place(anyX, t.Value), draw.LineStyle{Color: rule, Width: 0.6})
		}
	}
	if p.chart.hasReference() {
		p.across(c, place(anyX, 1), draw.LineStyle{Color: muted, Width: 0.9})
	}
}

// series draws each series in a group of its own: bars, dots with intervals, or a
// line.
func (p *picture) series(c draw.Canvas, to *plot.Plot) {
	marks := p.line
	switch p.chart.Kind {
	case result.Bars:
		marks = p.bars
	case forest:
		marks = p.dots
	}
	for i, s := range p.chart.series {
		p.in(seriesClass(i), c, func() { marks(c, to, i, s) })
	}
}

// mark adds the area of a point's mark, with all of the point in words: its series, its
// place and its value.
func (p *picture) mark(at int, pt point, a, b vg.Point) {
	words := []string{p.chart.series[at].name, tickText(pt.x), pt.text}
	if p.chart.categories != nil {
		words[1] = labelText(p.chart.categories[int(pt.x)])
	}
	p.show("mark "+seriesClass(at), a, b, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "\n"))
}

// dot draws a point's dot, with the area around it.
func (p *picture) dot(c draw.Canvas, at int, pt point, where vg.Point, radius vg.Length) {
	c.DrawGlyph(draw.GlyphStyle{Color: colours[p.chart.series[at].colour], Radius: radius, Shape: draw.CircleGlyph{}}, where)
	p.mark(at, pt, where.Sub(vg.Point{Y: 4}), where.Add(vg.Point{Y: 4}))
}

// bars draws the values from the axis on, with their intervals.
func (p *picture) bars(c draw.Canvas, to *plot.Plot, at int, s series) {
	place := p.placer(c, to)
	thick := 0.76 / float64(len(p.chart.series))
	for _, pt := range s.points {
		middle := pt.x - 0.38 + (float64(at)+0.5)*thick
		low, high := place(middle+0.44*thick, to.X.Min), place(middle-0.44*thick, pt.y)
		box(c, low.X, low.Y, high.X, high.Y, colours[s.colour], s.variant)
		p.mark(at, pt, low, high)
		if pt.interval {
			a, b, cap := place(middle, pt.low), place(middle, pt.high), min(3, 0.3*(high.Y-low.Y))
			whisker := draw.LineStyle{Color: ink, Width: 1}
			c.StrokeLine2(whisker, a.X, a.Y, b.X, b.Y)
			c.StrokeLine2(whisker, a.X, a.Y-cap, a.X, a.Y+cap)
			c.StrokeLine2(whisker, b.X, b.Y-cap, b.X, b.Y+cap)
		}
	}
}

// dots draws the values with their intervals, one to a line.
func (p *picture) dots(c draw.Canvas, to *plot.Plot, at int, s series) {
	place := p.placer(c, to)
	for _, pt := range s.points {
		if pt.interval {
			low, high := place(pt.x, pt.low), place(pt.x, pt.high)
			c.StrokeLine2(draw.LineStyle{Color: colours[s.colour], Width: 1.6}, low.X, low.Y, high.X, high.Y)
		}
		p.dot(c, at, pt, place(pt.x, pt.y), 3.4)
	}
}

// line draws the values with their intervals as a band. A density has as many
// points as columns: they get no marks.
func (p *picture) line(c draw.Canvas, to *plot.Plot, at int, s series) {
	place := p.placer(c, to)
	var line, band, back []vg.Point
	for _, pt := range s.points {
		low, high := pt.y, pt.y
		if pt.interval {
			low, high = pt.low, pt.high
		}
		line = append(line, place(pt.x, pt.y))
		band = append(band, place(pt.x, high))
		back = append(back, place(pt.x, low))
	}
	colour := colours[s.colour]
	if p.chart.Kind == result.Lines && len(line) > 1 {
		slices.Reverse(back)
		c.FillPolygon(color.NRGBA{colour.R, colour.G, colour.B, 0x2c}, append(band, back...))
	}
	c.StrokeLines(lineStyle(colour, s.variant), line)
	if p.chart.Kind == result.Density {
		return
	}
	for i, where := range line {
		p.dot(c, at, s.points[i], where, 2.8)
	}
}

// anchors draws others' figures, hollow and of no colour of ours, each in the group
// of its label.
func (p *picture) anchors(c draw.Canvas, to *plot.Plot) {
	labels, place := p.chart.anchorLabels(), p.placer(c, to)
	for _, a := range p.chart.anchors {
		if which := slices.Index(labels, a.Label); a.inside && which >= 0 {
			p.in(anchorClass(which), c, func() { p.anchor(c, place(a.at, a.y), a, which) })
		}
	}
}

func (p *picture) anchor(c draw.Canvas, at vg.Point, a anchor, which int) {
	switch {
	case a.beyond != "":
		at.X += map[edge]vg.Length{left: inward, right: -inward}[a.beyond]
		level := vg.Length(a.level) * levelHeight
		if at.Y-level < c.Min.Y+levelHeight { // no room below
			level = -level
		}
		at.Y -= level
		atEdge(c, at, which, a)
	case !math.IsNaN(a.at):
		hollow(c, at, which)
	default:
		p.across(c, at, anchorLine(which))
		return
	}
	p.show("anchor "+anchorClass(which), at.Sub(vg.Point{Y: 4}), at.Add(vg.Point{Y: 4}), a.Label+"\n"+a.words())
}
