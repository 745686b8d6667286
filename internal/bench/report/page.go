package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

//go:embed assets/page.tmpl
var pageTemplate string

//go:embed assets/page.css
var pageStyle string

//go:embed assets/page.js
var pageScript string

//go:embed assets/echarts.min.js
var echarts string

var pageOf = template.Must(template.New("page").Parse(pageTemplate))

// page is what the template is filled in with.
type page struct {
	Title, Lead string
	Machines    []string // a line for each run that is compared, or one
	// Many: the first page is of all runs; otherwise there is one.
	Many      bool
	Warnings  warningsView
	Claims    []string
	Overviews []overview
	Headlines []headlineView
	Runs      []runView

	Style           template.CSS
	Library, Script template.JS
	Data            template.JS
}

// runView is a run on the page.
type runView struct {
	ID, Title, Summary string
	Warnings           warningsView
	Claims             []string
	Figures            []figureView
	Glossary           []entryView
	Places             []placeView
}

// warningsView are reasons to doubt; many of them are folded but for the first.
type warningsView struct{ First, More []string }

const manyWarnings = 6

func viewOfWarnings(list []string) warningsView {
	n := len(list)
	if n > manyWarnings {
		n = manyWarnings - 1
	}
	return warningsView{list[:n], list[n:]}
}

// placeView is where a run was measured.
type placeView struct {
	Label, Command string
	Facts          []entryView
}

type entryView struct{ Name, Text string }

// figureView is a figure on the page.
type figureView struct {
	ID, Element, Title, Caption string
	ValueTitle, XTitle          string
	Picture, Legend, Long       bool
	Notes, Anchors              []string
	Table                       tableView
}

type tableView struct {
	Name    string
	Head    []string
	Numbers int
	Rows    [][]string
}

// headlineView is a figure on the first page, and in words.
type headlineView struct {
	Figure figureView
	Words  []wordsView
}

// wordsView is a sentence: "Name: Of Value, Of Value Says".
type wordsView struct {
	Name, Says string
	Values     []valueView
}

type valueView struct{ Value, Interval, Of string }

// manyRows are so many that the table is folded.
const manyRows = 24

func viewOf(d drawing) figureView {
	c, t := d.chart, d.table
	v := figureView{
		ID: c.file(), Element: "chart-" + c.file(), Title: c.Title, Caption: c.Caption,
		ValueTitle: c.valueTitle(), Picture: c.hasPicture(), Legend: c.needsLegend(), Long: len(t.rows) > manyRows,
		Notes: c.notes, Table: tableView{Name: c.Title, Head: t.head, Numbers: t.numbers, Rows: t.rows},
	}
	if !c.flat() {
		v.XTitle = c.xTitle()
	}
	for _, a := range c.anchors {
		v.Anchors = append(v.Anchors, a.Label+": "+a.words())
	}
	return v
}

// file is the name of a figure's files, and of its place on the page: of many
// experiments two may call a figure the same.
func (c *chart) file() string {
	if c.prefix == "" {
		return c.ID
	}
	return c.prefix + "-" + c.ID
}

// html is the report as one page.
func (r report) html() ([]byte, error) {
	p := page{Title: r.title, Lead: r.lead(), Machines: r.machines(), Many: len(r.parts) > 1, Overviews: r.overviews()}
	if p.Many {
		p.Warnings, p.Claims = viewOfWarnings(r.warnings()), r.claims()
	}
	var charts []chartData
	for _, part := range r.parts {
		for _, c := range part.charts {
			if p.Many && c.Headline != "" && c.hasPicture() {
				h := headlineOf(c)
				p.Headlines = append(p.Headlines, h)
				charts = append(charts, dataOf(c, h.Figure.Element))
			}
		}
	}
	for _, part := range r.parts {
		v := viewOfPart(part)
		if !p.Many {
			v.Warnings = viewOfWarnings(r.warnings())
		}
		p.Runs = append(p.Runs, v)
		for _, d := range part.drawings() {
			if d.chart.hasPicture() {
				charts = append(charts, dataOf(d.chart, "chart-"+d.chart.file()))
			}
		}
	}
	return p.html(charts)
}

