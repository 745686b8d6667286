package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/functions"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/scale"
)

// Every built-in experiment is sound, and those of the suite take less than 75 minutes.
func TestBuiltin(t *testing.T) {
	l := library()
	entries, err := files.ReadDir("experiments")
	if err != nil || len(entries) != len(l.Names) {
		t.Errorf("%d files, %d names: %v", len(entries), len(l.Names), err)
	}
	total := time.Duration(0)
	for _, name := range l.Names {
		f, err := l.Builtin(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plan, err := f.With.Plan()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if slices.Contains(l.Suite, name) {
			total += plan.Takes(f.Rounds)
		}
		ids := map[string]bool{}
		for _, p := range plan.Points {
			if ids[p.ID] {
				t.Errorf("%s: two points %q", name, p.ID)
			}
			ids[p.ID] = true
		}
		run := result.Run{Version: result.Version, Figures: f.With.Figures()}
		if err := run.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, figure := range run.Figures {
			if figure.Caption == "" {
				t.Errorf("%s: figure %s has no caption", name, figure.ID)
			}
		}
		if f.Name != name || f.Summary == "" {
			t.Errorf("%s.yaml has name %q and summary %q", name, f.Name, f.Summary)
		}
	}
	if total >= 75*time.Minute {
		t.Errorf("the suite takes %s", total)
	}
}

// Who reads how long make bench takes reads the same everywhere, and of which experiments it is.
func TestSuiteIsDescribed(t *testing.T) {
	l := library()
	var sum time.Duration
	var names []string
	for _, name := range l.Suite {
		f, err := l.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := f.With.Plan()
		if err != nil {
			t.Fatal(err)
		}
		sum += plan.Takes(f.Rounds)
		names = append(names, "`"+name+"`")
	}
	last := len(names) - 1
	for file, want := range map[string][]string{
		"../../Makefile":  {"bench: ## experiments of all four papers and more, with one report, in an hour and a half;"},
		"../../README.md": {"`make bench` takes an hour and a half."}, "../../CONTRIBUTING.md": {"with one report, in an hour and a half;"},
		"../../docs/results/README.md": {"in an hour and a half:"}, "../../docs/results/others.md": {"# an hour and a half;"},
		"../../docs/how-to/measure.md": {"an hour and a half on two cores", strings.Join(names[:last], ", ") + " and " + names[last] + ":",
			fmt.Sprintf("take %.0f minutes together", sum.Minutes())},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		flat := strings.Join(strings.Fields(string(text)), " ")
		for _, words := range want {
			if !strings.Contains(flat, words) {
				t.Errorf("%s does not say %q", file, words)
			}
		}
	}
}

// What a flag or a field says wrong is named, with what to write.
func TestExperimentsRefuse(t *testing.T) {
	for _, c := range []struct{ kind, with, says string }{
		{"functions", "{entries: [0]}", "line 4: with.entries[0]: 0 is out of range (fix: 1 to 4194304)"},
		{"functions", "{entries: []}", "with.entries: there is none"},
		{"functions", "{functions: [end, end_dt5]}", `with.functions[1]: there is no "end_dt5" (fix: some of l2_forward, end,`},
		{"functions", "{sizes: [1441]}", "with.sizes[0]: 1441 is out of range (fix: 26 to 1440 octets)"},
		{"functions", "{sizes: []}", "with.sizes: there is none"},
		{"functions", "{packets: 10}", "with.packets: 10 is out of range (fix: 1024 to 16777216)"},
		{"functions", "{traffic: {functions: [end_dx2]}}", `with.traffic.functions[0]: there is no "end_dx2"`},
		{"functions", "{traffic: {runs: 1, trial: 1ms}}", "with.traffic: 1 runs of 1ms make no sense"},
		{"scale", "{sessions: [3000000]}", "with.sessions[0]: 3000000 is out of range (fix: 1 to 2000000)"},
		{"scale", "{rules: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}", "with.rules: there are 14 (fix: 13 numbers at most)"},
		{"scale", "{of: [session]}", `with.of[0]: there is no "session" (fix: some of sessions, tunnels,`},
		{"scale", "{segments: [9]}", "with.segments[0]: 9 is out of range"},
		{"overlay", "{variants: [flat, gre]}", `line 4: with.variants[1]: there is no "gre" (fix: give some of flat, srv6,`},
		{"overlay", "{nodes: [1]}", "line 4: with.nodes[0]: 1 is out of range (fix: give 3 to 4000)"},
	} {
		text := "name: mine\nkind: " + c.kind + "\ntitle: mine\nwith: " + c.with + "\n"
		if _, err := experiment.Parse([]byte(text), library().Kinds); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.with, err, c.says)
		}
	}
	for flags, says := range map[string]string{
		"functions --functions end_dt5":       `--functions: there is no "end_dt5" (fix: some of`,
		"functions --entries 0":               "--entries: 0 is out of range",
		"functions --entries 5000 --quick":    "--entries: there is none (fix: one number or more, at most 1000 with --quick)",
		"scaling -o yaml":                     "--output \"yaml\": give table or json",
		"scaling --entries 0":                 "--entries: 0 is out of range",
		"upf --quick --entries 5000":          "--entries: there is none (fix: one number or more, at most 1000 with --quick)",
		"upf --repeat -1":                     "--rounds -1: give 1 to",
		"upf --packets 1000":                  "--packets: 1000 is out of range (fix: 1024 to",
		"scaling --functions end,end_dt5":     `--functions: there is no "end_dt5" (fix: some of`,
		"functions -o yaml":                   "--output \"yaml\": give table or json",
		"functions --rounds -1":               "--rounds -1: give 1 to",
		"functions --packets 5":               "--packets: 5 is out of range",
		"functions --resume x --sizes 26":     "--resume goes on as the run was begun: leave out --sizes",
		"functions --resume x":                "x is no folder of a run that could be taken up again",
		"run functionz":                       `there is no experiment "functionz": built in are functions, slices`,
		"run ./nothing.yaml":                  "nothing.yaml: no such file",
		"list --show scales":                  `there is no experiment "scales"`,
		"suite --experiments functions,scael": `there is no experiment "scael"`,
	} {
		c := Command()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(strings.Fields(flags))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", flags, err, says)
		}
	}
}

