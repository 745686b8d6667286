package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/engine/simulate"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/change"
	"github.com/culvert-net/culvert/internal/te/graph"
)

func teCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "te",
		Short: "Traffic engineering: which segment lists keep links from filling up",
		Long: `Computes segment lists for a network: which demands take which way, so that the
fullest link is as little used as possible. FILE has the network: its nodes, links,
classes, demands, and the lists that are installed (docs/how-to/traffic-engineering.md).
Only run, with engine.apply in FILE, and withdraw change something.`,
	}
	topologyFlag(c)
	c.PersistentFlags().StringVar(&a.cluster.kubeconfig, "kubeconfig", "", "`file` with the cluster's address and credentials; as kubectl finds it, or those of this pod, unless set")
	c.AddCommand(build(a, teShow, tePlan, teExplain, teSimulate, teReport, teDemands, teRun, teStatus, teWithdraw)...)
	return c
}

// planFlags are of the commands that compute a plan.
type planFlags struct {
	target float64
	most   int
}

func (f *planFlags) add(c *cobra.Command) {
	c.Flags().Float64Var(&f.target, "target", 80, "utilisation in `percent` up to which nothing has to change")
	c.Flags().IntVar(&f.most, "changes", 20, "`number` of demands that may change")
}

// compute finds the plan.
func (f *planFlags) compute(c *cobra.Command, n te.Network) (*engine.Plan, error) {
	switch {
	case !(f.target >= 0 && f.target <= 100):
		return nil, cmdline.Usagef("--target: give 0 to 100")
	case f.most < 1:
		return nil, cmdline.Usagef("--changes: give 1 or more")
	}
	return engine.Compute(c.Context(), n, engine.Options{Target: f.target / 100, Most: f.most})
}

// linkRow is a link as `culvert te show` prints it.
type linkRow struct {
	engine.Link
	Metric uint32        `json:"metric"`
	Delay  netfile.Delay `json:"delay"`
}

func teShow(a *app) *cobra.Command {
	return a.printing(&cobra.Command{
		Use:   "show FILE",
		Short: "Show the links of a network, and how full demands make them",
		Args:  cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.network(c, args)
			if err != nil {
				return err
			}
			g := graph.New(n.Topology, graph.Without{})
			loads, flows := make([]float64, len(n.Topology.Links)), g.Flows()
			nowhere := 0
			for _, d := range n.Demands {
				if flows.Load(loads, d, n.Routing[d.Key]) == graph.Nowhere {
					nowhere++
				}
			}
			rows := make([]linkRow, 0, len(loads))
			for i, l := range n.Topology.Links {
				rows = append(rows, linkRow{engine.Link{Link: l.Direction(), Capacity: l.Capacity, Now: loads[i] / l.Capacity}, l.Metric, netfile.Delay(l.Delay)})
			}
			slices.SortStableFunc(rows, func(x, y linkRow) int { return cmp.Compare(y.Now, x.Now) })
			return a.print(c, rows, func(g *printer.Grid) {
				g.Line(fmt.Sprintf("%d nodes, %d directions of links, %d demands, %d of them without a path", len(n.Topology.Nodes), len(rows), len(n.Demands), nowhere))
				g.Gap()
				g.Row("LINK", "CAPACITY", "METRIC", "DELAY", "USED")
				for _, r := range rows {
					g.Row(r.Link.Link, netfile.Rate(r.Capacity), r.Metric, time.Duration(r.Delay), change.Percent(r.Now))
				}
			})
		},
	})
}

func tePlan(a *app) *cobra.Command {
	var f planFlags
	links := 10
	c := a.printing(&cobra.Command{
		Use:     "plan FILE",
		Short:   "Show which demands should change their lists, in which steps, and what that does",
		Example: "  culvert te plan network.yaml --target 70 --changes 5",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.network(c, args)
			if err != nil {
				return err
			}
			p, err := f.compute(c, n)
			if err != nil {
				return err
			}
			return a.print(c, p, func(g *printer.Grid) { planTable(g, p, links) })
		},
	})
	f.add(c)
	c.Flags().IntVar(&links, "links", links, "`number` of links in the table, the fullest first")
	return c
}

