package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Measures of a picture, in points.
const (
	pictureWidth = 620
	margin       = 16
	lineHeight   = 17
	titleHeight  = 18
)

var (
	ink   = color.RGBA{0x1b, 0x22, 0x2c, 0xff}
	muted = color.RGBA{0x5a, 0x66, 0x75, 0xff}
	rule  = color.RGBA{0xdd, 0xe2, 0xe8, 0xff}
)

func textStyle(size float64, c color.Color, bold bool) text.Style {
	f := font.From(plot.DefaultFont, vg.Length(size))
	f.Variant = "Sans"
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
}

var titleStyle = textStyle(13, ink, true)

// titleLines breaks the title where the picture ends.
func (c *chart) titleLines() (lines []string) {
	for _, word := range strings.Fields(c.Title) {
		if n := len(lines); n > 0 && titleStyle.Width(lines[n-1]+" "+word) < pictureWidth-2*margin {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// png is the picture at twice the usual density.
func (c *chart) png() ([]byte, error) {
	w, h := c.size()
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
	c.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("PNG of figure %q: %w", c.ID, err)
	}
	return b.Bytes(), nil
}

func (c *chart) svg() ([]byte, error) {
	canvas := vgsvg.New(c.size())
	c.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("SVG of figure %q: %w", c.ID, err)
	}
	// The fonts that have the same widths, where this one is not installed.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

// size grows with what is to be told apart.
func (c *chart) size() (w, h vg.Length) {
	h = 330
	if c.flat() {
		h = vg.Length(76 + c.rowHeight()*len(c.categories))
	}
	return pictureWidth, h + vg.Length(lineHeight*len(c.legendLines())+titleHeight*len(c.titleLines()))
}

// rowHeight is that of a category, of whatever draws it.
func (c *chart) rowHeight() int {
	if c.Kind == forest {
		return 22
	}
	return 14 + 14*len(c.series)
}

// draw draws title, legend and plot below each other.
func (c *chart) draw(canvas draw.Canvas) {
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	at := draw.Crop(canvas, margin, -margin, margin, -margin)
	for _, line := range c.titleLines() {
		at.FillText(titleStyle, vg.Point{X: at.Min.X, Y: at.Max.Y}, line)
		at.Max.Y -= titleHeight
	}
	at.Max.Y -= 2
	at.FillText(textStyle(10, muted, false), vg.Point{X: at.Min.X, Y: at.Max.Y}, c.valueTitle())
	at.Max.Y -= 20
	for _, line := range c.legendLines() {
		drawLegend(at, line)
		at.Max.Y -= lineHeight
	}
	c.plot().Draw(at)
}

// plot is the axes and what is between them.
func (c *chart) plot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	value, other := &p.Y, &p.X
	if c.flat() {
		value, other = &p.X, &p.Y
	}
	styleAxis(value, c.LogY)
	styleAxis(other, c.LogX)
	value.LineStyle.Width, value.Tick.Length = 0, 0
	value.Min, value.Max = c.valueRange()
	if !c.LogY {
		value.Tick.Marker = steps(value.Min, value.Max, c.step(value.Min, value.Max))
	}
	low, high := value.Min, value.Max
	c.addMarks(p)
	value.Min, value.Max = low, high
	switch {
	case c.categories != nil:
		c.nominal(other)
	case !c.LogX && c.wholeX():
		other.Tick.Marker = ticks{plot.DefaultTicks{}, true}
	}
	if !c.flat() {
		p.X.Label.Text = c.xTitle()
	}
	return p
}

func styleAxis(a *plot.Axis, log bool) {
	a.Label.TextStyle = textStyle(10, muted, false)
	a.Label.TextStyle.XAlign = draw.XCenter
	align := a.Tick.Label
	a.Tick.Label = textStyle(9.5, ink, false)
	a.Tick.Label.XAlign, a.Tick.Label.YAlign = align.XAlign, align.YAlign
	a.Padding = 0
	a.LineStyle.Color, a.Tick.LineStyle.Color = muted, rule
	a.Tick.Marker = ticks{of: plot.DefaultTicks{}}
	if log {
		a.Scale = plot.LogScale{}
		a.Tick.Marker = ticks{of: plot.LogTicks{Prec: -1}}
	}
}

func (c *chart) wholeX() bool {
	return !slices.ContainsFunc(c.series, func(s series) bool {
		return slices.ContainsFunc(s.points, func(p point) bool { return p.x != math.Round(p.x) })
	})
}

// steps are the ticks of a linear value axis, as the page has them.
func steps(low, high, step float64) (list plot.ConstantTicks) {
	for i := 0; low+float64(i)*step <= high+step/2; i++ {
		v := low + float64(i)*step
		list = append(list, plot.Tick{Value: v, Label: tickText(v)})
	}
	return list
}

// ticks are another's, with numbers as the page has them.
type ticks struct {
	of    plot.Ticker
	whole bool // between whole numbers there is nothing to name
}

func (t ticks) Ticks(low, high float64) []plot.Tick {
	list := t.of.Ticks(low, high)
	// A logarithmic axis of less than a decade or two would have no numbers.
	few := fewestNumbers > len(slices.DeleteFunc(slices.Clone(list), func(k plot.Tick) bool {
		return k.Label == "" || k.Value < low || k.Value > high
	}))
	for i, tick := range list {
		if tick.Label != "" || few {
			list[i].Label = tickText(tick.Value)
		}
		if t.whole && tick.Value != math.Round(tick.Value) {
			list[i].Label = ""
		}
	}
	return list
}

// fewestNumbers are as many as an axis needs to be read.
const fewestNumbers = 2

// nominal names the categories; those of a flat chart run down.
func (c *chart) nominal(a *plot.Axis) {
	var list plot.ConstantTicks
	for i, name := range c.categories {
		list = append(list, plot.Tick{Value: c.position(float64(i)), Label: labelText(name)})
	}
	a.Tick.Marker = list
	a.Tick.Length, a.Tick.LineStyle.Width = 4, 0 // a distance only
	a.Min, a.Max = -0.5, float64(len(c.categories))-0.5
	if c.flat() {
		a.LineStyle.Width = 0
	}
}

// position is where an x is drawn.
func (c *chart) position(x float64) float64 {
	if c.flat() {
		return float64(len(c.categories)-1) - x
	}
	return x
}

// addMarks adds what is drawn between the axes, from the back to the front.
func (c *chart) addMarks(p *plot.Plot) {
	p.Add(gridLines{c})
	for i := range c.series {
		switch c.Kind {
		case result.Bars:
			p.Add(barMarks{chart: c, at: i})
		case forest:
			p.Add(dotMarks{chart: c, at: i})
		default:
			p.Add(lineMarks{chart: c, at: i})
		}
	}
	p.Add(anchorMarks{c})
}

// legendEntry is a name with its sign.
type legendEntry struct {
	name   string
	colour color.Color
	// variant is as in series; of an anchor which of them it is.
	variant      int
	anchor, line bool
}

func (c *chart) legend() (list []legendEntry) {
	if !c.needsLegend() {
		return nil
	}
	for _, s := range c.series {
		if s.name != "" {
			list = append(list, legendEntry{name: s.name, colour: colours[s.colour], variant: s.variant, line: !c.flat()})
		}
	}
	for i, label := range c.anchorLabels() {
		list = append(list, legendEntry{name: label, colour: muted, variant: i, anchor: true, line: c.everywhere(label)})
	}
	return list
}

const signWidth = 18

func (e legendEntry) width() vg.Length {
	return textStyle(9.5, ink, false).Width(e.name) + signWidth + 20
}

// legendLines breaks the legend where the picture ends.
func (c *chart) legendLines() (lines [][]legendEntry) {
	left := vg.Length(0)
	for _, e := range c.legend() {
		if w := e.width(); len(lines) == 0 || w > left {
			lines = append(lines, nil)
			left = pictureWidth - 2*margin
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
		left -= e.width()
	}
	return lines
}

func drawLegend(at draw.Canvas, line []legendEntry) {
	x, y := at.Min.X, at.Max.Y
	for _, e := range line {
		middle := vg.Point{X: x + signWidth/2, Y: y - 6}
		switch {
		case e.anchor && e.line:
			at.StrokeLine2(anchorLine(e.variant), x, middle.Y, x+signWidth-2, middle.Y)
		case e.anchor:
			hollow(at, middle, e.variant)
		case e.line:
			at.StrokeLine2(lineStyle(e.colour, e.variant), x, middle.Y, x+signWidth-2, middle.Y)
		default:
			box(at, x, middle.Y-4, x+signWidth-4, middle.Y+4, e.colour, e.variant)
		}
		at.FillText(textStyle(9.5, ink, false), vg.Point{X: x + signWidth + 2, Y: y}, e.name)
		x += e.width()
	}
}