func viewOfPart(p part) runView {
	r := p.firstOf()
	v := runView{ID: "run-" + p.name, Title: r.Title, Summary: r.Summary, Warnings: viewOfWarnings(p.warnings()), Claims: p.claims()}
	for _, d := range p.drawings() {
		v.Figures = append(v.Figures, viewOf(d))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Glossary)) {
		v.Glossary = append(v.Glossary, entryView{name, r.Glossary[name]})
	}
	for _, s := range p.sources {
		v.Places = append(v.Places, placeView{s.label, s.run.Command, facts(s.run, rawOf(p, s))})
	}
	return v
}

// rawOf is where the samples are, as seen from the report.
func rawOf(p part, s source) string {
	switch {
	case s.label != "":
		return path.Join(s.label, result.File)
	case p.name != "":
		return path.Join(p.name, result.File)
	}
	return result.File
}

// warnings are all reasons to doubt a run, the one first that it is not whole.
func warnings(r *result.Run) (list []string) {
	if !r.Complete {
		list = append(list, "The run was stopped before its end: what was measured holds, the rest is missing.")
	}
	return append(list, r.Warnings...)
}

// facts are the environment and what else is needed to repeat a run.
func facts(r *result.Run, raw string) (list []entryView) {
	add := func(name, text string) {
		if text != "" {
			list = append(list, entryView{name, text})
		}
	}
	e := r.Environment
	rounds := "1 round"
	if r.Rounds != 1 {
		rounds = fmt.Sprintf("%d rounds", r.Rounds)
	}
	add("measured", fmt.Sprintf("%s, in %s, %s, seed %d", r.Begun.UTC().Format("2006-01-02 15:04 UTC"), r.Ended.Sub(r.Begun), rounds, r.Seed))
	add("culvert", strings.TrimSpace(e.Version+" "+e.Commit))
	add("data path", e.DataPath)
	add("kernel", "Linux "+e.Kernel)
	add("CPU", fmt.Sprintf("%s, %d CPUs", e.CPU, e.CPUs))
	add("memory", fmt.Sprintf("%d MB", e.MemoryMB))
	add("load", e.Load+" when it began")
	noise := fmt.Sprintf("others took %s %% of a CPU's time", number(100*e.Noise))
	if r.NoiseLimit > 0 {
		noise += fmt.Sprintf("; up to %s %% the run claims something", number(100*r.NoiseLimit))
	}
	add("noise", noise)
	if e.GeneratorLimit > 0 {
		s := scaleOf("packets/s", e.GeneratorLimit)
		add("generator", "reaches "+number(e.GeneratorLimit/s.by)+s.suffix()+" by itself")
	}
	if e.TimestampNS != nil {
		add("timestamps", "add "+number(*e.TimestampNS)+" ns of CPU time to each packet whose latency is measured")
	}
	var offloads []string
	for _, k := range slices.Sorted(maps.Keys(e.Offloads)) {
		offloads = append(offloads, k+" "+e.Offloads[k])
	}
	add("offloads", strings.Join(offloads, ", "))
	add("raw data", raw)
	return list
}

