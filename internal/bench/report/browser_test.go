package report

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/testutil/browser"
)

// drawnScript counts what charts have drawn: marks of values and of others' figures,
// each where something is painted on the screen, and lines.
const drawnScript = `(() => {
  const charts = {};
  for (const el of document.querySelectorAll("section[id] > .chart")) {
    const svg = [...el.querySelectorAll("svg")].find((s) => s.getBoundingClientRect().width > 0); // the wide or the narrow one
    const painted = (mark) => {
      mark.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      const box = mark.getBoundingClientRect();
      const name = mark.classList[1];
      return document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2).some((e) => e.tagName === "path" && e.closest("." + name) !== null);
    };
    const count = (kind) => [...svg.querySelectorAll("." + kind)].filter(painted).length;
    const lines = [...svg.querySelectorAll("[class^=s] path")].filter((p) => p.getAttribute("style").includes("fill:none")).map((p) => (p.getAttribute("d").match(/[ML]/g) ?? []).length);
    charts["chart-" + el.parentElement.id] = {
      marks: count("mark"), anchors: count("anchor"), lines, width: svg.getBoundingClientRect().width, painted: svg.querySelectorAll("path").length,
    };
  }
  return charts;
})()`

type drawnChart struct {
	Marks, Anchors int
	Lines          []int // vertices of each line
	Width          float64
	Painted        int
}

// overflowScript finds what reaches over the window's edge, tables and charts that have to be
// scrolled, text that its chart cuts off, and text that overlaps other text of its chart.
const overflowScript = `(() => {
  const wide = document.documentElement.clientWidth + 0.5;
  const found = [];
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const el of document.querySelectorAll(".scroll")) {
    if (el.scrollWidth > el.clientWidth + 1) found.push("to be scrolled: " + el.scrollWidth + " of " + el.clientWidth + " " + el.getAttribute("aria-label"));
  }
  for (const svg of document.querySelectorAll(".chart svg")) {
    const texts = [...svg.querySelectorAll("text")].map((t) => ({ box: t.getBoundingClientRect(), words: t.textContent })).filter((t) => t.box.width > 0);
    texts.forEach((a, i) => texts.slice(i + 1).forEach((b) => {
      const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (across > 0.5 && down > 2.5) found.push("overprinted: " + a.words + " and " + b.words + " in " + svg.closest("[aria-label]").getAttribute("aria-label").slice(0, 60));
    }));
  }
  if (document.documentElement.scrollWidth > wide) found.push("the page: " + document.documentElement.scrollWidth);
  for (const el of document.body.querySelectorAll("*")) {
    const box = el.getBoundingClientRect();
    if (box.width === 0 || el.closest(".scroll") !== null && !el.matches(".scroll") || el.matches(".skip")) continue;
    if (box.right > wide || box.left < -0.5) found.push(el.tagName + "." + el.getAttribute("class") + " " + el.textContent.slice(0, 40) + ": " + box.left + " to " + box.right);
  }
  for (const el of document.querySelectorAll(".chart svg text")) {
    const box = el.getBoundingClientRect(), chart = el.closest("svg").getBoundingClientRect();
    if (chart.width === 0) continue; // that of the other width
    if (box.left < chart.left - 1 || box.right > chart.right + 1 || box.bottom > chart.bottom + 2) found.push("cut: " + el.textContent);
  }
  return found;
})()`

func drawTo(t *testing.T, dirs ...string) string {
	t.Helper()
	out := t.TempDir()
	if _, err := Draw(dirs, Options{Out: out, Formats: []string{"html"}, Papers: madeUp}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(out, "report.html")
}

// Every chart has what was measured, in wide windows and narrow ones, light and
// dark; nothing reaches over the edge, nothing is fetched, nothing goes wrong.
func TestPageInBrowser(t *testing.T) {
	b := browser.New(t)
	suite := drawTo(t, "testdata/suite")
	for _, tt := range []struct {
		name, path    string
		width, height int64
		dark          bool
	}{
		{"suite-1280", suite, 1280, 900, false},
		{"suite-360-dark", suite, 360, 740, true},
		{"run-360", drawTo(t, "testdata/suite/functions"), 360, 740, false},
		{"comparison-1280-dark", drawTo(t, "testdata/suite", "testdata/later"), 1280, 900, true},
		{"comparison-360", drawTo(t, "testdata/suite", "testdata/later"), 360, 740, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.Open(t, tt.path, tt.width, tt.height, tt.dark)
			var over []string
			b.Ask(t, overflowScript, &over)
			for _, what := range over {
				t.Errorf("reaches over the edge: %s", what)
			}
			var charts map[string]drawnChart
			b.Ask(t, drawnScript, &charts)
			if len(charts) == 0 {
				t.Error("no charts")
			}
			for id, c := range charts {
				if c.Painted < 3 || c.Width < 200 {
					t.Errorf("%s is empty: %+v", id, c)
				}
			}
			for _, what := range b.Deeds() {
				t.Error(what)
			}
			b.Picture(t, tt.name)
		})
	}
}

