package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/result"
)

var update = flag.Bool("update", false, "write the golden tables from what is drawn now")

// Tables and summaries are what they were. testdata/suite and testdata/later are
// made up: every kind of figure, a run that was stopped, one round, nothing in a
// histogram, anchors with and without a place.
func TestGolden(t *testing.T) {
	for name, dirs := range map[string][]string{
		"suite":      {"testdata/suite"},
		"run":        {"testdata/suite/slices"},
		"comparison": {"testdata/suite", "testdata/later"},
	} {
		t.Run(name, func(t *testing.T) {
			out, golden := t.TempDir(), filepath.Join("testdata", "golden", name)
			if *update {
				if err := os.RemoveAll(golden); err != nil {
					t.Fatal(err)
				}
				out = golden
			}
			if _, err := Draw(dirs, Options{Out: out, Formats: []string{"md", "csv"}}); err != nil {
				t.Fatal(err)
			}
			got, want := filesBelow(t, out), filesBelow(t, golden)
			if len(want) < 3 {
				t.Errorf("%d golden files (go test -update writes them)", len(want))
			}
			for name := range got {
				if want[name] == "" {
					t.Errorf("%s is drawn, and not golden", name)
				}
			}
			for name, text := range want {
				if got[name] != text {
					t.Errorf("%s (go test -update writes it)\ngot:\n%s\nwant:\n%s", name, got[name], text)
				}
			}
		})
	}
}

func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	root := os.DirFS(dir)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(f)
		files[name] = string(text)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Every number in a table for programs is one, and as many columns everywhere.
func TestTablesAreRead(t *testing.T) {
	out := t.TempDir()
	if _, err := Draw([]string{"testdata/suite"}, Options{Out: out, Formats: []string{"csv", "md"}}); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(out, "tables", "*.csv"))
	if err != nil || len(tables) < 5 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, path := range tables {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil || len(rows) < 2 {
			t.Errorf("%s: %d rows, %v", path, len(rows), err)
			continue
		}
		if at := slices.Index(rows[0], "median"); at >= 0 {
			for _, r := range rows[1:] {
				var v float64
				if _, err := fmt.Sscan(r[at], &v); r[at] != "" && err != nil {
					t.Errorf("%s: median %q", path, r[at])
				}
			}
		}
	}
}

// Pictures can be decoded, are not blank, and have each series' colour.
func TestPictures(t *testing.T) {
	for _, dirs := range [][]string{{"testdata/suite"}, {"testdata/suite", "testdata/later"}} {
		out := t.TempDir()
		outcome, err := Draw(dirs, Options{Out: out, Formats: []string{"png", "svg"}})
		if err != nil {
			t.Fatal(err)
		}
		pngs := 0
		for _, path := range outcome.Files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, ".png") {
				pngs++
				checkPNG(t, filepath.Base(path), text)
			} else {
				checkSVG(t, filepath.Base(path), text)
			}
		}
		if 2*pngs != len(outcome.Files) || pngs < 7 {
			t.Errorf("%d PNG among %d pictures", pngs, len(outcome.Files))
		}
	}
}

func checkPNG(t *testing.T, name string, text []byte) {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	b := picture.Bounds()
	inked, coloured := 0, map[int]bool{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := picture.At(x, y).RGBA()
			if r+g+bl < 3*0xe000 {
				inked++
			}
			for i, c := range colours {
				if uint8(r>>8) == c.R && uint8(g>>8) == c.G && uint8(bl>>8) == c.B {
					coloured[i] = true
				}
			}
		}
	}
	if b.Dx() < 1000 || inked < b.Dx()*b.Dy()/200 || len(coloured) == 0 {
		t.Errorf("%s: %v with %d dark pixels and %d of our colours", name, b, inked, len(coloured))
	}
}

func checkSVG(t *testing.T, name string, text []byte) {
	t.Helper()
	var paths, words int
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if e, ok := token.(xml.StartElement); ok {
			switch e.Name.Local {
			case "path":
				paths++
			case "text":
				words++
			}
		}
	}
	if paths < 8 || words < 6 {
		t.Errorf("%s: %d paths and %d texts", name, paths, words)
	}
}

