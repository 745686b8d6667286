package scale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/smf"
)

// Experiment is cost against how much there is of something.
type Experiment struct {
	Of       []string `json:"of,omitempty"` // the parts that are measured; all unless set
	Sessions []uint   `json:"sessions,omitempty"`
	Tunnels  []uint   `json:"tunnels,omitempty"`
	Rules    []uint   `json:"rules,omitempty"` // SDF filters of a session
	SIDs     []uint   `json:"sids,omitempty"`
	Policies []uint   `json:"policies,omitempty"`
	Segments []uint   `json:"segments,omitempty"` // that are pushed
	Routes   []uint   `json:"routes,omitempty"`
	Cores    bool     `json:"cores,omitempty"` // two beside one
	Packets  int      `json:"packets"`
}

// Kind is the kind "scale".
var Kind = experiment.Kind{Name: "scale", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment { return &Experiment{Packets: 1 << 17} }}

// dimension is what there is more and more of.
type dimension struct {
	name, title string
	numbers     *[]uint
	most        uint
}

func (e *Experiment) dimensions() []dimension {
	return []dimension{
		{"sessions", "Sessions", &e.Sessions, 2_000_000},
		{"tunnels", "GTP-U tunnels", &e.Tunnels, 2_000_000},
		{"rules", "SDF filters in a session", &e.Rules, catalog.MostRules},
		{"sids", "SIDs", &e.SIDs, uint(catalog.SIDsOfFunction)},
		{"policies", "SR policies", &e.Policies, catalog.MostPolicies},
		{"segments", "Segments pushed", &e.Segments, 8},
		{"routes", "Routes", &e.Routes, catalog.MostRoutes},
	}
}

// part has only what is measured.
func (e *Experiment) part() *Experiment {
	part := *e
	for _, d := range part.dimensions() {
		if !e.has(d.name) {
			*d.numbers = nil
		}
	}
	part.Cores = e.Cores && e.has("cores")
	return &part
}

func (e *Experiment) has(part string) bool { return len(e.Of) == 0 || slices.Contains(e.Of, part) }

// Parts are what Of may name.
func (e *Experiment) Parts() (list []string) {
	for _, d := range e.dimensions() {
		list = append(list, d.name)
	}
	return append(list, "cores")
}

// Flags offers the parameters.
func (e *Experiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Of, "of", e.Of, "`parts` to measure: "+strings.Join(e.Parts(), ", ")+" (default: all)")
	for _, d := range e.dimensions() {
		f.UintSliceVar(d.numbers, d.name, *d.numbers, fmt.Sprintf("`numbers` of %s, up to %d", d.name, d.most))
	}
	f.BoolVar(&e.Cores, "cores", e.Cores, "measure two cores beside one")
	f.IntVar(&e.Packets, "packets", e.Packets, "`packets` of one run")
}

// Quick makes it seconds.
func (e *Experiment) Quick() {
	for _, d := range e.dimensions() {
		*d.numbers = slices.DeleteFunc(*d.numbers, func(n uint) bool { return n > catalog.FewSessions })
		*d.numbers = (*d.numbers)[:min(2, len(*d.numbers))]
	}
	e.Packets = 1 << 13
}

// CPUs are those that it measures on: one, and with cores two.
func (e *Experiment) CPUs(chosen int) ([]int, error) {
	if e.part().Cores {
		return proc.Two()
	}
	return proc.One(chosen)
}

// Validate says what is wrong with the parameters.
func (e *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	for _, d := range e.dimensions() {
		cost.Within(want, d.name, *d.numbers, 1, d.most, "")
	}
	experiment.Each(want, "of", "some of "+strings.Join(e.Parts(), ", "), "there is no %q", e.Of, func(name string) bool { return slices.Contains(e.Parts(), name) })
	want(len(e.Rules) <= catalog.FewGroups, "rules", fmt.Sprintf("%d numbers at most", catalog.FewGroups), "there are %d", len(e.Rules))
	cost.CheckPackets(want, e.Packets)
	return experiment.Check(list)
}

// The nodes that the points are measured on.
const (
	plainNode = iota
	tunnelsNode
	sessionsNode
	rulesNode
	coresNode
	sessionCoresNode
	scaleNodes
)

// scalePoint is a row, or a function that one core and two run.
type scalePoint struct {
	*cost.Row
	dimension string // empty: of rowsExperiment
	title     string
	count     uint
	node      int
}

