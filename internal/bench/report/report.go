package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Formats are what a report is made of.
var Formats = []string{"html", "png", "svg", "md", "csv"}

// Options say what to draw, and where.
type Options struct {
	// Out is the folder that is written into; "": the one folder that is drawn, or
	// "comparison" of several.
	Out string
	// Formats are some of Formats; none: all.
	Formats []string
	// Papers are those whose boxes the first page has.
	Papers []result.Paper
	Compare
}

// Outcome is what was drawn.
type Outcome struct {
	Files       []string      `json:"files"`
	Warnings    []string      `json:"warnings"`
	Claims      []string      `json:"claims"`
	Comparisons []*Comparison `json:"comparisons,omitempty"`
	Machines    []Machine     `json:"machines,omitempty"` // of a comparison's runs
}

// part is an experiment in a report.
type part struct {
	name       string // tells it from the report's other parts; "": it is alone
	sources    []source
	charts     []*chart
	comparison *Comparison
}

// Draw draws the report of one folder, of a run or with runs below it; of
// several, their comparison. It writes all of it or nothing.
func Draw(dirs []string, options Options) (*Outcome, error) {
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no folder of a run to draw")
	}
	parts, left, err := partsOf(dirs)
	if err != nil {
		return nil, err
	}
	p := palette{}
	for i := range parts {
		if err := parts[i].chart(p, options.Compare); err != nil {
			return nil, err
		}
	}
	r := report{Title: titleOf(parts, len(dirs) > 1), Parts: parts, left: left, papers: options.Papers}
	files, err := r.files(options.Formats)
	if err != nil {
		return nil, err
	}
	out := "comparison"
	if len(dirs) == 1 {
		out = dirs[0]
	}
	out = cmp.Or(options.Out, out)
	if err := writeAll(out, files); err != nil {
		return nil, err
	}
	o := &Outcome{Files: []string{}, Warnings: append([]string{}, r.Warnings()...), Claims: append([]string{}, r.Claims()...)}
	for _, p := range r.Parts {
		if p.comparison != nil {
			o.Comparisons = append(o.Comparisons, p.comparison)
			o.Machines = r.compared()
		}
	}
	for name := range files {
		o.Files = append(o.Files, filepath.Join(out, name))
	}
	slices.Sort(o.Files)
	return o, nil
}