func planTable(g *printer.Grid, p *engine.Plan, links int) {
	g.Row("plan", p.Why)
	g.Row("fullest link", fmt.Sprintf("%s now, %s then; %s if all demands may change; %s is a bound for all lists of two segments",
		change.Percent(p.Now), change.Percent(p.Then), change.Percent(p.Best), change.Percent(p.Bound)))
	if p.Overload > 0 {
		g.Row("steps", fmt.Sprintf("%d; a link can fill to %s, because packets that lead nowhere get a path first", p.Steps, change.Percent(p.Overload)))
	} else if p.Steps > 0 {
		g.Row("steps", fmt.Sprintf("%d; in none a link gets fuller than now, then, or full", p.Steps))
	}
	for _, v := range p.Problems {
		g.Row("problem", fmt.Sprintf("%s: %s", v.Name(), v.Why))
	}
	if len(p.Moves) > 0 {
		g.Gap()
		g.Row("STEP", "DEMAND", "RATE", "NOW", "THEN", "LEAVES")
		for _, m := range p.Moves {
			g.Row(m.Step, m.Name(), netfile.Rate(m.Rate), m.Now, m.Then, m.Away)
		}
	}
	g.Gap()
	g.Row("LINK", "CAPACITY", "NOW", "THEN")
	for _, l := range p.Links[:min(max(links, 0), len(p.Links))] {
		g.Row(l.Link, netfile.Rate(l.Capacity), change.Percent(l.Now), change.Percent(l.Then))
	}
}