// points are those of an experiment. A function that has only one entry stands
// for one number.
func (e *Experiment) points() (points []scalePoint) {
	add := func(dimension string, count uint, title string, node int, f catalog.Function, entries uint32) {
		points = append(points, scalePoint{&cost.Row{Function: f, Entries: entries}, dimension, title, count, node})
	}
	each := func(dimension string, numbers []uint, title string, node int, f catalog.Function) {
		for _, n := range numbers {
			add(dimension, n, title, node, f, uint32(n))
		}
	}
	for _, f := range catalog.UPFFunctions(catalog.ShortSize)[1:3] {
		each("sessions", e.Sessions, catalog.Titles[f.Name].Name, sessionsNode, f)
	}
	for _, f := range catalog.Tunnels(catalog.ShortSize)[:2] {
		each("tunnels", e.Tunnels, catalog.Titles[f.Name].Name, tunnelsNode, f)
	}
	for i, n := range e.Rules {
		group := catalog.Sessions{Place: uint32(i), Most: catalog.FewSessions, Dialect: smf.Free5GC, Spec: catalog.Filtered(int(n))}
		suffix := fmt.Sprintf("_filters_%d", n)
		add("rules", n, catalog.Titles["uplink"].Name, rulesNode, catalog.Uplink(suffix, group, catalog.ShortSize), catalog.FewSessions)
		add("rules", n, catalog.Titles["downlink"].Name, rulesNode, catalog.Downlink(suffix, group, catalog.ShortSize), catalog.FewSessions)
	}
	each("sids", e.SIDs, "End", plainNode, catalog.SIDsFunction())
	each("policies", e.Policies, "H.Encaps.Red", plainNode, catalog.PoliciesFunction())
	for _, n := range e.Segments {
		add("segments", n, "H.Encaps.Red", plainNode, catalog.SegmentsFunction(int(n)), 1)
	}
	each("routes", e.Routes, "End.DT4", plainNode, catalog.RoutesFunction())
	if e.Cores {
		for _, f := range catalog.Functions(catalog.ShortSize) {
			if slices.Contains([]string{catalog.BaselineName, "gtpu_decap", "h_encaps_red", "end_dt4", "h_m_gtp4_d"}, f.Name) {
				add("cores", 2, catalog.Titles[f.Name].Name, coresNode, f, min(f.Most, catalog.FewSessions))
			}
		}
	}
	return points
}

func (p scalePoint) id() string {
	if p.dimension == "" {
		return fmt.Sprintf("%s, %d entries", p.title, p.count)
	}
	return fmt.Sprintf("%s: %s, %d", p.dimension, p.title, p.count)
}

func (p scalePoint) labels() result.Labels {
	if p.dimension == "" {
		return result.Labels{"function": p.title, "entries": strconv.Itoa(int(p.count))}
	}
	return result.Labels{"of": p.dimension, "number": strconv.Itoa(int(p.count)), "function": p.title}
}

// controlPoint is how quickly sessions were set up, and what they take.
const controlPoint = "sessions: N4 and memory"

// Plan has a point for each number of each dimension.
func (e *Experiment) Plan() (experiment.Plan, error) {
	e = e.part()
	plan := experiment.Plan{SetUp: 4 * time.Second}
	for _, p := range e.points() {
		takes := cost.RunsTake(4, e.Packets)
		if p.node == coresNode {
			takes = cost.RunsTake(2*coresRuns, e.Packets)
		}
		plan.Points = append(plan.Points, experiment.Point{ID: p.id(), Takes: takes})
	}
	if len(e.Tunnels) > 0 {
		plan.SetUp += 2 * time.Duration(slices.Max(e.Tunnels)) * cost.EntryTime
	}
	if len(e.Sessions) > 0 {
		plan.SetUp += time.Duration(slices.Max(e.Sessions)) * cost.SessionTime
		plan.Points = append(plan.Points, experiment.Point{ID: controlPoint, Takes: 100 * time.Millisecond, Rounds: 1})
	}
	return plan, nil
}

// scaleBench has a node for each sort of tables, so that none is larger than its
// own dimension says.
type scaleBench struct {
	node.Undo
	setting experiment.Setting
	points  map[string]scalePoint
	nodes   [scaleNodes]*cost.Bench
	pair    []int // CPUs of coresNode
}

// Open sets up what is measured.
func (e *Experiment) Open(ctx context.Context, s experiment.Setting) (experiment.Bench, error) {
	e = e.part()
	b, err := openScale(ctx, s, e.points(), e.Packets, uint32(slices.Max(append([]uint{0}, e.Routes...))))
	if errors.Is(err, proc.ErrTwo) {
		err = fmt.Errorf("%w: leave cores out (--cores=false)", err)
	}
	return b, err
}