// A series has the same colour wherever it is, and no two of a figure share one.
func TestColours(t *testing.T) {
	parts, _, err := partsOf([]string{"testdata/suite"})
	if err != nil {
		t.Fatal(err)
	}
	p, known := palette{}, map[string]int{}
	for i := range parts {
		if err := parts[i].chart(p, Compare{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range parts[i].charts {
			checkApart(t, c)
			for _, s := range c.series {
				if at, ok := known[s.quantity]; ok && at != s.colour {
					t.Errorf("%s: %q has colour %d, and had %d", c.ID, s.quantity, s.colour, at)
				}
				known[s.quantity] = s.colour
			}
		}
	}
}

func checkApart(t *testing.T, c *chart) {
	t.Helper()
	type look struct{ colour, variant int }
	here := map[look]string{}
	for _, s := range c.series {
		at := look{s.colour, s.variant}
		if was, taken := here[at]; taken {
			t.Errorf("%s: %q and %q look the same", c.ID, was, s.name)
		}
		here[at] = s.name
	}
}

// More lines than can be told apart are shared out to charts of the same axes; each has a colour of its
// own in its chart, and none is lost.
func TestManySeries(t *testing.T) {
	r := oneBar(100)
	r.Figures[0].Kind, r.Figures[0].X, r.Figures[0].Series = result.Lines, "rate", "function"
	r.Measurements = nil
	many := 2*mostLines + 3
	for i := range many {
		for _, rate := range []string{"1", "2"} {
			r.Measurements = append(r.Measurements, result.Measurement{
				Metric: "cost", Labels: result.Labels{"function": fmt.Sprint("f", i), "rate": rate}, Unit: "ns", Samples: []float64{float64(i)},
			})
		}
	}
	for runs, want := range map[int]int{1: 3, 2: 6} {
		sources := []source{{run: r, label: "a"}, {run: r, label: "b"}}[:runs]
		if runs == 1 {
			sources[0].label = ""
		}
		charts, err := chartsOf(r.Figures[0], sources, palette{})
		if err != nil || len(charts) != want {
			t.Fatalf("%d charts of %d runs, %v: want %d", len(charts), runs, err, want)
		}
		lines, rows, ids := 0, 0, map[string]bool{}
		filed := map[string]int{} // rows of tables in files
		for _, c := range charts {
			lines, rows, ids[c.ID] = lines+len(c.series), rows+len(c.rows), true
			if people, programs := (drawing{Chart: c}).tables(); len(people.Rows) > 0 {
				filed[c.ID] = len(programs.Rows)
			}
			checkApart(t, c)
			if len(c.series) > mostLines {
				t.Errorf("%s: %d lines", c.Title, len(c.series))
			}
			if _, high := c.valueRange(); high < float64(many-1) {
				t.Errorf("%s: its axis ends at %v: the charts differ", c.Title, high)
			}
		}
		if lines != runs*many || rows != 2*runs*many || len(ids) != want || !ids["one"] {
			t.Errorf("%d lines and %d rows of %d runs, charts %v", lines, rows, runs, ids)
		}
		if len(filed) != 1 || filed["one"] != rows {
			t.Errorf("tables in files have rows %v, want one with all %d", filed, rows)
		}
	}
}

// The tail of a density does not hide the rest: where half of the packets are
// takes a good part of the picture, and a note says what is outside.
func TestDensityWithATail(t *testing.T) {
	h := &result.Histogram{Unit: "ns"}
	for low := uint64(1000); low < 1100; low += 10 {
		h.Lower, h.Upper, h.Count = append(h.Lower, low), append(h.Upper, low+10), append(h.Count, 97)
	}
	h.Lower, h.Upper, h.Count = append(h.Lower, 900_000), append(h.Upper, 1_000_000), append(h.Count, 30)
	r := oneBar(100)
	r.Measurements[0].Histogram = h
	r.Figures[0].Kind, r.Figures[0].Centered = result.Density, true
	c, err := chartOf(r.Figures[0], []source{{run: r}}, palette{})
	if err != nil {
		t.Fatal(err)
	}
	points, total := c.series[0].points, 0.0
	for _, p := range points {
		total += p.y
	}
	if far := points[len(points)-1].x * c.xScale.by; far > 1000 || math.Abs(total-97) > 0.01 {
		t.Errorf("it reaches to %v ns with %.2f %% of the packets", far, total)
	}
	if !strings.Contains(strings.Join(c.Notes, "\n"), "3.00 % of a line's packets are outside") {
		t.Errorf("notes: %q", c.Notes)
	}
}

// The comparison of two runs finds the differences that the test data has.
func TestComparison(t *testing.T) {
	outcome, err := Draw([]string{"testdata/suite", "testdata/later"}, Options{Out: t.TempDir(), Formats: []string{"csv"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Comparisons) != 1 || outcome.Comparisons[0].Experiment != "functions" {
		t.Fatalf("compared: %+v", outcome.Comparisons)
	}
	put := map[string]float64{"End.M.GTP4.E": 0.86, "GTP-U encap": 1.04}
	for _, d := range outcome.Comparisons[0].Differences {
		f, metric := d.Labels["function"], d.Metric
		if metric != "cost" {
			continue
		}
		want, changed := put[f]
		if changed != (d.Verdict == real) {
			t.Errorf("%s %v: %s at %v", metric, d.Labels, d.Verdict, *d.Ratio)
		}
		if changed && (math.Abs(*d.Ratio-want) > 0.02 || *d.Low > want || *d.High < want) {
			t.Errorf("%s %v: %v (%v to %v), want %v", metric, d.Labels, *d.Ratio, *d.Low, *d.High, want)
		}
	}
	if !strings.Contains(strings.Join(outcome.Warnings, "\n"), "slices") {
		t.Errorf("warnings %q do not say that slices is in one folder only", outcome.Warnings)
	}
}

// A run says nothing of itself that it can not: with one round nothing is real,
// and the comparison says why.
func TestTooFewRounds(t *testing.T) {
	a, b := oneBar(100), oneBar(200)
	dirs := []string{store(t, a), store(t, b)}
	outcome, err := Draw(dirs, Options{Out: t.TempDir(), Formats: []string{"md"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := outcome.Comparisons[0].Differences; len(d) != 1 || d[0].Verdict != notShown || *d[0].Ratio < 1.9 {
		t.Errorf("%+v: want one difference that is not shown", d)
	}
	if !strings.Contains(strings.Join(outcome.Warnings, "\n"), "too few rounds") {
		t.Errorf("warnings %q do not say that there are too few rounds", outcome.Warnings)
	}
}

// oneBar is the smallest run that can be drawn.
func oneBar(value float64) *result.Run {
	return &result.Run{
		Version: result.Version, Experiment: "one", Title: "One", Complete: true, Rounds: 1,
		Measurements: []result.Measurement{{Metric: "cost", Labels: result.Labels{"function": "end"}, Unit: "ns", Samples: []float64{value}}},
		Figures:      []result.Figure{{ID: "one", Title: "One", Kind: result.Bars, Metric: "cost", X: "function"}},
	}
}

func store(t *testing.T, r *result.Run) string {
	t.Helper()
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Text of a run is text, whatever is in it.
func TestTextIsNotMarkup(t *testing.T) {
	r := oneBar(100)
	nasty := `</script><script>alert("x")</script><img src=x onerror=alert(1)>`
	r.Title, r.Summary, r.Claims = nasty, nasty, []string{nasty}
	r.Measurements[0].Labels["function"] = nasty
	r.Figures[0].Title, r.Figures[0].Caption = nasty, nasty+" | a"
	r.Glossary = map[string]string{nasty: nasty}
	page, err := os.ReadFile(drawTo(t, store(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`<script>alert`, `<img src=x`} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page has %s", bad)
		}
	}
}

func TestBadInput(t *testing.T) {
	change := func(with func(*result.Run)) func(*testing.T) []string {
		return func(t *testing.T) []string {
			r := oneBar(100)
			with(r)
			dir := t.TempDir()
			text, err := json.Marshal(r)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, result.File), text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}
	}
	for name, tt := range map[string]struct {
		dirs func(*testing.T) []string
		want string
	}{
		"no folder":       {func(t *testing.T) []string { return []string{filepath.Join(t.TempDir(), "none")} }, "no such file"},
		"an empty folder": {func(t *testing.T) []string { return []string{t.TempDir()} }, "there is no run.json in it"},
		"a file":          {func(*testing.T) []string { return []string{"report_test.go"} }, "no folder of a run"},
		"half a run": {func(t *testing.T) []string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, result.File), []byte(`{"version": 1, "experi`), 0o644); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "unexpected end of JSON"},
		"half a suite": {func(t *testing.T) []string {
			dir := store(t, oneBar(1))
			if err := os.Mkdir(filepath.Join(dir, "b"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, result.File), filepath.Join(dir, "b", result.File)); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "a", result.File), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "unexpected end of JSON"},
		"a newer version":    {change(func(r *result.Run) { r.Version = result.Version + 1 }), "this program reads up to"},
		"nothing measured":   {change(func(r *result.Run) { r.Measurements = nil }), "nothing was measured"},
		"no figures":         {change(func(r *result.Run) { r.Figures = nil }), "says of no figure"},
		"an unknown metric":  {change(func(r *result.Run) { r.Figures[0].Metric = "price" }), `called "price": the run has cost`},
		"a where of nothing": {change(func(r *result.Run) { r.Figures[0].Where = result.Labels{"size": "short"} }), "with size short"},
		"a figure's path":    {change(func(r *result.Run) { r.Figures[0].ID = "../../one" }), "it names files"},
		"two units": {change(func(r *result.Run) {
			m := r.Measurements[0]
			m.Unit = "packets/s"
			r.Measurements = append(r.Measurements, m)
		}), "there is one axis"},
		"nothing in common": {func(t *testing.T) []string {
			return []string{store(t, oneBar(1)), "testdata/later"}
		}, "nothing to compare"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			_, err := Draw(tt.dirs(t), Options{Out: out})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("a folder was made for it")
			}
		})
	}
}

// A run that was stopped is drawn: what was not measured is in the notes, and no error.
func TestStoppedBeforeAnyFigure(t *testing.T) {
	r := oneBar(100)
	r.Complete = false
	r.Figures = append(r.Figures, result.Figure{ID: "two", Title: "Two", Kind: result.Lines, Metric: "later", X: "rate"})
	page, err := os.ReadFile(drawTo(t, store(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ended before anything of this figure", "stopped before its end"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// A full disk leaves the report that was there, and nothing else.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := oneBar(100).Write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Draw([]string{dir}, Options{Formats: []string{"md"}}); err != nil {
		t.Fatal(err)
	}
	before := filesBelow(t, dir)
	_, err := Draw([]string{dir}, Options{})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "the report is not written") {
		t.Errorf("%v, want that no space is left", err)
	}
	if after := filesBelow(t, dir); len(after) != len(before) || after["summary.md"] != before["summary.md"] {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
	if _, err := Draw([]string{dir}, Options{Out: filepath.Join(dir, "a", "b")}); err == nil {
		t.Error("there was room in a folder below")
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder of nothing is left: %v", err)
	}
}

func TestCommand(t *testing.T) {
	run := func(args ...string) (string, error) {
		c := Command(nil)
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetArgs(args)
		err := c.Execute()
		return out.String(), err
	}
	out, err := run("--out", t.TempDir(), "--format", "csv", "-o", "json", "testdata/suite", "testdata/later")
	var outcome Outcome
	if err != nil || json.Unmarshal([]byte(out), &outcome) != nil || len(outcome.Comparisons) != 1 || len(outcome.Files) == 0 {
		t.Errorf("JSON: %v, %d files, %.200s", err, len(outcome.Files), out)
	}
	out, err = run("--out", t.TempDir(), "--format", "html,md", "testdata/suite/slices")
	if err != nil || !strings.Contains(out, "warning: The run was stopped") || !strings.Contains(out, "report.html") {
		t.Errorf("text: %v, %s", err, out)
	}
	for want, args := range map[string][]string{
		"--format \"pdf\": give some of html": {"--format", "pdf", "testdata/suite"},
		"--output \"xml\": give table or":     {"-o", "xml", "testdata/suite"},
		"requires at least 1 arg":             {},
	} {
		if _, err := run(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Nothing is so many times as much as 0: both values stand there, and no ratio.
func TestNoRatioToZero(t *testing.T) {
	a, b := oneBar(0), oneBar(3)
	out := t.TempDir()
	outcome, err := Draw([]string{store(t, a), store(t, b)}, Options{Out: out, Formats: []string{"md", "csv"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := outcome.Comparisons[0].Differences; len(d) != 1 || d[0].Verdict != noRatio || d[0].Ratio != nil || d[0].First != 0 || d[0].Second != 3 {
		t.Errorf("%+v: want 0 and 3, and no ratio", d)
	}
	table, err := os.ReadFile(filepath.Join(out, "tables", "one-differences.md"))
	if err != nil || !strings.Contains(string(table), "| 0 | 3.00 | – | – | no ratio |") {
		t.Errorf("%v:\n%s", err, table)
	}
}

// The table on top gives the ratio of a value to its baseline, and the difference.
// Its rows are those that the figure names and that were measured, in that order.
func TestSummaryTable(t *testing.T) {
	r := oneBar(0)
	r.Measurements, r.Figures[0].Value, r.Figures[0].Series = nil, result.ToBaseline, "size"
	for _, name := range []string{"end", "other"} {
		at := map[string]float64{"end": 130, "other": 300}[name]
		r.Measurements = append(r.Measurements, result.Measurement{
			Metric: "cost", Labels: result.Labels{"function": name, "size": "short"}, Unit: "ns",
			Samples: []float64{at, at + 10, at + 20}, Baseline: []float64{100, 110, 100},
		})
	}
	r.Glossary = map[string]string{"end": "the next segment"}
	r.Figures[0].Summary = &result.Summary{Title: "Costs", Caption: "Of a packet.", Rows: []string{"other", "never", "end"}}
	dir := store(t, r)
	if _, err := Draw([]string{dir}, Options{Formats: []string{"md"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "summary.md"))
	if err != nil {
		t.Fatal(err)
	}
	summary := string(text)
	want := "## Costs\n\nOf a packet.\n\n| function | what it does | short: times | range | short: more (ns) |\n| --- | --- | ---: | ---: | ---: |\n" +
		"| other |  | 3.00 | 2.82 to 3.20 | 200 |\n| end | the next segment | 1.30 | 1.27 to 1.50 | 30 |\n"
	if !strings.Contains(summary, want) {
		t.Errorf("%s\nwant in it:\n%s", summary, want)
	}
	r.Figures[0].Value = result.Plain
	if err := r.Check(); err == nil {
		t.Error("a summary of plain values is taken")
	}
}
