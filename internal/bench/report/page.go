package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"maps"
	"path"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/culvert-net/culvert/internal/bench/result"
)

//go:embed assets/page.tmpl
var pageTemplate string

//go:embed assets/page.css
var pageStyle string

//go:embed assets/page.js
var pageScript string

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

	Style  template.CSS
	Script template.JS
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

// warningsView lists reasons to doubt the figures. The page shows the first ones
// and folds the others.
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
	ID, Title, Caption string
	SVG                template.HTML // none: there is nothing to draw
	Long               bool
	Notes, Anchors     []string
	Table              table
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

// viewOf shows a drawing in a picture of some width.
func viewOf(d drawing, width vg.Length) (figureView, error) {
	c, t := d.chart, d.table
	t.Name = c.Title
	v := figureView{
		ID: c.file(), Title: c.Title, Caption: c.Caption, Long: len(t.Rows) > manyRows, Notes: c.notes, Table: t,
	}
	for _, a := range c.anchors {
		v.Anchors = append(v.Anchors, a.Label+": "+a.words())
	}
	if !c.hasPicture() {
		return v, nil
	}
	text, err := (&picture{chart: c, width: width, margin: 3}).svg()
	v.SVG = template.HTML(themed.Replace(string(text[bytes.Index(text, []byte("<svg")):])))
	return v, err
}

// themed gives what is not a series the colours of the page's theme.
var themed = strings.NewReplacer("#FFFFFF", "var(--ground)", hex(ink), "var(--ink)", hex(muted), "var(--muted)", hex(rule), "var(--rule)")

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// file is the name of a figure's files, and of its place on the page: of many
// experiments two may call a figure the same.
func (c *chart) file() string {
	if c.prefix == "" {
		return c.ID
	}
	return c.prefix + "-" + c.ID
}

// html is the report as one page, with all that it needs in it.
func (r report) html() ([]byte, error) {
	p := page{
		Title: r.title, Lead: r.lead(), Machines: r.machines(), Many: len(r.parts) > 1, Overviews: r.overviews(),
		Style: template.CSS(pageStyle), Script: template.JS(pageScript),
	}
	if p.Many {
		p.Warnings, p.Claims = viewOfWarnings(r.warnings()), r.claims()
	}
	for _, part := range r.parts {
		for _, c := range part.charts {
			if p.Many && c.Headline != "" && c.hasPicture() {
				h, err := headlineOf(c)
				if err != nil {
					return nil, err
				}
				p.Headlines = append(p.Headlines, h)
			}
		}
		v, err := viewOfPart(part)
		if err != nil {
			return nil, err
		}
		if !p.Many {
			v.Warnings = viewOfWarnings(r.warnings())
		}
		p.Runs = append(p.Runs, v)
	}
	var b bytes.Buffer
	err := pageOf.Execute(&b, p)
	return b.Bytes(), err
}

func viewOfPart(p part) (runView, error) {
	r := p.firstOf()
	v := runView{ID: "run-" + p.name, Title: r.Title, Summary: r.Summary, Warnings: viewOfWarnings(p.warnings()), Claims: p.claims()}
	for _, d := range p.drawings() {
		f, err := viewOf(d, fileWidth)
		if err != nil {
			return v, err
		}
		v.Figures = append(v.Figures, f)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Glossary)) {
		v.Glossary = append(v.Glossary, entryView{name, r.Glossary[name]})
	}
	for _, s := range p.sources {
		v.Places = append(v.Places, placeView{s.label, s.run.Command, facts(s.run, rawOf(p, s))})
	}
	return v, nil
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
func headlineOf(c *chart) (h headlineView, err error) {
	if c.Summary != nil { // the table on top has its figures
		h.Figure, err = viewOf(drawing{chart: c}, fileWidth)
		return h, err
	}
	h.Figure, err = viewOf(drawing{chart: c}, headlineWidth)
	for _, r := range c.rows {
		x := r.measurement.Labels[c.X]
		name, of, says := labelText(x), r.name, c.Headline
		if c.Kind == result.Lines {
			if c.categories == nil {
				x = tickText(c.place(x))
			}
			name, of, says = r.name, "", says+" ("+c.xTitle()+": "+x+")"
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
		value, interval := c.scale.told(r.estimate)
		if !r.estimate.HasInterval() || c.Kind != result.Lines && len(c.series) > 1 {
			interval = "" // where a sentence has several values, the picture has their intervals
		}
		w.Values = append(w.Values, valueView{Value: value + c.scale.suffix(), Interval: interval, Of: of})
	}
	return h, err
}
