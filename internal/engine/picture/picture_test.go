package picture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/engine/simulate"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/generate"
	"github.com/culvert-net/culvert/internal/testutil/browser"
)

// example is the network of examples, and its plan.
func example(t *testing.T) (te.Network, *engine.Plan) {
	t.Helper()
	file, err := netfile.Load("../../../examples/te/network.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := file.Values()
	p, err := engine.Compute(t.Context(), n, engine.Options{Target: 0.8})
	if err != nil {
		t.Fatal(err)
	}
	return n, p
}

func written(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// stored is the path of a page as a file.
func stored(t *testing.T, p Page) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(written(t, p)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// renamed is a network in which a node has another name.
func renamed(n te.Network, from, to string) te.Network {
	name := func(s string) string {
		if s == from {
			return to
		}
		return s
	}
	var out te.Network
	for _, v := range n.Topology.Nodes {
		v.Name = name(v.Name)
		out.Topology.Nodes = append(out.Topology.Nodes, v)
	}
	for _, l := range n.Topology.Links {
		l.From, l.To = name(l.From), name(l.To)
		out.Topology.Links = append(out.Topology.Links, l)
	}
	for _, d := range n.Demands {
		d.Headend, d.Endpoint = name(d.Headend), name(d.Endpoint)
		out.Demands = append(out.Demands, d)
	}
	return out
}

const evil = `</script><script>document.title="harm"</script><img src=x onerror="document.title='harm'">"'&`

// Routers say their names, and anybody may say a problem: neither becomes markup.
func TestNamesAreText(t *testing.T) {
	n, _ := example(t)
	n = renamed(n, "r1", evil)
	p, err := engine.Compute(t.Context(), n, engine.Options{Target: 0.8})
	if err != nil {
		t.Fatal(err)
	}
	var h History
	for i := range 3 {
		h.Add(Seen{At: time.Unix(int64(i), 0), Network: n, Events: []string{evil}})
	}
	live := h.Page(evil)
	live.Problem, live.Facts = evil, [][2]string{{evil, evil}}
	b := browser.New(t)
	for name, page := range map[string]Page{"plan": OfPlan(evil, n, p, 0.8, nil), "history": live} {
		if text := written(t, page); strings.Contains(text, `<script>document`) || strings.Contains(text, "<img") {
			t.Errorf("%s: a name is markup", name)
		}
		b.Open(t, stored(t, page), 1100, 900, false)
		var title, label string
		b.Ask(t, `document.title`, &title)
		b.Ask(t, `(() => { const d = document.getElementById("demand"); d.value = "0"; d.dispatchEvent(new Event("input")); return document.getElementById("of").textContent })()`, &label)
		if title != evil || !strings.HasPrefix(label, evil) {
			t.Errorf("%s: the title is %q, and the first demand is %q", name, title, label)
		}
		for _, what := range b.Deeds() {
			t.Errorf("%s: %s", name, what)
		}
	}
}

// lookScript finds texts that overlap, what reaches over the window's edge outside of what
// scrolls, and counts what is drawn.
const lookScript = `(() => {
  const found = [], wide = document.documentElement.clientWidth + 0.5;
  const boxes = [...document.querySelectorAll("svg.graph .used, svg.graph .node text")].filter((e) => e.textContent !== "").map((e) => [e.textContent, e.getBoundingClientRect()]);
  boxes.forEach(([a, x], i) => boxes.slice(i + 1).forEach(([b, y]) => {
    if (Math.min(x.right, y.right) - Math.max(x.left, y.left) > 1 && Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top) > 1) found.push(a + " overlaps " + b);
  }));
  if (document.documentElement.scrollWidth > wide) found.push("the page is " + document.documentElement.scrollWidth + " wide");
  for (const el of document.querySelectorAll("svg text")) {
    const box = el.getBoundingClientRect(), svg = el.closest("svg").getBoundingClientRect();
    if (el.textContent !== "" && (box.left < svg.left - 1 || box.right > svg.right + 1 || box.top < svg.top - 1 || box.bottom > svg.bottom + 1)) found.push("cut: " + el.textContent);
  }
  return found;
})()`

// run is a history: of 40 rounds a plan is applied after 20, and a link fails after 30.
func run(t *testing.T) *History {
	t.Helper()
	n, p := example(t)
	h, begin := &History{}, time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for i := range 40 {
		s := Seen{At: begin.Add(time.Duration(i) * 10 * time.Second), Network: n, Target: 0.8, Every: 10 * time.Second}
		for j := range s.Network.Demands { // rates vary
			n.Demands[j].Rate *= 1 + 0.02*math.Sin(float64(i+j))
		}
		if i == 20 {
			s.Events = []string{"demand r1:r8 changes"}
		}
		if i >= 20 {
			s.Network.Routing = p.Routing
		}
		if i >= 30 {
			s.Network.Topology.Links = n.Topology.Links[2:] // without r1-r2
		}
		h.Add(s)
	}
	return h
}

// People read it in wide windows and narrow ones, light and dark.
func TestPageInBrowser(t *testing.T) {
	n, plan := example(t)
	failures, err := simulate.Failures(n.Topology, "all")
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := simulate.Run(t.Context(), n, failures, nil)
	if err != nil {
		t.Fatal(err)
	}
	ofPlan, live := stored(t, OfPlan("Traffic engineering: network.yaml", n, plan, 0.8, outcomes)), stored(t, run(t).Page("Traffic engineering"))
	b := browser.New(t)
	for _, tt := range []struct {
		name, path    string
		width, height int64
		dark          bool
	}{{"plan-1100", ofPlan, 1100, 900, false}, {"plan-390-dark", ofPlan, 390, 844, true}, {"live-1100-dark", live, 1100, 900, true}, {"live-1100", live, 1100, 900, false}} {
		b.Open(t, tt.path, tt.width, tt.height, tt.dark)
		var found []string
		b.Ask(t, lookScript, &found)
		for _, what := range append(found, b.Deeds()...) {
			t.Errorf("%s: %s", tt.name, what)
		}
		b.Picture(t, tt.name)
	}
	// At the first frame all of r1:r8 goes by r1-r2; then by other lists, and r1-r2 is gone.
	var got struct {
		First, Last map[string]string
		Hash        string
		Paths       int
	}
	b.Ask(t, `(() => {
  const set = (id, v) => { const el = document.getElementById(id); el.value = v; el.dispatchEvent(new Event("input")); };
  const look = () => ({ title: document.querySelector("#l0 title").textContent, class: document.querySelector("#l0").getAttribute("class"), when: document.getElementById("when").textContent });
  set("demand", "0"); set("frame", "0");
  const first = look();
  set("frame", document.getElementById("frame").max);
  return { First: first, Last: look(), Hash: location.hash, Paths: document.querySelectorAll("#paths tbody tr").length };
})()`, &got)
	if !strings.Contains(got.First["title"], "100 % of the demand") || got.First["when"] != "12:00:00" || strings.Contains(got.First["class"], "off") {
		t.Errorf("at first: %v", got.First)
	}
	if !strings.Contains(got.Last["title"], "not there") || got.Last["class"] != "link u-1 off" || got.Last["when"] != "12:06:30" || got.Hash != "#demand=r1%3Ar8" || got.Paths != 2 {
		t.Errorf("at last: %+v", got)
	}
}

func TestHistory(t *testing.T) {
	p := run(t).Page("x")
	if len(p.Frames) != 40 || len(p.Links) != 22 || len(p.Nodes) != 8 || p.All != 5 {
		t.Fatalf("%d frames, %d links, %d nodes, %d demands", len(p.Frames), len(p.Links), len(p.Nodes), p.All)
	}
	if u := p.Frames[0].Used[0]; u < 1.2 || u > 1.4 {
		t.Errorf("r1-r2 is %.2f full at first: want 1.3", u)
	}
	if u := p.Frames[39].Used[0]; u != -1 {
		t.Errorf("r1-r2 has gone, and is %.2f full", u)
	}
	var words []string
	for _, e := range p.Events {
		words = append(words, e.At.Format(time.TimeOnly)+" "+e.What)
	}
	if got, want := strings.Join(words, "; "), "12:03:20 demand r1:r8 changes; 12:05:00 link r1-r2 has gone"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	d := p.Demands[0]
	var froms []int
	for _, v := range d.Paths {
		froms = append(froms, v.From)
	}
	if d.Name() != "r1:r8" || fmt.Sprint(froms) != "[0 20]" || d.Paths[0].Lists != "the IGP's way" {
		t.Errorf("paths of %s from %v: %+v", d.Name(), froms, d.Paths)
	}
	// A round without a network, or of one that has no demand any more.
	var h History
	h.Add(Seen{At: time.Unix(1, 0), Events: []string{"problem: the file is missing"}})
	if text := written(t, h.Page("x")); !strings.Contains(text, "<h1>x</h1>") {
		t.Error("the page of an engine without a network has no title")
	}
}

// However long an engine runs, and however many links come and go, it holds a bounded history, and
// its page has a bounded size.
func TestHistoryIsBounded(t *testing.T) {
	topology, demands := generate.Make(generate.Parameters{Nodes: 200, Links: 1200, Seed: 1, Pairs: 1000})
	var h History
	for i := range 40 {
		n := te.Network{Topology: topology, Demands: demands, Routing: te.Routing{}}
		for _, d := range demands[:20] {
			n.Routing[d.Key] = []te.List{{Weight: 1, Waypoints: []te.Waypoint{{Node: topology.Nodes[i%len(topology.Nodes)].Name}}}}
		}
		h.Add(Seen{At: time.Unix(int64(i), 0), Network: n})
	}
	if size := len(written(t, h.Page("x"))); size > 2<<20 {
		t.Errorf("the page of 200 nodes and 1,200 links has %d octets", size)
	}
	n, _ := example(t)
	h = History{}
	for i := range mostRounds + 50 {
		link := te.Link{From: "r1", To: "r8", Name: fmt.Sprint(i), Metric: 1000, Capacity: 1e9}
		back := link
		back.From, back.To = "r8", "r1"
		s := Seen{At: time.Unix(int64(i), 0), Network: n, Events: []string{"x"}}
		s.Network.Topology.Links = append([]te.Link{link, back}, n.Topology.Links...)
		if i > 100 { // links with new names come for a while
			s.Network.Topology = n.Topology
		}
		h.Add(s)
	}
	if len(h.rounds) > mostRounds || len(h.links) > 300 || len(h.events) > mostEvents {
		t.Errorf("it holds %d rounds, %d links, %d events", len(h.rounds), len(h.links), len(h.events))
	}
	p := h.Page("x")
	if len(p.Frames) > mostFrames || p.Frames[len(p.Frames)-1].At != time.Unix(mostRounds+49, 0) {
		t.Errorf("%d frames, the last of %v", len(p.Frames), p.Frames[len(p.Frames)-1].At)
	}
	for _, d := range p.Demands {
		for i, v := range d.Paths {
			if v.From < 0 || v.From >= len(p.Frames) || i > 0 && v.From <= d.Paths[i-1].From {
				t.Fatalf("paths of %s from %+v", d.Name(), d.Paths)
			}
		}
	}
}

// The script's data is what the page shows.
func TestData(t *testing.T) {
	n, plan := example(t)
	text := written(t, OfPlan("x", n, plan, 0.8, nil))
	_, rest, _ := strings.Cut(text, `type="application/json">`)
	rest, _, _ = strings.Cut(rest, "</script>")
	var data struct {
		Links, Frames []string
		Used          [][]int
		Demands       [][]struct{ Shares [][2]int }
	}
	if err := json.Unmarshal([]byte(rest), &data); err != nil {
		t.Fatal(err)
	}
	if len(data.Links) != 22 || fmt.Sprint(data.Frames) != "[now after step 1]" || data.Used[0][2] != 1800 || data.Used[1][2] != 719 || len(data.Demands) != 5 {
		t.Errorf("%+v", data)
	}
	sum := 0
	for _, s := range data.Demands[0][1].Shares { // what leaves r1
		if strings.HasPrefix(data.Links[s[0]], "r1-") {
			sum += s[1]
		}
	}
	if sum < 998 || sum > 1002 {
		t.Errorf("%d thousandths of r1:r8 leave r1", sum)
	}
}

// Nodes have places of their own, and linked ones are near each other.
func TestLayout(t *testing.T) {
	at := layout(6, [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}}) // a ring, and two alone
	for i, a := range at {
		for j, b := range at[:i] {
			if d := math.Hypot(a.x-b.x, a.y-b.y); d < 0.5 || math.IsNaN(d) {
				t.Errorf("nodes %d and %d are %v apart", i, j, d)
			}
		}
	}
	if got := layout(1, nil); got[0] != (position{}) {
		t.Errorf("one node is at %v", got)
	}
	if got := layout(0, nil); len(got) != 0 {
		t.Error("no nodes have places")
	}
}
