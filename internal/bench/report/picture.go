package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
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
	fileWidth     = 620 // of a PNG or SVG file, and of a figure on the page
	headlineWidth = 440 // of a figure beside its sentences
	phoneWidth    = 326 // of any figure on a page that is 360 wide
	lineHeight    = 17
	titleHeight   = 18
)

// picture is a chart as it is drawn. Files have a title and a margin; on the page
// a heading names the figure.
type picture struct {
	chart  *chart
	width  vg.Length
	titled bool
	margin vg.Length
	// Drawing collects areas and groups.
	areas  []area
	groups []string
}

// area is where the pointer finds the words of a value or of an anchor.
type area struct {
	vg.Rectangle
	class, text string
}

// noMove is how an SVG has the groups that in opens.
const noMove = `<g transform="translate(0, 0)">`

// in draws a group of the SVG: a class, by which the page hides and shows a series.
func (p *picture) in(class string, c draw.Canvas, draw func()) {
	p.groups = append(p.groups, class)
	c.Push()
	c.Translate(vg.Point{})
	draw()
	c.Pop()
}

// seriesClass and anchorClass name groups.
func seriesClass(at int) string { return fmt.Sprintf("s%d", at) }
func anchorClass(at int) string { return fmt.Sprintf("a%d", at) }

// show adds the area around a mark that reaches from a to b.
func (p *picture) show(class string, a, b vg.Point, text string) {
	const around = 5 // so that thin marks can be hit
	r := vg.Rectangle{Min: vg.Point{X: min(a.X, b.X) - around, Y: min(a.Y, b.Y) - 1}, Max: vg.Point{X: max(a.X, b.X) + around, Y: max(a.Y, b.Y) + 1}}
	p.areas = append(p.areas, area{r, class, text})
}

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
func (p *picture) titleLines() (lines []string) {
	if !p.titled {
		return nil
	}
	return broken(p.chart.Title, titleStyle, p.width-2*p.margin)
}

// valueTitleLines are the name of the value axis, which stands above the picture.
func (p *picture) valueTitleLines() []string {
	return broken(p.chart.valueTitle(), axisStyle, p.width-2*p.margin)
}

// axisStyle is that of axes' names.
var axisStyle = textStyle(10, muted, false)