func teExplain(a *app) *cobra.Command {
	var f planFlags
	c := a.printing(&cobra.Command{
		Use:     "explain FILE HEADEND:ENDPOINT[:COLOR]",
		Short:   "Show why a demand goes where it goes: delay, bottleneck and price of its lists",
		Example: "  culvert te explain network.yaml r1:r8\n  culvert te explain network.yaml r1:r8:46 -o json",
		Args:    cmdline.Exactly(2, "the file of a network, and a demand"),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
			if len(args) != 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			n, err := netfile.Load(args[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, d := range n.Values().Demands {
				words = append(words, d.Name())
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.network(c, args)
			if err != nil {
				return err
			}
			key, err := demandOf(n, args[1])
			if err != nil {
				return err
			}
			p, err := f.compute(c, n)
			if err != nil {
				return err
			}
			e, err := p.Explain(n, key)
			if err != nil {
				return err
			}
			return a.print(c, e, func(g *printer.Grid) { explainTable(g, e) })
		},
	})
	f.add(c)
	return c
}

// demandOf is the demand that words name.
func demandOf(n te.Network, words string) (te.Key, error) {
	for _, d := range n.Demands {
		if d.Name() == words || d.Color == 0 && words == d.Name()+":0" {
			return d.Key, nil
		}
	}
	return te.Key{}, cmdline.Usagef("no demand is called %q: give HEADEND:ENDPOINT, and :COLOR where it is not 0", words)
}

func explainTable(g *printer.Grid, e *engine.Explanation) {
	rate := netfile.Rate(e.Rate).String()
	if e.Measured > 0 {
		rate = fmt.Sprintf("forecast to be %s; measured are %s", rate, netfile.Rate(e.Measured))
	}
	g.Row("demand", fmt.Sprintf("%s, %s", e.Name(), rate))
	g.Row("why", e.Why)
	for _, group := range e.Groups {
		g.Row("group", group)
	}
	if e.Standby != nil {
		g.Row("standby", e.Standby.String())
	}
	if r := e.Repair; r != nil {
		g.Row("repair", fmt.Sprintf("without %s: %s", r.Link, cmp.Or(r.List, "none, "+r.Why)))
	}
	for _, part := range []struct {
		title string
		lists []engine.ListReport
	}{{"NOW", e.Now}, {"THEN", e.Then}} {
		if len(part.lists) == 0 {
			continue
		}
		g.Gap()
		g.Row(part.title, "PART", "DELAY", "BOTTLENECK", "USED", "PRICE")
		for _, l := range part.lists {
			g.Row(l.List, fmt.Sprintf("%.0f %%", 100*l.Part), l.Delay.Round(time.Microsecond), l.Bottleneck, change.Percent(l.Utilisation), fmt.Sprintf("%.2f", l.Price))
		}
	}
}

func teSimulate(a *app) *cobra.Command {
	fail := "all"
	c := a.printing(&cobra.Command{
		Use:   "simulate FILE [--fail LINK|NODE|all]",
		Short: "Show what failures of links and nodes do to utilisation, before and after repair",
		Long: `For each failure: the utilisation of the fullest link when the IGP has found its new
paths and broken lists have left their weights to the others, and after the engine has
computed new lists. It exits with 3 if a failure leaves demands without a path, or a
link more than full after repair.`,
		Example: "  culvert te simulate network.yaml\n  culvert te simulate network.yaml --fail r1-r3",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := a.network(c, args)
			if err != nil {
				return err
			}
			failures, err := simulate.Failures(n.Topology, fail)
			if err != nil {
				return cmdline.Usagef("--fail: %w", err)
			}
			outcomes, err := simulate.Run(c.Context(), n, failures, progressOn(c, len(failures), "failures"))
			if err != nil {
				return err
			}
			if err := a.print(c, outcomes, func(g *printer.Grid) { outcomeTable(g, outcomes) }); err != nil {
				return err
			}
			return judgeOutcomes(outcomes)
		},
	})
	c.Flags().StringVar(&fail, "fail", fail, "what fails: a `name` of a node, FROM-TO of a link, or all, one after the other")
	return c
}

// progressOn says on a terminal how many of all are done, and of what.
func progressOn(c *cobra.Command, all int, what string) func(done int) {
	f, ok := c.ErrOrStderr().(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done int) {
		fmt.Fprintf(f, "\r%d of %d %s", done, all, what)
		if done == all {
			fmt.Fprint(f, "\r\x1b[K")
		}
	}
}

func outcomeTable(g *printer.Grid, outcomes []simulate.Outcome) {
	g.Row("FAILURE", "FULLEST LINK", "USED", "REPAIRED", "DEMANDS")
	for _, o := range outcomes {
		var words []string
		for _, v := range []struct {
			n    int
			what string
		}{{o.Gone, "gone with the node"}, {len(o.Nowhere), "without a path"}, {o.Broken, "lost lists"}, {o.ByIGP, "of these all"}, {len(o.Together), "without disjoint lists"}} {
			if v.n > 0 {
				words = append(words, fmt.Sprintf("%d %s", v.n, v.what))
			}
		}
		g.Row(o.Failure, o.Link, change.Percent(o.Utilisation), change.Percent(o.Repaired), strings.Join(words, ", "))
	}
}

// judgeOutcomes finds failures that cannot be repaired.
func judgeOutcomes(outcomes []simulate.Outcome) error {
	var cut, full int
	for _, o := range outcomes {
		if len(o.Nowhere) > 0 {
			cut++
		}
		if o.Repaired > 1 {
			full++
		}
	}
	var errs []error
	if cut > 0 {
		errs = append(errs, fmt.Errorf("%d of %d failures leave demands without a path", cut, len(outcomes)))
	}
	if full > 0 {
		errs = append(errs, fmt.Errorf("%d of %d failures leave a link more than full, whatever lists there are", full, len(outcomes)))
	}
	if len(errs) == 0 {
		return nil
	}
	return cmdline.WithCode(cmdline.ExitCheckFailed, errors.Join(errs...))
}
