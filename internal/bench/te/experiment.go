package te

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Experiment is methods on graphs.
type Experiment struct {
	Graphs  []string `json:"graphs"`
	Methods []string `json:"methods"`
}

// Kind is the kind "te".
var Kind = experiment.Kind{Name: "te", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &Experiment{Graphs: usual(), Methods: Methods()}
}}

// usual are the graphs of a run: all but the one on which CSPF takes half an hour.
func usual() []string {
	return slices.DeleteFunc(Graphs(), func(name string) bool { return name == "n500-all" })
}

// The metrics: the largest utilisation with the optimum (or its bound) beside it, what a method proves that the
// optimum is not below, and how long it takes.
const (
	metricUtilisation = "max_utilisation"
	metricBound       = "bound"
	metricTime        = "time"
)

// Flags offers the parameters.
func (e *Experiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Graphs, "graphs", e.Graphs, "`graphs` to compute on")
	f.StringSliceVar(&e.Methods, "methods", e.Methods, "`methods` to compare")
}

// Quick leaves the large graphs out.
func (e *Experiment) Quick() { e.Graphs = e.Graphs[:min(4, len(e.Graphs))] }

// CPUs are those that it measures on.
func (e *Experiment) CPUs(chosen int) ([]int, error) { return proc.One(chosen) }

// Validate says what is wrong with the parameters.
func (e *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Chosen(want, "graphs", e.Graphs, Graphs())
	experiment.Chosen(want, "methods", e.Methods, Methods())
	return experiment.Check(list)
}

// Plan is each method on each graph.
func (e *Experiment) Plan() (experiment.Plan, error) {
	var plan experiment.Plan
	for _, name := range e.Graphs {
		n, err := load(name)
		if err != nil {
			return plan, err
		}
		for _, method := range e.Methods {
			p := experiment.Point{ID: method + " on " + name, Takes: time.Millisecond}
			if pairs := time.Duration(len(n.demands)); method == "culvert" || method == "cspf" {
				p.Takes = pairs * time.Duration(len(n.topology.Links)) * 700 * time.Nanosecond
			}
			plan.Points = append(plan.Points, p)
		}
	}
	return plan, nil
}

// Open makes the graphs.
func (e *Experiment) Open(context.Context, experiment.Setting) (experiment.Bench, error) {
	b := &bench{of: map[string]point{}}
	for _, name := range e.Graphs {
		n, err := load(name)
		if err != nil {
			return nil, err
		}
		for _, method := range e.Methods {
			b.of[method+" on "+name] = point{n, method}
		}
	}
	return b, nil
}

// bench computes.
type bench struct{ of map[string]point }

// point is a method on a graph.
type point struct {
	network
	method string
}

func (p point) labels() result.Labels {
	return result.Labels{"graph": p.name, "method": p.method, "nodes": strconv.Itoa(len(p.topology.Nodes))}
}

// Environment has nothing to say beyond the machine.
func (b *bench) Environment(context.Context) (result.Environment, error) {
	return result.Environment{}, nil
}

// Measure computes once.
func (b *bench) Measure(ctx context.Context, p experiment.Point, _ int) ([]experiment.Sample, error) {
	of, began := b.of[p.ID], time.Now()
	out, err := methods[of.method](ctx, of.network)
	if err != nil {
		return nil, err
	}
	best := of.best.value()
	samples := []experiment.Sample{
		{Metric: metricUtilisation, Labels: of.labels(), Unit: "ratio", Value: out.utilisation, Baseline: &best},
		{Metric: metricTime, Labels: of.labels(), Unit: "s", Value: time.Since(began).Seconds()},
	}
	if out.bound > 0 {
		samples = append(samples, experiment.Sample{Metric: metricBound, Labels: of.labels(), Unit: "ratio", Value: out.bound})
	}
	return samples, nil
}

// Close has nothing to remove.
func (b *bench) Close() error { return nil }

// Figures show what is measured.
func (e *Experiment) Figures() []result.Figure {
	return []result.Figure{
		{
			ID: "te_quality", Title: "The fullest link, beside the optimum", Kind: result.Bars, Metric: metricUtilisation, X: "graph", Series: "method", Value: result.ToBaseline,
			LogY: true, XTitle: "graph", YTitle: "largest utilisation by the optimum's",
			Caption:  "1 is the smallest largest utilisation that segment lists with one waypoint can have, by a solver of linear programs, or with 500 nodes a bound of it. CSPF places demand by demand on any path, and may be below 1.",
			Headline: "times the optimum's largest utilisation",
		},
		{
			ID: "te_time", Title: "How long a plan takes", Kind: result.Lines, Metric: metricTime, X: "nodes", Series: "method", LogX: true, LogY: true,
			XTitle: "nodes", YTitle: "time on one core", Caption: "All pairs of nodes have a demand; with 100 nodes and more the 3,000 largest.",
		},
	}
}