// broken breaks a text into lines of a width.
func broken(words string, style text.Style, width vg.Length) (lines []string) {
	for _, word := range strings.Fields(words) {
		if n := len(lines); n > 0 && style.Width(lines[n-1]+" "+word) < width {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

func filePicture(c *chart) *picture {
	return &picture{chart: c, width: fileWidth, titled: true, margin: 16}
}

// png draws the picture at twice the usual density.
func (p *picture) png() ([]byte, error) {
	w, h := p.size()
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
	p.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("PNG of figure %q: %w", p.chart.ID, err)
	}
	return b.Bytes(), nil
}

// svg draws a picture whose values show their words under the pointer.
func (p *picture) svg() ([]byte, error) {
	w, h := p.size()
	canvas := vgsvg.New(w, h)
	p.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("SVG of figure %q: %w", p.chart.ID, err)
	}
	// Other fonts have the same widths where this one is not installed.
	text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	for _, class := range p.groups {
		text = bytes.Replace(text, []byte(noMove), fmt.Appendf(nil, `<g class="%s">`, class), 1)
	}
	text = textElement.ReplaceAllFunc(text, fitText)
	text = bytes.TrimSuffix(bytes.TrimSpace(text), []byte("</svg>"))
	for _, a := range p.areas {
		size := a.Size()
		text = fmt.Appendf(text, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" pointer-events=\"all\"><title>%s</title></rect>\n",
			a.class, a.Min.X, h-a.Max.Y, size.X, size.Y, html.EscapeString(a.text))
	}
	return append(text, "</svg>\n"...), nil
}

var textElement = regexp.MustCompile(`(?s)<text ([^>]*?font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// fitText holds a text to the width that the picture has for it, whatever font a
// browser takes.
func fitText(element []byte) []byte {
	m := textElement.FindSubmatch(element)
	size, err := strconv.ParseFloat(string(m[2]), 64)
	if err != nil {
		return element
	}
	style := textStyle(size, ink, bytes.Contains(m[1], []byte("bold")))
	return fmt.Appendf(nil, `<text textLength="%.1f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, style.Width(html.UnescapeString(string(m[3]))), m[1], m[3])
}

// size grows with what is to be told apart.
func (p *picture) size() (w, h vg.Length) {
	h = 298
	if p.chart.flat() {
		row := 14 + 14*len(p.chart.series)
		if p.chart.Kind == forest {
			row = 22
		}
		for _, name := range p.chart.categories {
			row = max(row, 6+12*len(p.categoryLines(name)))
		}
		h = vg.Length(44 + row*len(p.chart.categories))
	}
	lines := len(p.legendLines()) + len(p.valueTitleLines()) - 1
	return p.width, h + 2*p.margin + vg.Length(lineHeight*lines+titleHeight*len(p.titleLines()))
}

// draw draws title, legend and plot below each other.
func (p *picture) draw(canvas draw.Canvas) {
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	at := draw.Crop(canvas, p.margin, -p.margin, p.margin, -p.margin)
	for _, line := range p.titleLines() {
		at.FillText(titleStyle, vg.Point{X: at.Min.X, Y: at.Max.Y}, line)
		at.Max.Y -= titleHeight
	}
	at.Max.Y -= 2
	for _, line := range p.valueTitleLines() {
		at.FillText(axisStyle, vg.Point{X: at.Min.X, Y: at.Max.Y}, line)
		at.Max.Y -= lineHeight
	}
	at.Max.Y -= 3
	for _, line := range p.legendLines() {
		p.drawLegend(at, line)
		at.Max.Y -= lineHeight
	}
	p.plot().Draw(at)
}

// plotter draws something between the axes.
type plotter func(draw.Canvas, *plot.Plot)

// Plot is what the plot calls.
func (draw plotter) Plot(c draw.Canvas, p *plot.Plot) { draw(c, p) }

// plot makes the axes and what is between them, from the back to the front.
func (p *picture) plot() *plot.Plot {
	out, c := plot.New(), p.chart
	out.BackgroundColor = nil
	value, other := &out.Y, &out.X
	if c.flat() {
		value, other = &out.X, &out.Y
	}
	styleAxis(value, c.LogY)
	styleAxis(other, c.LogX)
	value.LineStyle.Width, value.Tick.Length = 0, 0
	value.Min, value.Max = c.valueRange()
	if !c.LogY {
		var list plot.ConstantTicks
		for i, step := 0, step(value.Min, value.Max); value.Min+float64(i)*step <= value.Max+step/2; i++ {
			v := value.Min + float64(i)*step
			list = append(list, plot.Tick{Value: v, Label: tickText(v)})
		}
		value.Tick.Marker = list
	}
	other.Min, other.Max = c.ownX()
	fractions := func(s series) bool {
		return slices.ContainsFunc(s.points, func(p point) bool { return p.x != math.Round(p.x) })
	}
	switch {
	case c.categories != nil:
		p.nameCategories(other)
	case c.Kind == result.Lines:
		other.Tick.Marker = c.pointTicks()
	case !c.LogX && !slices.ContainsFunc(c.series, fractions):
		other.Tick.Marker = ticks(plot.DefaultTicks{}, true)
	}
	if !c.flat() {
		out.X.Label.Text = strings.Join(broken(c.xTitle(), axisStyle, p.width-2*p.margin-40), "\n")
	}
	out.X.Tick.Marker = p.thinned(&out.X)
	out.Add(plotter(p.grid), plotter(p.series), plotter(p.anchors))
	return out
}

func styleAxis(a *plot.Axis, log bool) {
	a.Label.TextStyle, a.Label.Padding = axisStyle, 3
	a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign = draw.XCenter, draw.YBottom
	align := a.Tick.Label
	a.Tick.Label = textStyle(9.5, ink, false)
	a.Tick.Label.XAlign, a.Tick.Label.YAlign = align.XAlign, align.YAlign
	a.Padding = 0
	a.LineStyle.Color, a.Tick.LineStyle.Color = muted, rule
	a.Tick.Marker = ticks(plot.DefaultTicks{}, false)
	if log {
		a.Scale = plot.LogScale{}
		a.Tick.Marker = ticks(plot.LogTicks{Prec: -1}, false)
	}
}

// ticks are another's, with numbers as the page has them. Between whole numbers
// there may be nothing to name.
func ticks(of plot.Ticker, whole bool) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		list := slices.CompactFunc(of.Ticks(low, high), func(a, b plot.Tick) bool { return a.Value == b.Value }) // decades begin where others end
		// A logarithmic axis of less than a decade or two would have no numbers.
		few := fewestNumbers > len(slices.DeleteFunc(slices.Clone(list), func(k plot.Tick) bool {
			return k.Label == "" || k.Value < low || k.Value > high
		}))
		for i, tick := range list {
			if tick.Label != "" || few {
				list[i].Label = tickText(tick.Value)
			}
			if whole && tick.Value != math.Round(tick.Value) {
				list[i].Label = ""
			}
		}
		return list
	}
}

