package functions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// Experiment is paper 001's: every function beside L2 forwarding.
type Experiment struct {
	Functions []string     `json:"functions,omitempty"` // all unless set
	Entries   []uint       `json:"entries"`
	Sizes     []int        `json:"sizes"` // octets behind the user's IPv4 header
	Packets   int          `json:"packets"`
	Traffic   trafficParts `json:"traffic,omitzero"`
}

// trafficParts are rate, loss and latency.
type trafficParts struct {
	Functions []string            `json:"functions,omitempty"`
	Runs      int                 `json:"runs,omitempty"`
	Trial     experiment.Duration `json:"trial,omitempty"`
}

// Kind is the kind "functions".
var Kind = experiment.Kind{Name: "functions", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &Experiment{Entries: []uint{1000}, Sizes: []int{catalog.ShortSize}, Packets: 1 << 17}
}}

// All are the functions that there are: the data path's, and the UPF's two.
func (*Experiment) All(size int) []catalog.Function {
	upf := catalog.UPFFunctions(size)[1:3]
	for i := range upf {
		upf[i].Port = node.PortIn
	}
	return catalog.Variants(append(catalog.Functions(size), upf...))
}

// chosen are those that are measured.
func (e *Experiment) chosen(size int) []catalog.Function {
	return slices.DeleteFunc(e.All(size), func(f catalog.Function) bool {
		return len(e.Functions) > 0 && !slices.Contains(e.Functions, f.Name)
	})
}

// Flags offers the parameters.
func (e *Experiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Functions, "functions", e.Functions, "`names` of the functions to measure (default: all)")
	f.UintSliceVar(&e.Entries, "entries", e.Entries, "`numbers` of entries (sessions, SIDs, TEIDs) that the frames are for, at random")
	f.IntSliceVar(&e.Sizes, "sizes", e.Sizes, "`octets` behind the user's IPv4 header; the paper has 26 and 1440")
	f.IntVar(&e.Packets, "packets", e.Packets, "`packets` of one run")
	f.IntVar(&e.Traffic.Runs, "runs", e.Traffic.Runs, "`number` of rounds in which rate, loss and latency are measured (0: none)")
}

// Quick makes it seconds.
func (e *Experiment) Quick() {
	e.Entries = slices.DeleteFunc(e.Entries, func(n uint) bool { return n > catalog.FewSessions })
	e.Sizes, e.Packets = e.Sizes[:1], 1<<13
	e.Traffic.Runs, e.Traffic.Trial = min(e.Traffic.Runs, 1), experiment.Duration(50*time.Millisecond)
}

// CPUs are those that it measures on: one does everything.
func (*Experiment) CPUs(chosen int) ([]int, error) { return proc.One(chosen) }

// Validate says what is wrong with the parameters.
func (e *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	cost.Unknown(want, "functions", e.Functions, e.All(catalog.ShortSize))
	cost.CheckEntries(want, e.Entries)
	cost.Within(want, "sizes", e.Sizes, catalog.ShortSize, catalog.LongSize, " octets")
	want(len(e.Sizes) > 0, "sizes", fmt.Sprintf("%d or %d or both", catalog.ShortSize, catalog.LongSize), "there is none")
	cost.CheckPackets(want, e.Packets)
	cost.Unknown(want, "traffic.functions", e.Traffic.Functions, withTraffic(e.All(catalog.ShortSize)))
	want(e.Traffic.Runs == 0 || e.Traffic.Runs > 0 && e.Traffic.Trial >= experiment.Duration(10*time.Millisecond),
		"traffic", "runs from 0, trial from 10ms", "%d runs of %s make no sense", e.Traffic.Runs, e.Traffic.Trial)
	return experiment.Check(list)
}

// costPoint is a row of a plan.
type costPoint struct {
	*cost.Row
	table string // "usual" of at most 1000 entries, else "few" or "many"; "port" of a variant
}

// costs are the points of CPU time. Long packets are measured with the usual
// tables only: what is behind the headers is not looked at.
func (e *Experiment) costs() (points []costPoint) {
	for i, size := range e.Sizes {
		for _, f := range e.chosen(size) {
			for _, r := range cost.RowsOf([]catalog.Function{f}, e.numbers(f)) {
				if p := (costPoint{r, tableOf(r, e.numbers(f))}); i == 0 || p.table == usual {
					points = append(points, p)
				}
			}
		}
	}
	return points
}

// numbers are the entries that a function is measured with: a million sessions
// are another experiment's (scale).
func (e *Experiment) numbers(f catalog.Function) []uint32 {
	list := cost.Numbers(e.Entries)
	if f.Sessions != nil {
		list = slices.DeleteFunc(list, func(n uint32) bool { return n > catalog.FewSessions })
	}
	if len(list) == 0 {
		return []uint32{catalog.FewSessions}
	}
	return list
}

// How large a row's tables are beside the others of its function.
const (
	few   = "few"
	usual = "usual"
	many  = "many"
	port  = "port" // beside others on other ports
)

func tableOf(r *cost.Row, numbers []uint32) string {
	if r.IsVariant() {
		return port
	}
	best := uint32(0)
	for _, other := range cost.RowsOf([]catalog.Function{r.Function}, numbers) {
		if other.Entries <= catalog.FewSessions || best == 0 {
			best = max(best, other.Entries)
		}
	}
	return map[int]string{-1: few, 0: usual, 1: many}[cmp.Compare(r.Entries, best)]
}

func (p costPoint) id() string {
	return fmt.Sprintf("cost: %s, %d entries, %d octets", p.Name, p.Entries, p.Size)
}

