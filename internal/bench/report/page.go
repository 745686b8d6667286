package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"maps"
	"path"
	"slices"
	"strings"
	texttemplate "text/template"

	"gonum.org/v1/plot/vg"

	"github.com/culvert-net/culvert/internal/bench/result"
)

var (
	//go:embed assets/page.tmpl
	pageTemplate string
	//go:embed assets/summary.tmpl
	summaryTemplate string
	//go:embed assets/page.css
	pageStyle string
	//go:embed assets/page.js
	pageScript string
)

var (
	pageOf    = template.Must(template.New("page").Parse(pageTemplate))
	summaryOf = texttemplate.Must(texttemplate.New("summary").Parse(summaryTemplate))
)

// Style and Script are the page's.
func (report) Style() template.CSS { return template.CSS(pageStyle) }

// Script is what the page does.
func (report) Script() template.JS { return template.JS(pageScript) }

// svgs are the chart on the page, of a width and of a phone's: the window decides which is shown.
func (c *chart) svgs(width vg.Length) (both template.HTML, err error) {
	if !c.HasPicture() {
		return "", nil
	}
	for _, shape := range []struct {
		class string
		width vg.Length
	}{{"wide", width}, {"narrow", phoneWidth}} {
		text, err := (&picture{chart: c, width: shape.width, margin: 3}).svg()
		if err != nil {
			return "", err
		}
		text = text[bytes.Index(text, []byte("<svg")):]
		text = bytes.Replace(text, []byte("<svg"), []byte(`<svg class="`+shape.class+`"`), 1)
		both += template.HTML(themed.Replace(string(text)))
	}
	return both, nil
}

// SVG is the drawing on the page, "" if there is nothing to draw.
func (d drawing) SVG() (template.HTML, error) {
	return d.Chart.svgs(cmp.Or(d.width, fileWidth))
}

// Anchors are others' figures in words.
func (d drawing) Anchors() (list []string) {
	for _, a := range d.Chart.anchors {
		list = append(list, a.Label+": "+a.words())
	}
	return list
}

// ID names a figure's files, and its place on the page: of many experiments two
// may call a figure the same.
func (d drawing) ID() string { return strings.TrimPrefix(d.Chart.prefix+"-"+d.Chart.ID, "-") }

// Alt is the title as Markdown has it beside a picture.
func (d drawing) Alt() string {
	return strings.NewReplacer("[", "(", "]", ")").Replace(d.Chart.Title)
}

// headline is a figure on the first page, and in words.
type headline struct {
	Chart *chart
	Words []words
}

// SVG is the figure beside its words.
func (h headline) SVG() (template.HTML, error) {
	if h.Chart.Summary != nil { // it has no words
		return h.Chart.svgs(fileWidth)
	}
	return h.Chart.svgs(headlineWidth)
}

// words are a sentence: "Name: Of Value, Of Value Says".
type words struct {
	Name, Says string
	Values     []value
}

type value struct{ Value, Interval, Of string }

// themed gives what is not a series the colours of the page's theme.
var themed = strings.NewReplacer("#FFFFFF", "var(--ground)", hex(ink), "var(--ink)", hex(muted), "var(--muted)", hex(rule), "var(--rule)")

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// place is where a run was measured.
type place struct {
	Label, Command string
	Facts          []fact
}

type fact struct{ Name, Text string }

// Places are those of the part's runs.
func (p part) Places() (list []place) {
	for _, s := range p.sources {
		folder := s.label // of the samples, as seen from the report
		if folder == "" {
			folder = p.name
		}
		list = append(list, place{s.label, s.run.Command, facts(s.run, path.Join(folder, result.File))})
	}
	return list
}

// facts are the environment and what else is needed to repeat a run.
func facts(r *result.Run, raw string) (list []fact) {
	add := func(name, text string) {
		if text != "" {
			list = append(list, fact{name, text})
		}
	}
	e := r.Environment
	ran := r.Ran()
	rounds := fmt.Sprintf("%d rounds", ran)
	switch {
	case ran < r.Rounds:
		rounds = fmt.Sprintf("%d of %d rounds", ran, r.Rounds)
	case ran == 1:
		rounds = "1 round"
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

// Machines say where the runs were measured, and what with.
func (r report) Machines() (lines []string) {
	for _, s := range r.Parts[0].sources {
		e := s.run.Environment
		lines = append(lines, s.says(fmt.Sprintf("%s, %d CPUs, Linux %s, culvert %s, %s",
			e.CPU, e.CPUs, e.Kernel, e.Version, s.run.Begun.UTC().Format("2 January 2006"))))
	}
	return lines
}

// Headlines are the figures that the first page of many experiments shows.
func (r report) Headlines() (list []headline) {
	for _, p := range r.Parts {
		for _, c := range p.charts {
			if r.Many() && c.Headline != "" && c.HasPicture() {
				list = append(list, headline{c, c.words()})
			}
		}
	}
	return list
}

// words are a sentence for each bar or group of bars; of lines, what each has come
// to. A figure with a table on top has none: the table has its figures.
func (c *chart) words() (list []words) {
	for _, r := range c.rows {
		x := r.measurement.Labels[c.X]
		name, of, says := labelText(x), r.name, c.Headline
		if c.Kind == result.Lines {
			if c.categories == nil {
				x = tickText(c.place(x))
			}
			name, of, says = r.name, "", says+" ("+c.xTitle()+": "+x+")"
		}
		if !r.estimate.Measured() || c.Summary != nil {
			continue
		}
		at := slices.IndexFunc(list, func(w words) bool { return w.Name == name })
		if at < 0 {
			at = len(list)
			list = append(list, words{Name: name})
		}
		w := &list[at]
		if w.Says = says; c.Kind == result.Lines {
			w.Values = nil // the last one stays
		}
		number, interval := c.scale.words(r.estimate)
		if !r.estimate.HasInterval() || c.Kind != result.Lines && len(c.series) > 1 {
			interval = "" // where a sentence has several values, the picture has their intervals
		}
		w.Values = append(w.Values, value{number + c.scale.suffix(), interval, of})
	}
	return list
}
