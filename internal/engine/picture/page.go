package picture

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/change"
)

// Page is what there is to show. Frames and all that refers to them are in the order of time.
type Page struct {
	Title string
	// Facts are a name and a text each; Problem is what somebody should fix.
	Facts   [][2]string
	Problem string
	// Nodes and Links are all that some frame has, and Target the utilisation that is aimed at:
	// 1 is full; 0: none.
	Nodes  []string
	Links  []te.Link
	Target float64
	Frames []Frame
	// Demands are the largest of All.
	Demands []Demand
	All     int
	Events  []Event
	Tables  []Table
	// Every is how often what is shown changes; 0: never.
	Every time.Duration
}

// Frame is the links at a time, or after a step.
type Frame struct {
	At    time.Time // zero: it has no time
	Label string
	// Used are the utilisations of Page.Links: 1 is full; below 0: the link is not there.
	Used []float32
}

// Demand is a demand with the paths that it had.
type Demand struct {
	te.Demand
	Paths []Path
}

// Path is where a demand goes from a frame on.
type Path struct {
	From   int    // index of a frame
	Lists  string // in words
	Shares []Share
}

// Share is the part of a demand that a link carries.
type Share struct {
	Link int // index in Page.Links
	Part float32
}

// Event is something that happened.
type Event struct {
	At   time.Time
	What string
}

// Table is more to read.
type Table struct {
	Title, Caption string
	Head           []string
	Rows           [][]string
}

var (
	//go:embed assets/page.css
	style string
	//go:embed assets/page.js
	script string
)

// Policy is the Content-Security-Policy of a page: nothing is fetched, and no other script runs.
var Policy = func() string {
	hash := sha256.Sum256([]byte(script))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}()

// writer writes markup.
type writer struct{ bytes.Buffer }

// add writes markup with values in it, as fmt.Sprintf does. Texts among the values are escaped.
func (w *writer) add(markup string, values ...any) {
	for i, v := range values {
		switch v := v.(type) {
		case string:
			values[i] = html.EscapeString(v)
		case fmt.Stringer:
			values[i] = html.EscapeString(v.String())
		}
	}
	fmt.Fprintf(w, markup, values...)
}

// Write writes the page.
func Write(to io.Writer, p Page) error {
	w := &writer{}
	w.add(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">`)
	w.add(`<meta http-equiv="Content-Security-Policy" content="%s"><link rel="icon" href="data:,"><title>%s</title><style>`, Policy, p.Title)
	w.WriteString(style)
	w.add("</style></head>\n<body><main><h1>%s</h1>", p.Title)
	if p.Problem != "" {
		w.add(`<p class="problem" role="alert"><b>Problem:</b> %s</p>`, p.Problem)
	}
	w.add("<dl>")
	for _, f := range p.Facts {
		w.add("<dt>%s</dt><dd>%s</dd>", f[0], f[1])
	}
	w.add("</dl>\n")
	p.controls(w)
	p.graph(w)
	p.chart(w)
	p.events(w)
	p.demands(w)
	p.links(w)
	for _, t := range p.Tables {
		w.table(t)
	}
	w.add(`</main><footer>Made by culvert te. Utilisation is of a link's capacity; each direction has its own.</footer>`)
	if err := p.data(w); err != nil {
		return err
	}
	w.add("<script>")
	w.WriteString(script)
	w.add("</script></body></html>\n")
	_, err := w.WriteTo(to)
	return err
}

// controls let people choose a time and a demand: the script shows them.
func (p *Page) controls(w *writer) {
	w.add(`<div class="controls" hidden><label>demand <select id="demand"><option value="">none</option>`)
	for i, d := range p.Demands {
		w.add(`<option value="%d">%s</option>`, i, d.Name())
	}
	w.add(`</select></label>`)
	if n := len(p.Frames); n > 1 {
		w.add(`<label>%s <input id="frame" type="range" min="0" max="%d" value="%d"></label> <output id="when">%s</output>`,
			map[bool]string{true: "step", false: "time"}[p.Frames[0].At.IsZero()], n-1, n-1, p.Frames[n-1].label())
	}
	if p.Every > 0 {
		w.add(`<label><input id="follow" type="checkbox" data-every="%d"> reload every %s</label>`, p.Every.Milliseconds(), p.Every)
	}
	w.add("</div>\n")
}

// label is what a frame is called.
func (f Frame) label() string {
	if f.Label != "" || f.At.IsZero() {
		return f.Label
	}
	return f.At.Format(time.TimeOnly)
}

// last are the utilisations that the page shows first.
func (p *Page) last() []float32 {
	if n := len(p.Frames); n > 0 {
		return p.Frames[n-1].Used
	}
	return nil
}

// used is a utilisation in words.
func used(u float32) string {
	if u < 0 {
		return "not there"
	}
	return change.Percent(float64(u))
}

// data is what the script reads, in whole parts of a thousand.
func (p *Page) data(w *writer) error {
	type path struct {
		From   int      `json:"from"`
		Lists  string   `json:"lists"`
		Shares [][2]int `json:"shares"`
	}
	thousandth := func(v float32) int { return int(math.Round(1000 * float64(v))) }
	var all struct {
		Links   []string `json:"links"`
		Frames  []string `json:"frames"`
		At      []int64  `json:"at"` // of frames, in milliseconds since the first
		Used    [][]int  `json:"used"`
		Demands [][]path `json:"demands"`
	}
	for _, l := range p.Links {
		all.Links = append(all.Links, about(l))
	}
	for _, f := range p.Frames {
		row := make([]int, len(f.Used))
		for i, u := range f.Used {
			row[i] = max(-1, thousandth(u))
		}
		all.Frames, all.Used = append(all.Frames, f.label()), append(all.Used, row)
		all.At = append(all.At, f.At.Sub(p.Frames[0].At).Milliseconds())
	}
	for _, d := range p.Demands {
		paths := []path{}
		for _, v := range d.Paths {
			shares := make([][2]int, len(v.Shares))
			for i, s := range v.Shares {
				shares[i] = [2]int{s.Link, thousandth(s.Part)}
			}
			paths = append(paths, path{v.From, v.Lists, shares})
		}
		all.Demands = append(all.Demands, paths)
	}
	text, err := json.Marshal(all) // which escapes <, > and &
	if err != nil {
		return err
	}
	w.add(`<script id="data" type="application/json">`)
	w.Write(text)
	w.add("</script>\n")
	return nil
}