// Claims say whether the goals are met.
func (e *Experiment) Claims(run *result.Run) (claims []string) {
	all := slices.DeleteFunc(rows(run), func(r row) bool { return r.Method != "culvert" })
	for _, goal := range []struct {
		most  int
		ratio float64
	}{{30, 1.02}, {50, 1.05}} {
		worst, of := 0.0, ""
		for _, r := range all {
			if r.Nodes <= goal.most && r.Ratio > worst {
				worst, of = r.Ratio, r.Graph
			}
		}
		if of != "" {
			claims = append(claims, fmt.Sprintf("Up to %d nodes the fullest link is at most %.3f times as full as the optimum's (%s); the goal is %.2f.", goal.most, worst, of, goal.ratio))
		}
	}
	for _, r := range all {
		if goal := map[int]int{50: 5, 500: 60}[r.Nodes]; goal > 0 {
			claims = append(claims, fmt.Sprintf("%s, with %d nodes, %d directions of links and %d demands, takes %.3g s; the goal is %d s.", r.Graph, r.Nodes, r.Links, r.Demands, r.Seconds, goal))
		}
	}
	return claims
}

// Report is what `culvert bench te -o json` prints.
type Report struct {
	Bench string `json:"bench"`
	Rows  []row  `json:"rows"`
	// OptimaCommand is what the optima were made with.
	OptimaCommand string             `json:"optima_command"`
	Environment   result.Environment `json:"environment"`
}

// row is a method on a graph.
type row struct {
	Graph          string  `json:"graph"`
	Nodes          int     `json:"nodes"`
	Links          int     `json:"links"` // directions
	Demands        int     `json:"demands"`
	Method         string  `json:"method"`
	MaxUtilisation float64 `json:"max_utilisation"`
	// Optimum is left out where solvers fail.
	Optimum float64 `json:"optimum,omitempty"`
	// Bound is what the optimum is not below: as the method proves, or else as By has proven. 0: nobody has.
	Bound   float64 `json:"bound,omitempty"`
	By      string  `json:"by"`    // whose optimum, or else whose bound
	Ratio   float64 `json:"ratio"` // to the optimum, or else to the bound
	Seconds float64 `json:"seconds"`
}

// rows are what a run has measured.
func rows(run *result.Run) (list []row) {
	for _, name := range Graphs() {
		if len(run.Select(metricTime, result.Labels{"graph": name})) == 0 {
			continue // not measured
		}
		n, err := load(name)
		if err != nil {
			panic(err) // it is one of them
		}
		for _, method := range Methods() {
			labels := point{n, method}.labels()
			u, took := run.Select(metricUtilisation, labels), run.Select(metricTime, labels)
			if len(u) == 0 || len(took) == 0 {
				continue // not measured
			}
			bound := n.best.Bound
			if b := run.Select(metricBound, labels); len(b) > 0 {
				bound = stats.Median(b[0].Samples)
			}
			list = append(list, row{
				Bound: bound, Graph: name, Nodes: len(n.topology.Nodes), Links: len(n.topology.Links), Demands: len(n.demands), Method: method,
				MaxUtilisation: stats.Median(u[0].Samples), Optimum: n.best.Optimum, By: n.best.By, Ratio: u[0].Estimate(result.ToBaseline).Value, Seconds: stats.Median(took[0].Samples),
			})
		}
	}
	return list
}

// PrintJSON writes the rows.
func PrintJSON(w io.Writer, _ *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, Report{Bench: "te", Rows: rows(run), OptimaCommand: optimaCommand, Environment: run.Environment})
}

// PrintTable writes the rows for people.
func PrintTable(w io.Writer, _ *experiment.File, run *result.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "graph\tnodes\tlinks\tdemands\tmethod\tfullest link\toptimum\tratio\ttime\toptimum by")
	for _, r := range rows(run) {
		best := fmt.Sprintf("%.1f %%", 100*r.Optimum)
		if r.Optimum == 0 {
			best = fmt.Sprintf(">= %.1f %%", 100*r.Bound)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%.1f %%\t%s\t%.3f\t%.3g s\t%s\n", r.Graph, r.Nodes, r.Links, r.Demands, r.Method, 100*r.MaxUtilisation, best, r.Ratio, r.Seconds, r.By)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range run.Claims {
		fmt.Fprintln(w, c)
	}
	_, err := fmt.Fprintln(w, run.Environment)
	return err
}
