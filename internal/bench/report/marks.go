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

// shades are how a colour is filled, for each run in turn.
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

// seriesMarks are a series: bars, dots with intervals, or a line.
type seriesMarks struct {
	*picture
	at int
}

// DataRange is that of the horizontal axis; the value axis has its own.
func (m seriesMarks) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, p := range m.series[m.at].points {
		xmin, xmax = min(xmin, p.x), max(xmax, p.x)
	}
	return xmin, xmax, math.Inf(1), math.Inf(-1)
}

// Plot draws the series in a group of its own.
func (m seriesMarks) Plot(c draw.Canvas, p *plot.Plot) {
	marks := m.line
	switch m.Kind {
	case result.Bars:
		marks = m.bars
	case forest:
		marks = m.dots
	}
	m.in(seriesClass(m.at), c, func() { marks(c, p, m.series[m.at]) })
}

// mark adds the area of a point's mark.
func (m seriesMarks) mark(pt point, a, b vg.Point) {
	m.show("mark "+seriesClass(m.at), a, b, m.label(m.series[m.at], pt))
}

// bars draws the values from the axis on, with their intervals.
func (m seriesMarks) bars(c draw.Canvas, p *plot.Plot, s series) {
	xOf, yOf := p.Transforms(&c)
	thick := 0.76 / float64(len(m.series))
	for _, pt := range s.points {
		middle := m.position(pt.x) + 0.38 - (float64(m.at)+0.5)*thick
		low, high := yOf(middle-0.44*thick), yOf(middle+0.44*thick)
		box(c, xOf(p.X.Min), low, xOf(pt.y), high, colours[s.colour], s.variant)
		m.mark(pt, vg.Point{X: xOf(p.X.Min), Y: low}, vg.Point{X: xOf(pt.y), Y: high})
		if pt.interval {
			x0, x1, y, cap := xOf(pt.low), xOf(pt.high), yOf(middle), min(3, 0.3*(high-low))
			whisker := draw.LineStyle{Color: ink, Width: 1}
			c.StrokeLine2(whisker, x0, y, x1, y)
			c.StrokeLine2(whisker, x0, y-cap, x0, y+cap)
			c.StrokeLine2(whisker, x1, y-cap, x1, y+cap)
		}
	}
}

// dots draws the values with their intervals, one to a line.
func (m seriesMarks) dots(c draw.Canvas, p *plot.Plot, s series) {
	xOf, yOf := p.Transforms(&c)
	for _, pt := range s.points {
		at := vg.Point{X: xOf(pt.y), Y: yOf(m.position(pt.x))}
		if pt.interval {
			c.StrokeLine2(draw.LineStyle{Color: colours[s.colour], Width: 1.6}, xOf(pt.low), at.Y, xOf(pt.high), at.Y)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: colours[s.colour], Radius: 3.4, Shape: draw.CircleGlyph{}}, at)
		m.mark(pt, at.Sub(vg.Point{Y: 4}), at.Add(vg.Point{Y: 4}))
	}
}

// line draws the values with their intervals as a band. A density has as many
// points as columns: they get no marks.
func (m seriesMarks) line(c draw.Canvas, p *plot.Plot, s series) {
	xOf, yOf := p.Transforms(&c)
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
	if m.Kind == result.Lines && len(line) > 1 {
		c.FillPolygon(color.NRGBA{colour.R, colour.G, colour.B, 0x2c}, append(band, back...))
	}
	c.StrokeLines(lineStyle(colour, s.variant), line)
	if m.Kind == result.Density {
		return
	}
	for i, at := range line {
		c.DrawGlyph(draw.GlyphStyle{Color: colour, Radius: 2.8, Shape: draw.CircleGlyph{}}, at)
		m.mark(s.points[i], at.Sub(vg.Point{Y: 4}), at.Add(vg.Point{Y: 4}))
	}
}

// anchorMarks are others' figures: hollow, and of no colour of ours.
type anchorMarks struct{ *picture }

// Plot draws each anchor in the group of its label.
func (a anchorMarks) Plot(c draw.Canvas, p *plot.Plot) {
	labels := a.anchorLabels()
	for _, one := range a.anchors {
		if which := slices.Index(labels, one.Label); one.inside && which >= 0 {
			a.in(anchorClass(which), c, func() { a.plotOne(c, p, one, which) })
		}
	}
}

func (a anchorMarks) plotOne(c draw.Canvas, p *plot.Plot, one anchor, which int) {
	xOf, yOf := p.Transforms(&c)
	at := vg.Point{X: xOf(one.y), Y: yOf(a.position(one.at))}
	if !a.flat() {
		at = vg.Point{X: xOf(one.at), Y: yOf(one.y)}
	}
	switch {
	case one.beyond != "":
		at.Y -= vg.Length(one.level) * levelHeight
		atEdge(c, at, which, one)
	case !math.IsNaN(one.at):
		hollow(c, at, which)
	case a.flat():
		c.StrokeLine2(anchorLine(which), at.X, c.Min.Y, at.X, c.Max.Y)
		return
	default:
		c.StrokeLine2(anchorLine(which), c.Min.X, at.Y, c.Max.X, at.Y)
		return
	}
	a.show("anchor "+anchorClass(which), at.Sub(vg.Point{Y: 4}), at.Add(vg.Point{Y: 4}), one.Label+"\n"+one.words())
}