// What list --show prints can be run, and list says what there is.
func TestList(t *testing.T) {
	say := func(args ...string) string {
		var out bytes.Buffer
		c := Command()
		c.SetOut(&out)
		c.SetArgs(args)
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	table := say("list")
	for _, name := range library().Names {
		if f, err := experiment.Parse([]byte(say("list", "--show", name)), library().Kinds); err != nil || f.Name != name {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(table, "\n"+name+" ") {
			t.Errorf("the list lacks %s:\n%s", name, table)
		}
	}
	var list []struct {
		Name    string
		Seconds int
	}
	if err := json.Unmarshal([]byte(say("list", "-o", "json")), &list); err != nil || len(list) != len(library().Names) || list[0].Seconds < 10 {
		t.Errorf("%v, %v", list, err)
	}
}

// A user's own experiment file runs from start to end, with traffic through the
// data path and a UPF: every packet is checked, and the report is drawn.
func TestQuickExperiment(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "run")
	for _, args := range [][]string{
		{"functions", "--quick", "--functions", "l2_forward,gtpu_encap,end_m_gtp4_e,uplink,downlink", "--entries", "10", "--rounds", "1", "--dir", dir, "--culvert", culvert},
		{"run", "--resume", dir, "--culvert", culvert}, // it is complete: nothing is measured
	} {
		var out, said bytes.Buffer
		c := Command()
		c.SetOut(&out)
		c.SetErr(&said)
		c.SetArgs(args)
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, said.String())
		}
	}
	run, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !run.Complete || len(run.Glossary) == 0 || run.Environment.DataPath == "" || run.Environment.MemoryMB == 0 {
		t.Errorf("%+v", run.Environment)
	}
	for metric, want := range map[string]int{cost.MetricPacket: 5, cost.MetricProgram: 5, cost.MetricFront: 5, cost.MetricKernel: 1, functions.MetricRate: 10, functions.MetricThroughput: 10, functions.MetricLoss: 10, functions.MetricLatency: 10} {
		list := run.Select(metric, nil)
		if len(list) != want {
			t.Errorf("%d measurements of %s, want %d", len(list), metric, want)
		}
		for _, m := range list {
			checkSamples(t, m)
		}
	}
	for _, file := range []string{"report.html", "experiment.yaml", "journal.jsonl", "figures/cost.png", "tables/cost.csv"} {
		if matches, err := filepath.Glob(filepath.Join(dir, file)); err != nil || len(matches) != 1 {
			t.Errorf("%s is not in the folder", file)
		}
	}
	nothingLeft(t)
}

// checkSamples holds whatever else the machine does. A packet's cost is what a run
// takes less what it takes without packets, and a program's is measured less the
// front's: after a single round noise can be larger than such a difference. Under
// load a queue may overflow.
func checkSamples(t *testing.T, m result.Measurement) {
	t.Helper()
	e := m.Estimate(result.Plain)
	v, possible := e.Value, e.Value > 0
	switch m.Metric {
	case cost.MetricPacket, cost.MetricProgram, cost.MetricKernel:
		possible = true
	case cost.MetricFront:
		possible = v > 0 && m.Baseline[0] > 0
	case functions.MetricLoss:
		possible = v >= 0 && v < 1
	}
	if len(m.Samples) != 1 || m.Labels["function"] == "" || !e.Measured() || !possible {
		t.Errorf("%s of %v: %v beside %v", m.Metric, m.Labels, m.Samples, m.Baseline)
	}
}

// A run beside full tables measures each of its tables at each size. TestQuickScaleOfAll has the
// other tables, in make e2e.
func TestQuickScale(t *testing.T) {
	quickScale(t, map[string]int{"sessions": 4, "policies": 2})
}

// quickScale measures a packet's cost beside full tables, so many times for each.
func quickScale(t *testing.T, want map[string]int) {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	var said bytes.Buffer
	c := Command()
	c.SetOut(&said)
	c.SetErr(&said)
	c.SetArgs([]string{"scale", "--quick", "--rounds", "1", "--of", strings.Join(slices.Sorted(maps.Keys(want)), ","), "--dir", dir, "--culvert", culvert})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	run, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for of, n := range want {
		if list := run.Select(cost.MetricPacket, result.Labels{"of": of}); len(list) != n {
			t.Errorf("%d measurements of %s, want %d", len(list), of, n)
		}
	}
	if len(run.Select(scale.MetricN4, nil)) != 2 || len(run.Select(scale.MetricMemory, nil)) != 2 {
		t.Error("nothing of N4, or of memory")
	}
	nothingLeft(t)
}
