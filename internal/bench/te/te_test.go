package te

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/program"
)

var (
	update = flag.Bool("update", false, "write optima.json")
	solver = flag.String("solver", "", "program that prints a linear program's optimum and its own name")
)

// Each graph has the optimum of a solver. GLPK finds the same for those that it can do in time.
func TestOptima(t *testing.T) {
	all := map[string]best{}
	for _, p := range parameters {
		name := p.name
		if p.unsolved {
			all[name] = prove(t, name)
			continue
		}
		n, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".lp")
		if *update || len(n.topology.Nodes) <= 12 {
			if err := os.WriteFile(file, program.Text(graph.New(n.topology, graph.Without{}), n.demands), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if *update {
			all[name] = solve(t, file)
			continue
		}
		if n.best.Optimum <= 0 || n.best.By == "" {
			t.Errorf("%s has no optimum", name)
		}
		if len(n.topology.Nodes) <= 12 {
			if u := glpk(t, file); math.Abs(u/n.best.Optimum-1) > 1e-4 {
				t.Errorf("%s: GLPK finds %v, and %s %v", name, u, n.best.By, n.best.Optimum)
			}
		}
	}
	if *update {
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("optima.json", append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// prove wants a bound of a graph that solvers cannot do, or finds it.
func prove(t *testing.T, name string) best {
	t.Helper()
	if !*update {
		if b := optima[name]; b.Optimum != 0 || b.Bound <= 0 || b.By != byPrices {
			t.Errorf("%s: %+v, want a bound", name, b)
		}
		return optima[name]
	}
	n, err := load(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := culvert(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return best{Bound: out.bound, By: byPrices}
}

func solve(t *testing.T, file string) (b best) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../..", *solver))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, file).Output()
	if err != nil {
		t.Fatalf("%s: %v", *solver, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // the solver's own come first
	number, by, _ := strings.Cut(lines[len(lines)-1], " ")
	if _, err := fmt.Sscan(number, &b.Optimum); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	b.By = by
	return b
}

func glpk(t *testing.T, file string) (u float64) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "glpsol", "--lp", file, "-o", file+".solution").CombinedOutput()
	if err != nil {
		t.Fatalf("glpsol (tools/need.sh test installs it): %v\n%s", err, out)
	}
	text, err := os.ReadFile(file + ".solution")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "Objective:  obj =")
	if _, err := fmt.Sscan(rest, &u); err != nil {
		t.Fatalf("glpsol's solution: %v\n%s", err, text)
	}
	return u
}

// The methods keep their places: nobody is below the optimum but CSPF, whose paths are freer, and
// the optimiser is near it.
func TestMethods(t *testing.T) {
	for _, name := range []string{"n8", "n12", "n16"} {
		n, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		u := map[string]float64{}
		for _, method := range Methods() {
			out, err := methods[method](t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			u[method] = out.utilisation
		}
		best := n.best.Optimum
		if u["ecmp"] < best || u["igp"] < best || u["cspf"] > u["igp"] {
			t.Errorf("%s: %v, and the optimum is %v", name, u, best)
		}
	}
}

// The optimiser is at most 1.02 times the optimum up to 30 nodes, and at most 1.05 times its
// bound with 50; nothing is below the optimum, and no bound above it.
func TestGoals(t *testing.T) {
	for _, p := range parameters {
		name, nodes := p.name, p.of.Nodes
		if nodes > 50 {
			continue // the benchmark shows them
		}
		n, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		best := n.best.Optimum
		out, err := culvert(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if out.utilisation < best*(1-1e-6) || out.bound > best*(1+1e-6) {
			t.Errorf("%s: %v, the bound is %v, and the optimum %v", name, out.utilisation, out.bound, best)
		}
		if nodes <= 30 && out.utilisation > 1.02*best || out.utilisation > 1.05*out.bound {
			t.Errorf("%s: %v is %.3f of the optimum, and %.3f of the bound", name, out.utilisation, out.utilisation/best, out.utilisation/out.bound)
		}
	}
}

func TestRows(t *testing.T) {
	e := Kind.New().(*Experiment)
	e.Quick()
	b, err := e.Open(t.Context(), experiment.Setting{})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := e.Plan()
	if err != nil || len(plan.Points) != 16 {
		t.Fatalf("%+v, %v", plan, err)
	}
	run := &result.Run{}
	for _, p := range plan.Points[:4] {
		samples, err := b.Measure(t.Context(), p, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			m := result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit, Samples: []float64{s.Value}}
			if s.Baseline != nil {
				m.Baseline = []float64{*s.Baseline}
			}
			run.Measurements = append(run.Measurements, m)
		}
	}
	list := rows(run)
	if len(list) != 4 || list[3].Method != "culvert" || list[3].Ratio < 1 || list[3].Ratio > 1.02 || list[3].Bound <= 0 || list[3].Bound > list[3].Optimum || list[0].Demands != 56 || list[0].Seconds <= 0 {
		t.Errorf("%+v", list)
	}
	if claims := e.Claims(run); len(claims) != 2 || !strings.Contains(claims[0], "the goal is 1.02") {
		t.Errorf("%q", claims)
	}
	e.Graphs = []string{"n9"}
	if err := e.Validate(); err == nil || !strings.Contains(err.Error(), `there is no "n9"`) {
		t.Error(err)
	}
}

// A graph that solvers cannot do has a bound in the place of the optimum, and says whose.
func TestRowsOfABound(t *testing.T) {
	n, err := load("n500")
	if err != nil {
		t.Fatal(err)
	}
	labels, bound := point{n, "culvert"}.labels(), n.best.Bound
	run := &result.Run{Measurements: []result.Measurement{
		{Metric: metricUtilisation, Labels: labels, Unit: "ratio", Samples: []float64{1.5 * bound}, Baseline: []float64{n.best.value()}},
		{Metric: metricTime, Labels: labels, Unit: "s", Samples: []float64{2.5}},
	}}
	list := rows(run)
	if len(list) != 1 || list[0].Optimum != 0 || list[0].Bound != bound || list[0].By != byPrices || math.Abs(list[0].Ratio-1.5) > 1e-9 {
		t.Fatalf("%+v", list)
	}
	text, err := json.Marshal(list[0])
	if err != nil || strings.Contains(string(text), "optimum") {
		t.Errorf("%s, %v", text, err)
	}
	if claims := new(Experiment).Claims(run); len(claims) != 1 || claims[0] != "n500, with 500 nodes, 3000 directions of links and 3000 demands, takes 2.5 s; the goal is 60 s." {
		t.Errorf("%q", claims)
	}
	var table strings.Builder
	if err := PrintTable(&table, nil, run); err != nil || !strings.Contains(table.String(), ">= 18.0 %  1.500  2.5 s  culvert te, by the prices of links") {
		t.Errorf("%s, %v", &table, err)
	}
}
