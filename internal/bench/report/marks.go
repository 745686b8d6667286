package report

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// shades are how a colour is filled, for each run in turn: the page's script has
// the same ones.
var (
	shades = []uint8{0xff, 0x66, 0x26, 0x00}
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}
)

func shade(c color.Color, variant int) color.Color {
	r, g, b, _ := c.RGBA()
	return color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), shades[min(variant, len(shades)-1)]}
}

func lineStyle(c color.Color, variant int) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1.8, Dashes: dashes[min(variant, len(dashes)-1)]}
}

func box(c draw.Canvas, x0, y0, x1, y1 vg.Length, fill color.Color, variant int) {
	corners := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
	c.FillPolygon(shade(fill, variant), corners)
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

// gridLines are behind everything: one for each number of the value axis.
type gridLines struct{ *chart }

func (g gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	xOf, yOf := p.Transforms(&c)
	value := p.Y
	if g.flat() {
		value = p.X
	}
	line := func(at float64, s draw.LineStyle) {
		if g.flat() {
			c.StrokeLine2(s, xOf(at), c.Min.Y, xOf(at), c.Max.Y)
			return
		}
		c.StrokeLine2(s, c.Min.X, yOf(at), c.Max.X, yOf(at))
	}
	for _, t := range value.Tick.Marker.Ticks(value.Min, value.Max) {
		if t.Label != "" && t.Value >= value.Min && t.Value <= value.Max {
			line(t.Value, draw.LineStyle{Color: rule, Width: 0.6})
		}
	}
	if at, ok := g.reference(); ok {
		line(at, draw.LineStyle{Color: muted, Width: 0.9})
	}
}

// barMarks are the bars of a series, and their intervals.
type barMarks struct {
	*chart
	at int
}

func (b barMarks) Plot(c draw.Canvas, p *plot.Plot) {
	xOf, yOf := p.Transforms(&c)
	s, n := b.series[b.at], float64(len(b.series))
	thick := 0.76 / n
	for _, pt := range s.points {
		middle := b.position(pt.x) + 0.38 - (float64(b.at)+0.5)*thick
		low, high := yOf(middle-0.44*thick), yOf(middle+0.44*thick)
		box(c, xOf(p.X.Min), low, xOf(pt.y), high, colours[s.colour], s.variant)
		if pt.interval {
			whisker(c, xOf(pt.low), xOf(pt.high), yOf(middle), min(3, 0.3*(high-low)))
		}
	}
}

// whisker is an interval that lies.
func whisker(c draw.Canvas, x0, x1, y, cap vg.Length) {
	s := draw.LineStyle{Color: ink, Width: 1}
	c.StrokeLine2(s, x0, y, x1, y)
	c.StrokeLine2(s, x0, y-cap, x0, y+cap)
	c.StrokeLine2(s, x1, y-cap, x1, y+cap)
}

// dotMarks are values with intervals, one to a line.
type dotMarks struct {
	*chart
	at int
}

func (d dotMarks) Plot(c draw.Canvas, p *plot.Plot) {
	xOf, yOf := p.Transforms(&c)
	s := d.series[d.at]
	for _, pt := range s.points {
		y := yOf(d.position(pt.x))
		if pt.interval {
			c.StrokeLine2(draw.LineStyle{Color: colours[s.colour], Width: 1.6}, xOf(pt.low), y, xOf(pt.high), y)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: colours[s.colour], Radius: 3.4, Shape: draw.CircleGlyph{}}, vg.Point{X: xOf(pt.y), Y: y})
	}
}

// lineMarks are the line of a series, with its interval as a band. The lines of
// a density have no marks: there are as many points as columns.
type lineMarks struct {
	*chart
	at int
}

func (l lineMarks) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, p := range l.series[l.at].points {
		xmin, xmax = min(xmin, p.x), max(xmax, p.x)
	}
	return xmin, xmax, math.Inf(1), math.Inf(-1)
}

func (l lineMarks) Plot(c draw.Canvas, p *plot.Plot) {
	xOf, yOf := p.Transforms(&c)
	s := l.series[l.at]
	var line, band, back []vg.Point
	for _, pt := range s.points {
		line = append(line, vg.Point{X: xOf(pt.x), Y: yOf(pt.y)})
		low, high := pt.y, pt.y
		if pt.interval {
			low, high = pt.low, pt.high
		}
		band = append(band, vg.Point{X: xOf(pt.x), Y: yOf(high)})
		back = append([]vg.Point{{X: xOf(pt.x), Y: yOf(low)}}, back...)
	}
	colour := colours[s.colour]
	if l.Kind == result.Lines && len(line) > 1 {
		c.FillPolygon(color.NRGBA{colour.R, colour.G, colour.B, 0x2c}, append(band, back...))
	}
	c.StrokeLines(lineStyle(colour, s.variant), line)
	if l.Kind == result.Density {
		return
	}
	for _, at := range line {
		c.DrawGlyph(draw.GlyphStyle{Color: colour, Radius: 2.8, Shape: draw.CircleGlyph{}}, at)
	}
}

// anchorMarks are others' figures: hollow, and of no colour of ours.
type anchorMarks struct{ *chart }

func (a anchorMarks) Plot(c draw.Canvas, p *plot.Plot) {
	xOf, yOf := p.Transforms(&c)
	labels := a.anchorLabels()
	for _, one := range a.anchors {
		which := slices.Index(labels, one.Label)
		at := vg.Point{X: xOf(one.y), Y: yOf(a.position(one.at))}
		if !a.flat() {
			at = vg.Point{X: xOf(one.at), Y: yOf(one.y)}
		}
		switch {
		case which < 0 || !one.inside:
		case one.beyond != "":
			at.Y -= vg.Length(one.level) * levelHeight
			atEdge(c, at, which, one)
		case !math.IsNaN(one.at):
			hollow(c, at, which)
		case a.flat():
			c.StrokeLine2(anchorLine(which), at.X, c.Min.Y, at.X, c.Max.Y)
		default:
			c.StrokeLine2(anchorLine(which), c.Min.X, at.Y, c.Max.X, at.Y)
		}
	}
}
