package scale

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/smf"
)

// rowsExperiment measures functions with numbers of their entries in use: on two
// cores beside one (`culvert bench scaling`), or in a UPF (`culvert bench upf`).
type rowsExperiment struct {
	Functions []string `json:"functions,omitempty"` // all unless set
	Entries   []uint   `json:"entries"`
	Packets   int      `json:"packets"`

	all  []catalog.Function
	node int // coresNode or sessionsNode
}

// ScalingKind is the kind "scaling".
var ScalingKind = experiment.Kind{Name: "scaling", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &rowsExperiment{Entries: []uint{1000}, Packets: 1 << 17, all: CoresFunctions(), node: coresNode}
}}

// CoresFunctions are those that `culvert bench scaling` measures: of a gateway and an SR node, and of a UPF.
func CoresFunctions() []catalog.Function {
	sessions := slices.DeleteFunc(catalog.UPFFunctions(catalog.ShortSize), func(f catalog.Function) bool { return f.Sessions == nil })
	return append(catalog.Functions(catalog.ShortSize), sessions...)
}

// UPFKind is the kind "upf".
var UPFKind = experiment.Kind{Name: "upf", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &rowsExperiment{Entries: []uint{1, 1000, 100_000, 1_000_000}, Packets: 1 << 17, all: catalog.UPFFunctions(catalog.ShortSize), node: sessionsNode}
}}

// Flags offers the parameters.
func (e *rowsExperiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Functions, "functions", e.Functions, "`names` of the functions to measure (default: all)")
	f.UintSliceVar(&e.Entries, "entries", e.Entries, "`numbers` of entries (sessions, SIDs, TEIDs) that the frames are for, at random")
	f.IntVar(&e.Packets, "packets", e.Packets, "`packets` of one run")
}

// Quick makes it seconds.
func (e *rowsExperiment) Quick() {
	e.Entries, e.Packets = slices.DeleteFunc(e.Entries, func(n uint) bool { return n > catalog.FewSessions }), 1<<13
}

// CPUs are those that it measures on.
func (e *rowsExperiment) CPUs(chosen int) ([]int, error) {
	if e.node == coresNode {
		return proc.Two()
	}
	return proc.One(chosen)
}

// Validate says what is wrong with the parameters.
func (e *rowsExperiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	cost.Unknown(want, "functions", e.Functions, e.all)
	cost.CheckEntries(want, e.Entries)
	cost.CheckPackets(want, e.Packets)
	return experiment.Check(list)
}

// points are the rows, in order.
func (e *rowsExperiment) points() (points []scalePoint) {
	for _, r := range cost.RowsOf(e.all, cost.Numbers(e.Entries)) {
		if len(e.Functions) > 0 && !slices.Contains(e.Functions, r.Name) {
			continue
		}
		p := scalePoint{Row: r, title: r.Name, count: uint(r.Entries), node: e.node}
		if e.node == coresNode && r.Sessions != nil {
			p.node = sessionCoresNode
		}
		points = append(points, p)
	}
	return points
}

// The points of a UPF besides its packets.
const (
	deletePoint  = "N4: deletion, and requests at a rate"
	recoverPoint = "N4: kill -9 and restart"
)

// Plan has a point for each row, and the UPF's N4.
func (e *rowsExperiment) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: 4 * time.Second}
	var sessions time.Duration // for as long as they are set up
	for _, p := range e.points() {
		plan.Points = append(plan.Points, experiment.Point{ID: p.id(), Takes: cost.RunsTake(4, e.Packets)})
		if p.Sessions != nil {
			sessions = max(sessions, time.Duration(p.Entries)*cost.SessionTime)
		}
	}
	plan.SetUp += sessions
	if e.node == sessionsNode {
		plan.Points = append(plan.Points,
			experiment.Point{ID: controlPoint, Takes: 100 * time.Millisecond, Rounds: 1},
			experiment.Point{ID: deletePoint, Takes: 2*sessions + 3*cost.PacedSessions/cost.PacedRate*time.Second, Rounds: 1},
			experiment.Point{ID: recoverPoint, Takes: 10 * time.Second, Rounds: 1})
	}
	return plan, nil
}

// Open sets up the node that the rows are measured on.
func (e *rowsExperiment) Open(ctx context.Context, s experiment.Setting) (experiment.Bench, error) {
	return openScale(ctx, s, e.points(), e.Packets, 0)
}

