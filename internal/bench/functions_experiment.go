package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// functionsExperiment is paper 001's: every function beside L2 forwarding.
type functionsExperiment struct {
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

func functionsKind() experiment.Kind {
	return experiment.Kind{Name: "functions", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
		return &functionsExperiment{Entries: []uint{1000}, Sizes: []int{shortSize}, Packets: 1 << 17}
	}}
}

// all are the functions that there are: the data path's, and the UPF's two.
func (*functionsExperiment) all(size int) []function {
	return append(functions(size), upfFunctions(size)[1:3]...)
}

// chosen are those that are measured.
func (e *functionsExperiment) chosen(size int) []function {
	return slices.DeleteFunc(e.all(size), func(f function) bool {
		return len(e.Functions) > 0 && !slices.Contains(e.Functions, f.name)
	})
}

func (e *functionsExperiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Functions, "functions", e.Functions, "`names` of the functions to measure (default: all)")
	f.UintSliceVar(&e.Entries, "entries", e.Entries, "how many `entries` (sessions, SIDs, TEIDs) frames are for, at random")
	f.IntSliceVar(&e.Sizes, "sizes", e.Sizes, "`octets` behind the user's IPv4 header; the paper has 26 and 1440")
	f.IntVar(&e.Packets, "packets", e.Packets, "`packets` of one run")
	f.IntVar(&e.Traffic.Runs, "runs", e.Traffic.Runs, "in how many rounds rate, loss and latency are measured (`n`; 0: not at all)")
}

func (e *functionsExperiment) Quick() {
	e.Entries = slices.DeleteFunc(e.Entries, func(n uint) bool { return n > fewSessions })
	e.Sizes, e.Packets = e.Sizes[:1], 1<<13
	e.Traffic.Runs, e.Traffic.Trial = min(e.Traffic.Runs, 1), experiment.Duration(50*time.Millisecond)
}

// CPUs are those that it measures on: one does everything.
func (*functionsExperiment) CPUs(chosen int) ([]int, error) { return oneCPU(chosen) }

// Validate says what is wrong with the parameters.
func (e *functionsExperiment) Validate() error {
	var list experiment.Problems
	bad := func(field, fix, format string, args ...any) {
		list = append(list, experiment.Problem("with."+field, fix, format, args...))
	}
	unknown(bad, "functions", e.Functions, e.all(shortSize))
	checkEntries(bad, e.Entries)
	for i, n := range e.Sizes {
		if n < shortSize || n > longSize {
			bad(fmt.Sprintf("sizes[%d]", i), fmt.Sprintf("%d to %d octets", shortSize, longSize), "%d is out of range", n)
		}
	}
	if len(e.Sizes) == 0 {
		bad("sizes", fmt.Sprintf("%d or %d or both", shortSize, longSize), "there is none")
	}
	checkPackets(bad, e.Packets)
	unknown(bad, "traffic.functions", e.Traffic.Functions, withTraffic(e.all(shortSize)))
	if e.Traffic.Runs < 0 || e.Traffic.Runs > 0 && e.Traffic.Trial < experiment.Duration(10*time.Millisecond) {
		bad("traffic", "runs from 0, trial from 10ms", "%d runs of %s make no sense", e.Traffic.Runs, e.Traffic.Trial)
	}
	return experiment.Check(list)
}

// costPoint is a row of a plan.
type costPoint struct {
	*row
	table string // "usual" of at most 1000 entries, else "few" or "many"
}