// Charts that are hard to draw are readable in both widths: names as long as sentences, rates close to
// each other, more lines than colours, others' figures beyond each edge.
func TestHardCharts(t *testing.T) {
	r := oneBar(100)
	for i := range 2 * mostLines {
		name := fmt.Sprintf("function %d of those that have a long name, at an interface", i)
		r.Measurements = append(r.Measurements, result.Measurement{Metric: "cost", Labels: result.Labels{"function": name}, Unit: "ns", Samples: []float64{1e6, 2e6, 1.5e6}})
		for _, rate := range []string{"1000", "1060", "1120", "1180", "1250", "1320", "1400", "2000", "123456789"} {
			r.Measurements = append(r.Measurements, result.Measurement{
				Metric: "rate", Labels: result.Labels{"function": name[:20], "rate": rate}, Unit: "packets/s", Samples: []float64{float64(1000 + i)},
			})
		}
	}
	lines := result.Figure{ID: "lines", Title: "Lines", Kind: result.Lines, Metric: "rate", X: "rate", Series: "function", Anchors: []result.Anchor{
		{Label: "a", X: "20", Y: 1000, Unit: "packets/s"}, {Label: "b", X: "20", Y: 1000, Unit: "packets/s"}, {Label: "c", Y: 9e9, Unit: "packets/s"}, {Label: "d", X: "9000000000", Y: 1000, Unit: "packets/s"},
	}}
	logarithmic := lines
	logarithmic.ID, logarithmic.LogX = "logarithmic", true
	r.Figures = append(r.Figures, lines, logarithmic)
	b := browser.New(t)
	page := drawTo(t, store(t, r))
	for _, width := range []int64{1280, 360} {
		b.Open(t, page, width, 900, false)
		var over []string
		b.Ask(t, overflowScript, &over)
		for _, what := range over {
			t.Errorf("%d wide: %s", width, what)
		}
		b.Picture(t, fmt.Sprintf("hard-%d", width))
	}
}