// Figures show the rows, and the UPF's N4.
func (e *rowsExperiment) Figures() []result.Figure {
	if e.node == coresNode {
		return []result.Figure{{
			ID: "cores", Title: "Two cores by one", Kind: result.Bars, Metric: metricTwoCores, X: "function", Series: "entries", Value: result.OfBaseline,
			YTitle: "times as many packets", Caption: coresCaption,
		}}
	}
	return append([]result.Figure{{
		ID: "packets", Title: "CPU time of a session's packet, beside L2 forwarding", Kind: result.Bars, Metric: cost.MetricPacket, X: "function", Series: "entries",
		Value: result.ToBaseline, YTitle: "times L2 forwarding", Caption: "Each packet is for a random session of as many.",
	}}, append(controlFigures(), result.Figure{
		ID: "recover", Title: "N4: time from kill -9 to the first answer", Kind: result.Table, Metric: metricRecover,
		Caption: "The daemon is killed and started again at once; a node that has no association asks for a heartbeat.",
	})...)
}

// Claims are none: what there is to say stands in the rows.
func (*rowsExperiment) Claims(*result.Run) []string { return nil }

// twoCoresSamples set two cores beside one; both take as many packets.
func twoCoresSamples(b *cost.Bench, p scalePoint, pair []int) ([]experiment.Sample, error) {
	one, err := b.Together(p.Row, pair[1:])
	if err != nil {
		return nil, fmt.Errorf("one core: %w", err)
	}
	two, err := b.Together(p.Row, pair)
	if err != nil {
		return nil, fmt.Errorf("two cores: %w", err)
	}
	cpu, wall := 2*one.CPU, 2*one.Wall
	return []experiment.Sample{
		{Metric: metricTwoCores, Labels: p.labels(), Unit: "ns", Value: two.CPU, Baseline: &cpu},
		{Metric: metricTwoCoresWall, Labels: p.labels(), Unit: "ns", Value: two.Wall, Baseline: &wall},
	}, nil
}

// deleteSamples deletes the first group's sessions, takes some through their life
// at a rate, and sets all of them up again.
func deleteSamples(ctx context.Context, b *cost.Bench) ([]experiment.Sample, error) {
	g := b.Control.Groups[0]
	deleted, err := cost.Perform(ctx, smf.Pace{Window: cost.Window}, g.Delete)
	if err != nil {
		return nil, err
	}
	pace := smf.Pace{Window: cost.Window, Rate: cost.PacedRate, Count: min(cost.PacedSessions, g.Count())}
	atRate, err := cost.Perform(ctx, pace, g.Establish, g.Forward, g.Delete)
	if err != nil {
		return nil, err
	}
	for i := range atRate {
		atRate[i].Name += "_5k"
	}
	if _, err = cost.Perform(ctx, smf.Pace{Window: cost.Window}, g.Establish, g.Forward); err != nil {
		return nil, err
	}
	b.LearnTEIDs()
	return n4Samples(append(deleted, atRate...)), nil
}

const (
	// RecoverSessions is the number of sessions in the row pfcp_recover.
	RecoverSessions = 10_000
	recoverRepeats  = 5
)

// recoverSamples are how long the N4 of a UPF of its own is silent when the daemon
// is killed and started again at once.
func (b *scaleBench) recoverSamples(ctx context.Context) (list []experiment.Sample, err error) {
	node, err := cost.SetUp(ctx, cost.Plan{
		Binary: b.setting.Culvert, BPFFS: b.setting.BPFFS, CPU: b.setting.CPU, Name: node.RunName() + "-r",
		Functions: catalog.UPFFunctions(catalog.ShortSize)[1:2], Entries: []uint32{RecoverSessions}, Open: true,
	}, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	for range recoverRepeats {
		seconds, err := recoverOnce(ctx, node)
		if err != nil {
			return nil, err
		}
		list = append(list, experiment.Sample{
			Metric: metricRecover, Labels: result.Labels{"sessions": strconv.Itoa(RecoverSessions)}, Unit: "s", Value: seconds,
		})
	}
	return list, nil
}

// recoverOnce kills the daemon, starts it and asks for a heartbeat, as a node that
// the UPF has no association with: it waits for nothing that an SMF does.
func recoverOnce(ctx context.Context, b *cost.Bench) (seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, node.StartTimeout)
	defer cancel()
	killed := time.Now()
	if err := b.Daemon.Replace(ctx, b.Daemon.Binary, unix.SIGKILL); err != nil {
		return 0, err
	}
	err = b.Node.Net.Node.Do(func() error { return smf.Await(ctx, netip.AddrPortFrom(catalog.N4UPF, smf.Port)) })
	if err != nil {
		return 0, err
	}
	seconds = time.Since(killed).Seconds()
	return seconds, b.Daemon.Await(ctx)
}