// partsOf reads the folders. Of several, the runs of the same experiment belong
// together; left says which have no other.
func partsOf(dirs []string) (parts []part, left []string, err error) {
	labels := named(dirs)
	for i, dir := range dirs {
		f, err := readFolder(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range f.runs {
			name := ""
			if f.many {
				name = filepath.Base(s.dir)
			}
			if len(dirs) > 1 {
				s.label, name = labels[i], s.run.Experiment
			}
			at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
			if at < 0 || len(dirs) == 1 {
				parts = append(parts, part{name: name, sources: []source{s}})
				continue
			}
			parts[at].sources = append(parts[at].sources, s)
		}
	}
	if len(dirs) == 1 {
		return parts, nil, nil
	}
	return comparable(parts)
}

// comparable keeps the experiments that more than one run is of.
func comparable(parts []part) (kept []part, left []string, err error) {
	for _, p := range parts {
		if len(p.sources) > 1 {
			kept = append(kept, p)
			continue
		}
		left = append(left, fmt.Sprintf("%q is in %s only", p.name, p.sources[0].dir))
	}
	if len(kept) == 0 {
		return nil, nil, fmt.Errorf("nothing to compare: %s: name runs of the same experiment, or for one report of several experiments the folder that they are in", strings.Join(left, "; "))
	}
	if len(kept) == 1 {
		kept[0].name = ""
	}
	return kept, left, nil
}

// chart makes the part's charts: of several runs, of the first one's figures.
func (p *part) chart(colours palette, how Compare) error {
	for _, f := range p.sources[0].run.Figures {
		charts, err := chartsOf(f, p.sources, colours)
		if err != nil {
			return fmt.Errorf("%s: %w", p.sources[0].dir, err)
		}
		for _, c := range charts {
			c.prefix = p.name
			p.charts = append(p.charts, c)
		}
	}
	if len(p.sources) > 1 {
		// Each run is compared with the first. Each such pair is a family of comparisons of its own.
		p.comparison = &Comparison{Experiment: p.Run().Experiment, Differences: []Difference{}, Compare: how}
		for i, s := range p.sources {
			p.comparison.Runs = append(p.comparison.Runs, s.label)
			if i > 0 {
				p.comparison.pair(p.sources[0], s, p.charts)
			}
		}
	}
	return nil
}

// report is all that is drawn together.
type report struct {
	Title    string
	Parts    []part
	left     []string
	papers   []result.Paper
	Pictures bool // the text has pictures beside it
}

// Many says whether the first page is of many experiments.
func (r report) Many() bool { return len(r.Parts) > 1 }

// Lead says in a sentence or two what the report is of.
func (r report) Lead() string {
	if p := r.Parts[0]; p.comparison != nil {
		return fmt.Sprintf("The same experiments, measured more than once. Every run is compared with %s; ratios are of medians.", p.comparison.Runs[0])
	}
	if !r.Many() {
		return r.Parts[0].Run().Summary
	}
	return "Each tunnel is compared with plain forwarding of the same packets, measured in turns on the same cores. The difference is what the tunnel costs."
}

func titleOf(parts []part, compared bool) string {
	if !compared && len(parts) > 1 {
		return "What each tunnel costs on this machine"
	}
	title := parts[0].Run().Title
	if !compared {
		return title
	}
	var labels []string
	for _, s := range parts[0].sources {
		labels = append(labels, s.label)
	}
	against := strings.Join(labels[1:], " and ") + " against " + labels[0]
	if len(parts) > 1 {
		return against
	}
	return title + ": " + against
}

// Claims are those of all parts, with the run that each is about.
func (r report) Claims() (list []string) {
	for _, p := range r.Parts {
		for _, c := range p.Claims() {
			list = append(list, r.whose(p)+c)
		}
	}
	return list
}

func (r report) whose(p part) string {
	if !r.Many() {
		return ""
	}
	return p.Run().Title + ": "
}

// Warnings are all reasons to doubt the part's runs; that a run is not whole comes
// first.
func (p part) Warnings() (list []string) {
	for _, s := range p.sources {
		if !s.run.Complete {
			list = append(list, s.says("The run was stopped before its end: what was measured holds, the rest is missing."))
		}
		for _, w := range s.run.Warnings {
			list = append(list, s.says(w))
		}
	}
	if p.comparison != nil {
		list = append(list, p.comparison.Notes...)
	}
	return list
}

// Claims are a run's own; of several, which differences are real.
func (p part) Claims() []string {
	if p.comparison == nil {
		return p.Run().Claims
	}
	return p.comparison.sentences(p.charts)
}

// files are the report's, by name.
func (r report) files(formats []string) (map[string][]byte, error) {
	if len(formats) == 0 {
		formats = Formats
	}
	r.Pictures = slices.Contains(formats, "png")
	files := map[string][]byte{}
	for _, format := range formats {
		var err error
		var page bytes.Buffer
		switch format {
		case "html": // one page with all that it needs in it
			err = pageOf.Execute(&page, r)
			files["report.html"] = page.Bytes()
		case "md":
			err = summaryOf.Execute(&page, r)
			files["summary.md"] = page.Bytes()
			if err == nil {
				err = r.each(files, "tables/", ".md", func(d drawing) ([]byte, error) {
					people, _ := d.tables()
					if len(people.Rows) == 0 {
						return nil, nil
					}
					return []byte(people.Markdown()), nil
				})
			}
		case "csv":
			err = r.each(files, "tables/", ".csv", func(d drawing) ([]byte, error) {
				_, programs := d.tables()
				if len(programs.Rows) == 0 {
					return nil, nil
				}
				var b bytes.Buffer
				err := csv.NewWriter(&b).WriteAll(append([][]string{programs.Head}, programs.Rows...))
				return b.Bytes(), err
			})
		case "png":
			err = r.each(files, "figures/", ".png", pictureBy((*picture).png))
		case "svg":
			err = r.each(files, "figures/", ".svg", pictureBy((*picture).svg))
		default:
			err = fmt.Errorf("there is no format %q: there are %s", format, strings.Join(Formats, ", "))
		}
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// pictureBy draws what has something to draw.
func pictureBy(draw func(*picture) ([]byte, error)) func(drawing) ([]byte, error) {
	return func(d drawing) ([]byte, error) {
		if !d.Chart.HasPicture() {
			return nil, nil
		}
		return draw(filePicture(d.Chart))
	}
}

// drawing is a picture with its tables.
type drawing struct {
	Chart      *chart
	Table, raw table
	width      vg.Length // 0: the whole page's
}

// tables are those of a file: of a figure that is split into charts, the first has all of it.
func (d drawing) tables() (people, programs table) {
	switch c := d.Chart; {
	case c.whole == nil:
		return d.Table, d.raw
	case c.piece == 0:
		return c.whole.tables()
	}
	return table{}, table{}
}

// Drawings are a part's charts, and of a comparison the differences before each.
func (p part) Drawings() (list []drawing) {
	for _, c := range p.charts {
		if p.comparison != nil {
			if f := p.comparison.forestOf(c); f != nil {
				list = append(list, drawing{Chart: f, Table: p.comparison.table(c), raw: p.comparison.raw(c)})
			}
		}
		table, raw := c.tables()
		list = append(list, drawing{Chart: c, Table: table, raw: raw})
	}
	return list
}

// Overviews are the tables on top of a report of single runs: what a reader wants to
// know of a figure first. Of several runs, how they differ stands there.
func (r report) Overviews() (list []drawing) {
	for _, p := range r.Parts {
		for _, c := range p.charts {
			if c.Summary != nil && p.comparison == nil && c.HasPicture() {
				list = append(list, drawing{Chart: c, Table: c.overview(p.Run().Glossary)})
			}
		}
	}
	return list
}

// each makes a file of each drawing, where there is something to make.
func (r report) each(files map[string][]byte, folder, ending string, draw func(drawing) ([]byte, error)) error {
	for _, p := range r.Parts {
		for _, d := range p.Drawings() {
			text, err := draw(d)
			if err != nil {
				return err
			}
			if len(text) > 0 && len(d.Table.Rows) > 0 {
				files[folder+d.ID()+ending] = text
			}
		}
	}
	return nil
}

// Run is the run that stands for a part where one has to.
func (p part) Run() *result.Run { return p.sources[0].run }

// Name is what the page calls the part.
func (p part) Name() string { return p.name }