// What is on the screen is what was measured: counted from the runs, with none
// of the report's own code between.
func TestChartsHaveTheirData(t *testing.T) {
	b := browser.New(t)
	for _, width := range []int64{1280, 360} {
		b.Open(t, drawTo(t, "testdata/suite"), width, 900, false)
		var charts map[string]drawnChart
		b.Ask(t, drawnScript, &charts)
		for _, name := range []string{"functions", "slices"} {
			run, err := result.Read("testdata/suite/" + name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range run.Figures {
				c, there := charts["chart-"+name+"-"+f.ID]
				if marks, lines := measured(run, f); marks+lines == 0 {
					if there {
						t.Errorf("%s: there is a chart of nothing", f.ID)
					}
				} else if !there {
					t.Errorf("%s: there is no chart", f.ID)
				} else {
					checkDrawn(t, f, c, marks, lines)
				}
			}
		}
	}
}

// measured is how many marks a figure of a run must have, or for a density
// how many lines.
func measured(run *result.Run, f result.Figure) (marks, lines int) {
	for _, m := range run.Select(f.Metric, f.Where) {
		filled := m.Histogram != nil && m.Histogram.Total() > 0
		switch {
		case f.Kind == result.Percentiles && filled:
			marks += 5
		case f.Kind == result.Density && filled:
			lines++
		case (f.Kind == result.Bars || f.Kind == result.Lines) && len(m.Samples) > 0:
			marks++
		}
	}
	return marks, lines
}

func checkDrawn(t *testing.T, f result.Figure, c drawnChart, marks, lines int) {
	t.Helper()
	if c.Marks != marks {
		t.Errorf("%s: %d marks are drawn, %d were measured", f.ID, c.Marks, marks)
	}
	long := 0
	for _, vertices := range c.Lines {
		if vertices > 20 {
			long++
		}
	}
	if lines > 0 && long != lines {
		t.Errorf("%s: %d lines are drawn, %d were measured: %v", f.ID, long, lines, c.Lines)
	}
	want := 0
	for _, a := range f.Anchors {
		if a.X != "" && a.Unit == "packets/s" {
			want++
		}
	}
	if c.Anchors != want {
		t.Errorf("%s: %d figures of others are drawn, want %d", f.ID, c.Anchors, want)
	}
}

// Bars on a logarithmic axis begin at its end, not at 1.
func TestBarsOnLogarithms(t *testing.T) {
	r := oneBar(0.5)
	r.Figures[0].LogY = true
	r.Measurements = append(r.Measurements, result.Measurement{Metric: "cost", Labels: result.Labels{"function": "other"}, Unit: "ns", Samples: []float64{300}})
	b := browser.New(t)
	b.Open(t, drawTo(t, store(t, r)), 1440, 900, false)
	var left []float64
	b.Ask(t, `(() => {
  return [...document.querySelectorAll("#one .s0 path")].filter((p) => p.getBoundingClientRect().width > 0 && !p.getAttribute("style").includes("fill:none")).map((p) => p.getBoundingClientRect().x);
})()`, &left)
	if len(left) != 2 || math.Abs(left[0]-left[1]) > 0.5 {
		t.Errorf("the bars begin at %v", left)
	}
}

// A button hides a series and shows it again; the theme changes; the printed page
// is white and has every row.
func TestPageIsUsed(t *testing.T) {
	b := browser.New(t)
	b.Open(t, drawTo(t, "testdata/suite", "testdata/later"), 1440, 900, true)
	shown := func() (n int) {
		b.Ask(t, `[...document.querySelectorAll("#tunnels .s0 path")].filter((p) => p.getClientRects().length > 0).length`, &n)
		return n
	}
	press := `(() => { const b = document.querySelector("#tunnels .key"); b.focus(); b.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"})); return b.getAttribute("aria-pressed") })()`
	before, pressed := shown(), ""
	b.Ask(t, press, &pressed)
	if pressed != "false" {
		t.Errorf("the button says pressed=%s", pressed)
	}
	keyAlone := shown()
	if keyAlone >= before || keyAlone == 0 {
		t.Errorf("of %d parts %d are left: want the legend's only", before, keyAlone)
	}
	ground := func() (colour string) {
		b.Ask(t, `getComputedStyle(document.body).backgroundColor + getComputedStyle(document.querySelector("#tunnels svg path")).fill`, &colour)
		return colour
	}
	dark := ground()
	var ignored any
	b.Ask(t, `document.getElementById("theme").click()`, &ignored)
	if light := ground(); light == dark {
		t.Errorf("the theme stays %s", light)
	}
	if shown() != keyAlone {
		t.Error("the series came back with the theme")
	}
	b.Ask(t, press, &pressed)
	if now := shown(); pressed != "true" || now != before {
		t.Errorf("the series did not come back: %d of %d", now, before)
	}
	var closed int
	b.Ask(t, `(() => { dispatchEvent(new Event("beforeprint")); return document.querySelectorAll("details:not([open])").length })()`, &closed)
	if white := ground(); closed != 0 || white != "rgb(255, 255, 255)rgb(255, 255, 255)" {
		t.Errorf("on paper %d tables are folded, the ground is %s", closed, white)
	}
	b.Ask(t, `dispatchEvent(new Event("afterprint"))`, &ignored)
	var paper []byte
	err := chromedp.Run(b.Ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		paper, _, err = cdpage.PrintToPDF().Do(ctx)
		return err
	}))
	if err != nil || len(paper) < 20_000 {
		t.Errorf("printed: %d octets, %v", len(paper), err)
	}
	for _, what := range b.Deeds() {
		t.Error(what)
	}
}

// Text reads well on its ground in both themes (WCAG AA), and colours of series
// stand out from it (3:1).
func TestContrast(t *testing.T) {
	for _, ground := range []string{"ffffff", "12161c"} {
		if !strings.Contains(pageStyle, "--ground: #"+ground) {
			t.Fatalf("the page has no ground #%s", ground)
		}
		for _, c := range colours {
			if got := contrast(fmt.Sprintf("%02x%02x%02x", c.R, c.G, c.B), ground); got < 2.95 {
				t.Errorf("%v on #%s: %.2f", c, ground, got)
			}
		}
	}
	for _, pair := range [][2]string{{"1b222c", "ffffff"}, {"5a6675", "ffffff"}, {"5a6675", "f5f7f9"}, {"8a4b00", "fff4df"}, {"e6eaef", "12161c"}, {"9aa6b4", "12161c"}, {"ffcf8a", "2c2213"}, {"86b7f0", "12161c"}, {"1f5fae", "ffffff"}} {
		if !strings.Contains(pageStyle, "#"+pair[0]) || !strings.Contains(pageStyle, "#"+pair[1]) {
			t.Errorf("%v are not the page's colours", pair)
		}
		if got := contrast(pair[0], pair[1]); got < 4.5 {
			t.Errorf("#%s on #%s: %.2f", pair[0], pair[1], got)
		}
	}
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) float64 {
	var r, g, b int
	if _, err := fmt.Sscanf(hex, "%02x%02x%02x", &r, &g, &b); err != nil {
		return math.NaN()
	}
	linear := func(v int) float64 {
		c := float64(v) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}