// openScale sets up the nodes that some points need.
func openScale(ctx context.Context, s experiment.Setting, points []scalePoint, packets int, routes uint32) (_ *scaleBench, err error) {
	b := &scaleBench{setting: s, points: map[string]scalePoint{}}
	defer b.OnError(&err)
	var plans [scaleNodes]cost.Plan
	for _, p := range points {
		b.points[p.id()] = p
		at := &plans[p.node]
		if !slices.Contains(catalog.Names(at.Functions), p.Name) {
			at.Functions = append(at.Functions, p.Function)
		}
		at.Entries = append(at.Entries, p.Entries)
	}
	plans[plainNode].Routes = routes
	for i, p := range plans {
		if len(p.Functions) == 0 {
			continue
		}
		p.Name, p.Packets, p.CPU, p.Binary, p.BPFFS = fmt.Sprintf("%s-%d", node.RunName(), i), uint32(packets), s.CPU, s.Culvert, s.BPFFS
		queues := 1
		if i == coresNode || i == sessionCoresNode {
			if b.pair, err = proc.Two(); err != nil {
				return nil, err
			}
			queues = b.pair[1] + 1
		}
		if b.nodes[i], err = cost.SetUp(ctx, p, queues); err != nil {
			return nil, err
		}
		b.Later(b.nodes[i].Close)
	}
	return b, nil
}

// Environment says what is measured.
func (b *scaleBench) Environment(ctx context.Context) (result.Environment, error) {
	return cmp.Or(b.nodes[:]...).Daemon.Environment(ctx)
}

// Measure takes a sample of each quantity at a point.
func (b *scaleBench) Measure(ctx context.Context, at experiment.Point, _ int) ([]experiment.Sample, error) {
	switch at.ID {
	case controlPoint:
		return controlSamples(b.nodes[sessionsNode])
	case deletePoint:
		return deleteSamples(ctx, b.nodes[sessionsNode])
	case recoverPoint:
		return b.recoverSamples(ctx)
	}
	p := b.points[at.ID]
	node := b.nodes[p.node]
	switch {
	case p.dimension == "" && (p.node == coresNode || p.node == sessionCoresNode):
		return twoCoresSamples(node, p, b.pair)
	case p.node == coresNode:
		var took [3][]float64 // by the number of cores: one and two in turns
		for range coresRuns {
			for _, cores := range []int{1, 2} {
				s, err := node.Together(p.Row, b.pair[2-cores:])
				if err != nil {
					return nil, fmt.Errorf("%d cores: %w", cores, err)
				}
				took[cores] = append(took[cores], s.CPU)
			}
		}
		ratio, _, _ := stats.Interval(took[1], took[2])
		return []experiment.Sample{{Metric: metricCores, Labels: p.labels(), Value: 2 * ratio}}, nil
	}
	s, err := node.Round(ctx, p.Row)
	if err != nil {
		return nil, err
	}
	program := experiment.Sample{Metric: cost.MetricProgram, Labels: p.labels(), Unit: "ns", Value: s.TestRun - s.Front}
	if p.dimension == "" { // with all figures of the round
		program.Metric, program.Value, program.Baseline = cost.MetricFront, s.TestRun, &s.Front
	}
	return []experiment.Sample{{Metric: cost.MetricPacket, Labels: p.labels(), Unit: "ns", Value: s.Live, Baseline: &s.Baseline}, program}, nil
}

// The metrics of scale besides those of functions.
const (
	metricCores  = "cores"   // how many times as many packets, by CPU time
	MetricN4     = "n4"      // requests/s
	metricN4Time = "n4_time" // that one takes
	MetricMemory = "memory"  // octets

	metricTwoCores     = "two_cores_ns"      // CPU time of a packet, beside twice that of one core
	metricTwoCoresWall = "two_cores_wall_ns" // by the clock on the wall
	metricRecover      = "n4_recover"        // s from kill -9 to the first answer

	coresRuns = 3 // with one core, and with two, of one sample
)

// n4Samples are what procedures of N4 took.
func n4Samples(rows []cost.PFCPRow) (list []experiment.Sample) {
	for _, r := range rows {
		procedure := result.Labels{"procedure": strings.TrimPrefix(r.Name, "pfcp_"), "sessions": strconv.Itoa(r.Entries)}
		list = append(list, experiment.Sample{Metric: MetricN4, Labels: procedure, Unit: "requests/s", Value: r.PerSecond})
		for i, us := range []float64{r.P50, r.P99} {
			list = append(list, experiment.Sample{Metric: metricN4Time, Labels: procedure.With("share", n4Shares[i]), Unit: "ns", Value: 1000 * us})
		}
	}
	return list
}