// fewestNumbers are as many as an axis needs to be read.
const fewestNumbers = 2

// nameCategories puts the names of the categories on an axis; those of a flat chart run down.
func (p *picture) nameCategories(a *plot.Axis) {
	var list plot.ConstantTicks
	for i, name := range p.chart.categories {
		list = append(list, plot.Tick{Value: p.position(float64(i)), Label: strings.Join(p.categoryLines(name), "\n")})
	}
	a.Tick.Marker = list
	a.Tick.Length, a.Tick.LineStyle.Width = 6, 0 // a distance only
	a.Min, a.Max = -0.5, float64(len(list))-0.5
	if p.chart.flat() {
		a.LineStyle.Width = 0
	}
}

// categoryLines are a category's name: beside its bars it has a third of the picture's width.
func (p *picture) categoryLines(name string) []string {
	if !p.chart.flat() {
		return []string{labelText(name)}
	}
	return broken(labelText(name), textStyle(9.5, ink, false), max(p.width/3, 110))
}

// position is where an x is drawn.
func (p *picture) position(x float64) float64 {
	if p.chart.flat() {
		return float64(len(p.chart.categories)-1) - x
	}
	return x
}

// legendEntry is a name with its sign.
type legendEntry struct {
	name   string
	colour color.Color
	class  string
	// variant is as in series; of an anchor which of them it is.
	variant      int
	anchor, line bool
}

// legendLines breaks the legend where the picture ends. A single series without a name
// has no entry: the title names it.
func (p *picture) legendLines() (lines [][]legendEntry) {
	var list []legendEntry
	c := p.chart
	for i, s := range c.series {
		if s.name != "" {
			list = append(list, legendEntry{name: s.name, class: seriesClass(i), colour: colours[s.colour], variant: s.variant, line: !c.flat()})
		}
	}
	for i, label := range c.anchorLabels() {
		// An anchor without an x of its own is a line through all of them.
		mark := slices.ContainsFunc(c.anchors, func(a anchor) bool { return a.inside && a.Label == label && !math.IsNaN(a.at) })
		list = append(list, legendEntry{name: label, class: anchorClass(i), colour: muted, variant: i, anchor: true, line: !mark})
	}
	left := vg.Length(0)
	for _, e := range list {
		if w := e.width(); len(lines) == 0 || w > left {
			lines = append(lines, nil)
			left = p.width - 2*p.margin
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
		left -= e.width()
	}
	return lines
}

const signWidth = 18

func (e legendEntry) width() vg.Length {
	return textStyle(9.5, ink, false).Width(e.name) + signWidth + 20
}

func (p *picture) drawLegend(at draw.Canvas, line []legendEntry) {
	x, y := at.Min.X, at.Max.Y
	for _, e := range line {
		middle := vg.Point{X: x + signWidth/2, Y: y - 6}
		p.in("key "+e.class, at, func() {
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
		})
		x += e.width()
	}
}