func (p costPoint) labels() result.Labels {
	return result.Labels{
		"function": catalog.TitleOf(p.Name).Name, "packet": packetName(p.Size), "entries": strconv.Itoa(int(p.Entries)), "table": p.table,
	}
}

func packetName(size int) string {
	return cmp.Or(map[int]string{catalog.ShortSize: "short", catalog.LongSize: "long"}[size], fmt.Sprintf("%d octets", size))
}

// laterRounds is how often all but the first size are measured: what is behind
// the headers changes little. portRounds is how often variants are.
const (
	laterRounds = 10
	portRounds  = 5
)

// Plan has a point for each row, and for each function with traffic and each of
// the paper's four conditions.
func (e *Experiment) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: 3 * time.Second}
	for _, p := range e.costs() {
		point := experiment.Point{ID: p.id(), Takes: cost.RunsTake(4, e.Packets)}
		if p.Beside {
			point.Takes = cost.RunsTake(7, e.Packets) // the kernel takes longer for each
		}
		switch {
		case p.table == port:
			point.Rounds = portRounds
		case p.Size != e.Sizes[0]:
			point.Rounds = laterRounds
		}
		plan.Points = append(plan.Points, point)
		if p.Size == e.Sizes[0] {
			plan.SetUp += time.Duration(p.Entries) * cost.EntryTime
		}
	}
	for _, p := range e.trafficPoints() {
		plan.Points = append(plan.Points, experiment.Point{ID: p.id(), Takes: 2 * (p.trial + settleTime), Rounds: e.Traffic.Runs}) // with L2 forwarding, which stands beside each
	}
	return plan, nil
}

// functionsBench has a node for each of the data path's functions, one that is a
// UPF, and what the traffic goes through.
type functionsBench struct {
	node.Undo
	costs      map[string]costPoint
	plain, upf *cost.Bench
	traffic    *trafficBench
}

// Open sets up what is measured.
func (e *Experiment) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &functionsBench{costs: map[string]costPoint{}}
	for _, p := range e.costs() {
		b.costs[p.id()] = p
	}
	defer b.OnError(&err)
	p := cost.Plan{Binary: s.Culvert, BPFFS: s.BPFFS, Entries: cost.Numbers(e.Entries), Packets: uint32(e.Packets), CPU: s.CPU}
	var upf []catalog.Function
	for _, f := range e.chosen(e.Sizes[0]) {
		if f.Sessions == nil {
			p.Functions = append(p.Functions, f)
		} else {
			upf = append(upf, f)
		}
	}
	if len(p.Functions) > 0 {
		if b.plain, err = cost.SetUp(ctx, p, 1); err != nil {
			return nil, err
		}
		b.Later(b.plain.Close)
		if err := b.plain.SetUpKernel(); err != nil {
			return nil, err
		}
	}
	if len(upf) > 0 {
		p.Name, p.Functions, p.Entries = node.RunName()+"-u", upf, e.numbers(upf[0])
		if b.upf, err = cost.SetUp(ctx, p, 1); err != nil {
			return nil, err
		}
		b.Later(b.upf.Close)
	}
	if points := e.trafficPoints(); len(points) > 0 {
		if b.traffic, err = openTraffic(ctx, s, points); err != nil {
			return nil, err
		}
		b.Later(b.traffic.Close)
	}
	return b, nil
}

// Environment says what is measured, and what is known of the generator by itself,
// with L2 forwarding's short packets.
func (b *functionsBench) Environment(ctx context.Context) (result.Environment, error) {
	e, err := cmp.Or(b.plain, b.upf).Daemon.Environment(ctx)
	if err == nil && b.traffic != nil {
		t := ofSize(b.traffic.templatePairs[catalog.BaselineName].send, catalog.ShortSize)
		t.Ethernet.Destination = traffic.MAC(node.MAC(1))
		err = b.traffic.l2Pair.Describe(ctx, t, &e)
	}
	return e, err
}

// Measure takes a sample of each quantity at a point.
func (b *functionsBench) Measure(ctx context.Context, p experiment.Point, _ int) ([]experiment.Sample, error) {
	row, ok := b.costs[p.ID]
	if !ok {
		return b.traffic.measure(ctx, p.ID)
	}
	on := b.plain
	if row.Sessions != nil {
		on = b.upf
	}
	s, err := on.Round(ctx, row.Row)
	if err != nil {
		return nil, err
	}
	of := func(metric string, value float64, beside *float64) experiment.Sample {
		return experiment.Sample{Metric: metric, Labels: row.labels(), Unit: "ns", Value: value, Baseline: beside}
	}
	list := []experiment.Sample{
		of(cost.MetricPacket, s.Live, &s.Baseline), of(cost.MetricProgram, s.TestRun-s.Front, nil), of(cost.MetricFront, s.TestRun, &s.Front),
	}
	if row.Beside {
		list = append(list, of(cost.MetricKernel, s.Linux, &s.Live))
	}
	return list, nil
}

// Glossary says what the figures' words mean.
func (e *Experiment) Glossary() map[string]string {
	words := map[string]string{
		"short": "26 octets behind the user's IPv4 header: a frame of 64 octets, with the checksum, before any tunnel",
		"long":  "1440 octets behind the user's IPv4 header: a frame of 1478 octets before any tunnel",
		"light": "as many packets in a second as paper 001 sent: 100,805 short or 8,127 long",
		"heavy": "as many packets as the generator and the function get through on one core",
	}
	for _, f := range e.chosen(catalog.ShortSize) {
		words[catalog.TitleOf(f.Name).Name] = catalog.TitleOf(f.Name).Meaning
	}
	return words
}