// controlSamples are what setting up the sessions took, and what they hold.
func controlSamples(b *cost.Bench) ([]experiment.Sample, error) {
	list := n4Samples(b.Control.Rows)
	resident, tables, err := proc.Memory(b.Daemon.Cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	sessions := 0
	for _, g := range b.Control.Groups {
		sessions += g.Count()
	}
	for i, n := range []uint64{resident, tables} {
		labels := result.Labels{"held": holders[i], "sessions": strconv.Itoa(sessions)}
		list = append(list, experiment.Sample{Metric: MetricMemory, Labels: labels, Unit: "octets", Value: float64(n)})
	}
	return list, nil
}

// The values of two labels: the shares of requests in metricN4Time, and who holds
// metricMemory.
var (
	n4Shares = []string{"median", "P99"}
	holders  = []string{"by the daemon", "in the data path's tables"}
)

// Figures have one for each dimension.
func (e *Experiment) Figures() (list []result.Figure) {
	captions := map[string]string{
		"sessions": "Each packet is for another session, at random. What grows is the time to fetch a session's entry from memory: one cache line for each packet and direction.",
		"tunnels":  "Each packet is for another tunnel that the operator configured, at random: by its TEID, or by the UE's address.",
		"rules":    "Sessions with as many SDF filters, of which the last one matches: the rules are looked at one after the other.",
		"sids":     "Each packet is for another SID of the same locator, which is found by index.",
		"policies": "Each packet goes by another policy with one segment.",
		"segments": "The first segment is the destination; each one more is 16 octets of Segment Routing Header.",
		"routes":   "Decapsulated packets for as many destinations, with a route each.",
	}
	e = e.part()
	for _, d := range e.dimensions() {
		if len(*d.numbers) == 0 {
			continue
		}
		list = append(list, result.Figure{
			ID: d.name, Title: d.title, Kind: result.Lines, Metric: cost.MetricPacket, Where: result.Labels{"of": d.name}, X: "number", Series: "function",
			Value: result.ToBaseline, XTitle: d.title, YTitle: "times L2 forwarding",
			LogX: slices.Max(*d.numbers) > 20, Caption: captions[d.name],
		})
	}
	if e.Cores {
		list = append(list, result.Figure{
			ID: "cores", Title: "Two cores by one", Kind: result.Bars, Metric: metricCores, X: "function", YTitle: "times as many packets",
			Caption: coresCaption,
		})
	}
	if len(e.Sessions) > 0 {
		list = append(list, controlFigures()...)
	}
	return list
}

const coresCaption = "How many times as many packets two cores forward as one, by CPU time: 2 would be no loss at all. Each core has a generator and queues of its own; the tables are shared."

// controlFigures are of controlSamples.
func controlFigures() []result.Figure {
	return []result.Figure{
		{ID: "n4", Title: "N4: sessions set up in a second", Kind: result.Bars, Metric: MetricN4, X: "procedure", LogY: true, YTitle: "requests in a second",
			Caption: "PFCP session establishment, and the modification that brings the gNB's tunnel, with 256 requests under way. The SMF is on the same machine. Measured once."},
		{ID: "n4_time", Title: "N4: time of a request", Kind: result.Table, Metric: metricN4Time, Caption: "With 256 requests under way."},
		{ID: "memory", Title: "Memory", Kind: result.Table, Metric: MetricMemory, Caption: "What the daemon holds, resident, and the data path's tables, when all sessions are there."},
	}
}

// Claims say what a million of each costs.
func (e *Experiment) Claims(run *result.Run) (claims []string) {
	for _, d := range e.part().dimensions() {
		if len(*d.numbers) < 2 {
			continue
		}
		first, last := slices.Min(*d.numbers), slices.Max(*d.numbers)
		for _, from := range run.Select(cost.MetricPacket, result.Labels{"of": d.name, "number": strconv.Itoa(int(first))}) {
			to := run.Select(cost.MetricPacket, result.Labels{"of": d.name, "number": strconv.Itoa(int(last)), "function": from.Labels["function"]})
			a, b := from.Estimate(result.ToBaseline), to[0].Estimate(result.ToBaseline)
			claims = append(claims, fmt.Sprintf("%s, %s from %d to %d: %s, %s and %s times L2 forwarding.",
				from.Labels["function"], d.name, first, last, b.Relation(a, "a packet costs less", fmt.Sprintf("a packet costs the same, up to %.0f %%", 100*result.Margin),
					"a packet costs more", "it is not shown whether a packet costs more"), a, b))
		}
	}
	return claims
}