// machines say where the runs were measured, and what with.
func (r report) machines() (lines []string) {
	for _, s := range r.parts[0].sources {
		e := s.run.Environment
		line := fmt.Sprintf("%s, %d CPUs, Linux %s, culvert %s, %s", e.CPU, e.CPUs, e.Kernel, e.Version, s.run.Begun.UTC().Format("2 January 2006"))
		if s.label != "" {
			line = s.label + ": " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// headlineOf tells a figure in words: a sentence for each bar or group of bars; of
// lines, what each has come to.
func headlineOf(c *chart) headlineView {
	v := viewOf(drawing{chart: c})
	v.ID, v.Element = "top-"+v.ID, "top-"+v.Element
	h := headlineView{Figure: v}
	if c.Summary != nil {
		return h // the table on top has its figures
	}
	for _, r := range c.rows {
		x := r.measurement.Labels[c.X]
		name, of, says := labelText(x), r.name, c.Headline
		if c.Kind == result.Lines {
			name, of, says = r.name, "", says+" ("+c.xTitle()+": "+c.xText(r)+")"
		}
		if !r.estimate.Measured() {
			continue
		}
		at := slices.IndexFunc(h.Words, func(w wordsView) bool { return w.Name == name })
		if at < 0 {
			at = len(h.Words)
			h.Words = append(h.Words, wordsView{Name: name})
		}
		w := &h.Words[at]
		if w.Says = says; c.Kind == result.Lines {
			w.Values = nil // the last one stays
		}
		w.Values = append(w.Values, c.valueView(r, of))
	}
	return h
}

// valueView is a value in a sentence. Where one has several, their intervals are
// left to the picture.
func (c *chart) valueView(r row, of string) valueView {
	value, interval := c.scale.told(r.estimate)
	v := valueView{Value: value + c.scale.suffix(), Of: of}
	if r.estimate.HasInterval() && (c.Kind == result.Lines || len(c.series) == 1) {
		v.Interval = interval
	}
	return v
}

func (c *chart) xText(r row) string {
	x := r.measurement.Labels[c.X]
	if c.categories == nil {
		return tickText(c.place(x))
	}
	return x
}

// chartData is what the page's script draws from.
type chartData struct {
	Element    string       `json:"element"`
	Kind       string       `json:"kind"`
	Flat       bool         `json:"flat"`
	LogX       bool         `json:"logX"`
	LogY       bool         `json:"logY"`
	Min        float64      `json:"min"`
	Max        float64      `json:"max"`
	Step       float64      `json:"step"` // between the value axis' numbers
	Height     int          `json:"height"`
	Reference  *float64     `json:"reference"`
	Categories []string     `json:"categories"`
	Series     []seriesData `json:"series"`
	Anchors    []seriesData `json:"anchors"`
}

type seriesData struct {
	Name    string      `json:"name"`
	Colour  string      `json:"colour,omitempty"` // none: an anchor
	Variant int         `json:"variant"`
	Points  []pointData `json:"points"`
}

type pointData struct {
	X        *float64 `json:"x"` // null: at every x
	Y        float64  `json:"y"`
	Low      float64  `json:"low"`
	High     float64  `json:"high"`
	Interval bool     `json:"interval"`
	Text     string   `json:"text"`
	// Of an anchor beyond the axes: at which edge it stands, what is written beside
	// it, and how many others stand at that place already.
	Beyond string `json:"beyond,omitempty"`
	Label  string `json:"label,omitempty"`
	Level  int    `json:"level,omitempty"`
}

func dataOf(c *chart, element string) chartData {
	low, high := c.valueRange()
	d := chartData{
		Element: element, Kind: string(c.Kind), Flat: c.flat(), LogX: c.LogX, LogY: c.LogY, Min: low, Max: high, Step: c.step(low, high),
		Height: 340, Series: []seriesData{}, Anchors: []seriesData{},
	}
	for _, name := range c.categories {
		d.Categories = append(d.Categories, labelText(name))
	}
	if c.flat() {
		d.Height = 44 + (c.rowHeight()+6)*len(c.categories)
	}
	if at, ok := c.reference(); ok {
		d.Reference = &at
	}
	for _, s := range c.series {
		k := colours[s.colour]
		one := seriesData{Name: s.name, Colour: fmt.Sprintf("#%02x%02x%02x", k.R, k.G, k.B), Variant: s.variant, Points: []pointData{}}
		for _, p := range s.points {
			one.Points = append(one.Points, dataOfPoint(p))
		}
		d.Series = append(d.Series, one)
	}
	for i, label := range c.anchorLabels() {
		one := seriesData{Name: label, Variant: i}
		for _, a := range c.anchors {
			if a.inside && a.Label == label {
				p := dataOfPoint(point{x: a.at, y: a.y, text: a.words()})
				p.Beyond, p.Label, p.Level = string(a.beyond), a.label, a.level
				one.Points = append(one.Points, p)
			}
		}
		d.Anchors = append(d.Anchors, one)
	}
	return d
}

func dataOfPoint(p point) pointData {
	d := pointData{Y: p.y, Text: p.text}
	if !math.IsNaN(p.x) {
		d.X = &p.x
	}
	if p.interval {
		d.Low, d.High, d.Interval = p.low, p.high, true
	}
	return d
}

// html is the page, with all that it needs in it.
func (p page) html(charts []chartData) ([]byte, error) {
	data, err := json.Marshal(charts) // escapes <, > and &
	if err != nil {
		return nil, err
	}
	p.Style, p.Script, p.Library, p.Data = template.CSS(pageStyle), template.JS(pageScript), template.JS(echarts), template.JS(data)
	var b bytes.Buffer
	if err := pageOf.Execute(&b, p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