// costs are the points of CPU time. Long packets are measured with the usual
// tables only: what is behind the headers is not looked at.
func (e *functionsExperiment) costs() (points []costPoint) {
	for i, size := range e.Sizes {
		for _, f := range e.chosen(size) {
			for _, r := range rowsOf([]function{f}, e.numbers(f)) {
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
func (e *functionsExperiment) numbers(f function) (list []uint32) {
	for _, n := range slices.Sorted(slices.Values(e.Entries)) {
		if f.sessions == nil || n <= fewSessions {
			list = append(list, uint32(n))
		}
	}
	if len(list) == 0 {
		return []uint32{fewSessions}
	}
	return slices.Compact(list)
}

// How large a row's tables are beside the others of its function.
const (
	few   = "few"
	usual = "usual"
	many  = "many"
)

func tableOf(r *row, numbers []uint32) string {
	best := uint32(0)
	for _, other := range rowsOf([]function{r.function}, numbers) {
		if other.entries <= fewSessions || best == 0 {
			best = max(best, other.entries)
		}
	}
	switch {
	case r.entries < best:
		return few
	case r.entries > best:
		return many
	}
	return usual
}

func (p costPoint) id() string {
	return fmt.Sprintf("cost: %s, %d entries, %d octets", p.name, p.entries, p.size)
}

func (p costPoint) labels() result.Labels {
	return result.Labels{
		"function": titles[p.name].name, "packet": packetName(p.size), "entries": strconv.Itoa(int(p.entries)), "table": p.table,
	}
}

func packetName(size int) string {
	switch size {
	case shortSize:
		return "short"
	case longSize:
		return "long"
	}
	return fmt.Sprintf("%d octets", size)
}

func (p costPoint) takes(packets int) time.Duration {
	runs := 4
	if p.beside {
		runs += 3 // the kernel takes longer for each
	}
	return time.Duration(runs) * (callTime + time.Duration(packets)*packetTime)
}

// laterRounds is how often all but the first size are measured: what is behind
// the headers changes little.
const laterRounds = 10

// Plan has a point for each row, and for each function with traffic and each of
// the paper's four conditions.
func (e *functionsExperiment) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: 3 * time.Second}
	for _, p := range e.costs() {
		point := experiment.Point{ID: p.id(), Takes: p.takes(e.Packets)}
		if p.size != e.Sizes[0] {
			point.Rounds = laterRounds
		}
		plan.Points = append(plan.Points, point)
		if p.size == e.Sizes[0] {
			plan.SetUp += time.Duration(p.entries) * entryTime
		}
	}
	for _, p := range e.trafficPoints() {
		plan.Points = append(plan.Points, experiment.Point{ID: p.id(), Takes: p.takes(e.Traffic), Rounds: e.Traffic.Runs})
	}
	return plan, nil
}

// functionsBench has a node for each of the data path's functions, one that is a
// UPF, and what the traffic goes through.
type functionsBench struct {
	costs      map[string]costPoint
	plain, upf *bench
	traffic    *trafficBench
}

func (e *functionsExperiment) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &functionsBench{costs: map[string]costPoint{}}
	for _, p := range e.costs() {
		b.costs[p.id()] = p
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	p := plan{binary: s.Culvert, bpffs: s.BPFFS, packets: uint32(e.Packets), cpu: s.CPU}
	var upf []function
	for _, f := range e.chosen(e.Sizes[0]) {
		if f.sessions == nil {
			p.functions = append(p.functions, f)
		} else {
			upf = append(upf, f)
		}
	}
	for _, n := range e.Entries {
		p.entries = append(p.entries, uint32(n))
	}
	if len(p.functions) > 0 {
		if b.plain, err = setUp(ctx, p, 1); err != nil {
			return nil, err
		}
		if err := b.plain.setUpKernel(); err != nil {
			return nil, err
		}
	}
	if len(upf) > 0 {
		p.name, p.functions, p.entries = runName()+"-u", upf, e.numbers(upf[0])
		if b.upf, err = setUp(ctx, p, 1); err != nil {
			return nil, err
		}
	}
	if points := e.trafficPoints(); len(points) > 0 {
		b.traffic, err = openTraffic(ctx, s, points)
	}
	return b, err
}

func (b *functionsBench) Close() error {
	var errs []error
	for _, each := range []*bench{b.plain, b.upf} {
		if each != nil {
			errs = append(errs, each.tearDown())
		}
	}
	if b.traffic != nil {
		errs = append(errs, b.traffic.close())
	}
	return errors.Join(errs...)
}

func (b *functionsBench) Environment(ctx context.Context) (e result.Environment, err error) {
	of := b.plain
	if of == nil {
		of = b.upf
	}
	if e, err = of.resultEnvironment(ctx); err == nil && b.traffic != nil {
		err = b.traffic.generator(ctx, &e)
	}
	return e, err
}

func (b *functionsBench) Measure(ctx context.Context, p experiment.Point, _ int) ([]experiment.Sample, error) {
	cost, ok := b.costs[p.ID]
	if !ok {
		return b.traffic.measure(ctx, p.ID)
	}
	on := b.plain
	if cost.sessions != nil {
		on = b.upf
	}
	s, err := on.round(ctx, cost.row)
	if err != nil {
		return nil, err
	}
	return cost.samples(s), nil
}

// samples are all figures of a row's round.
func (p costPoint) samples(s sample) []experiment.Sample {
	of := func(metric string, value float64, beside *float64) experiment.Sample {
		return experiment.Sample{Metric: metric, Labels: p.labels(), Unit: "ns", Value: value, Baseline: beside}
	}
	list := []experiment.Sample{
		of(metricPacket, s.live, &s.baseline), of(metricProgram, s.testRun-s.front, nil), of(metricFront, s.testRun, &s.front),
	}
	if p.beside {
		list = append(list, of(metricKernel, s.linux, &s.live))
	}
	return list
}

// Glossary says what the figures' words mean.
func (e *functionsExperiment) Glossary() map[string]string { return glossary(e.chosen(shortSize)) }
