package designs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// Experiment is `culvert bench designs`.
type Experiment struct {
	Designs []string `json:"designs,omitempty"`
	// Against are foreign UPFs, as NAME=COMMAND of a shell.
	Against against  `json:"against,omitempty"`
	Sizes   []string `json:"sizes,omitempty"` // octets of a UE's frame on N3, with FCS, or imix; at least those of its headers
	// Sessions are how many each design has, as Open5GS sets them up.
	Sessions int `json:"sessions,omitempty"`
	// Latency is at which shares of PDR it is measured.
	Latency []float64 `json:"latency,omitempty"`
	// Trial is how long trials are that decide about a rate, and those of latency.
	Trial experiment.Duration `json:"trial,omitempty"`
	// Requests is for how long handovers are sent; 0: none are. Offered are the shares of
	// PDR at which packets go meanwhile.
	Requests experiment.Duration `json:"requests,omitempty"`
	Offered  []float64           `json:"offered,omitempty"`
	// Of are numbers of what there is; with Series packets are measured against them.
	Series     bool   `json:"series"`
	OfSessions []uint `json:"of_sessions,omitempty"`
	OfFilters  []uint `json:"of_filters,omitempty"`
	OfGNBs     []uint `json:"of_gnbs,omitempty"`
	// WattsPerCore and Price are of a core, for the arithmetic of what a rate takes; 0: not
	// given.
	WattsPerCore float64 `json:"watts_per_core,omitempty"`
	Price        float64 `json:"price,omitempty"`
	// Events are what happens to each design under packets of the first size.
	Events []string `json:"events,omitempty"`
}

// Kind is the kind "designs".
var Kind = experiment.Kind{Name: "designs", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment {
	return &Experiment{
		Designs: Names(), Sizes: []string{"64", "imix", "1400"}, Sessions: 1024, Latency: []float64{0.1, 0.5, 0.9},
		Trial: experiment.Duration(500 * time.Millisecond), Requests: experiment.Duration(time.Second), Offered: signalling.Shares,
		Events: EventNames(), Series: true,
	}
}}

// mostSessions are as many as the tables have room for.
const mostSessions = 1 << 20

// Flags offers the parameters.
func (e *Experiment) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Designs, "designs", e.Designs, "`names` of designs: "+strings.Join(Names(), ", "))
	f.StringArrayVar((*[]string)(&e.Against), "against", e.Against, "`NAME=COMMAND` of another UPF, which is started beside ours; may be repeated")
	f.StringSliceVar(&e.Sizes, "sizes", e.Sizes, "`octets` of frames with FCS, or imix")
	f.IntVar(&e.Sessions, "sessions", e.Sessions, "`number` of sessions, as Open5GS sets them up")
	f.TextVar(&e.Trial, "trial", e.Trial, "`duration` of trials that decide about a rate")
	f.BoolVar(&e.Series, "series", e.Series, "measure packets against numbers of sessions, SDF filters and gNBs, too")
	for _, s := range e.series() {
		f.UintSliceVar(s.numbers, s.flag, *s.numbers, fmt.Sprintf("`numbers` of %s, up to %d, to measure packets against", s.title, s.most))
	}
	f.Float64Var(&e.WattsPerCore, "watts-per-core", e.WattsPerCore, "`watts` that a core takes, for what 10 and 100 Gbit/s take")
	f.Float64Var(&e.Price, "price", e.Price, "`price` of a core, in a currency of yours, for what 10 and 100 Gbit/s cost")
	f.StringSliceVar(&e.Events, "events", e.Events, "`names` of what happens under load: "+strings.Join(EventNames(), ", "))
	f.TextVar(&e.Requests, "requests", e.Requests, "`duration` for which handovers are sent (0s: none)")
}

// CPUs are those that it measures on.
func (*Experiment) CPUs(chosen int) ([]int, error) { return proc.Both(chosen) }

// Quick makes it a minute.
func (e *Experiment) Quick() {
	e.Sizes, e.Sessions, e.Latency = e.Sizes[:1], 64, []float64{0.5}
	e.Offered, e.Events, e.Series = []float64{0, 0.5}, e.Events[:min(1, len(e.Events))], false
	e.Trial, e.Requests = experiment.Duration(50*time.Millisecond), min(e.Requests, experiment.Duration(200*time.Millisecond))
}

// Validate says what is wrong with the parameters.
func (e *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Chosen(want, "designs", e.Designs, Names())
	e.Against.check(want)
	one, _ := signalling.Uplink(1)
	known := func(size string) bool { _, err := device.Sized(one, size); return err == nil }
	experiment.Each(want, "sizes", "64 to 1518 octets, or imix", "%q is no size", e.Sizes, known)
	want(len(e.Sizes) > 0, "sizes", "such as 64, imix and 1400", "there is none")
	want(e.Sessions >= window && e.Sessions <= mostSessions, "sessions", fmt.Sprintf("%d to %d", window, mostSessions), "%d is out of range", e.Sessions)
	share := func(share float64) bool { return share > 0 && share <= 1 }
	experiment.Each(want, "latency", "a share of PDR: more than 0, up to 1", "%v is none", e.Latency, share)
	offered := func(share float64) bool { return share >= 0 && share <= 1 }
	experiment.Each(want, "offered", "a share of PDR: 0 to 1", "%v is none", e.Offered, offered)
	for _, s := range e.series() {
		possible := func(n uint) bool { return n > 0 && n <= s.most }
		experiment.Each(want, s.field, fmt.Sprintf("1 to %d", s.most), "%d is out of range", *s.numbers, possible)
	}
	const most = 1e9
	want(e.WattsPerCore >= 0 && e.WattsPerCore <= most, "watts_per_core", "0 to 1e9", "%v is none", e.WattsPerCore)
	want(e.Price >= 0 && e.Price <= most, "price", "0 to 1e9", "%v is none", e.Price)
	want(e.Trial >= experiment.Duration(10*time.Millisecond), "trial", "10ms or longer", "%s is too short", e.Trial)
	if len(e.Events) > 0 { // none is a choice, too
		experiment.Chosen(want, "events", e.Events, EventNames())
	}
	return experiment.Check(list)
}

// task is something that is measured of each design in one go.
type task struct {
	name    string // after the design's in the name of a point: a size, "N4", "events"
	takes   time.Duration
	measure func(ctx context.Context, b *bench, design string) ([]experiment.Sample, error)
}

// tasks are all, in their order.
func (e *Experiment) tasks() []task {
	return slices.Concat(e.packetTasks(), e.handoverTasks(), e.eventTasks(), e.seriesTasks())
}

// point is a task of a design.
type point struct {
	design string
	task   task
}

func (p point) id() string { return p.design + ", " + p.task.name }

func (e *Experiment) points() (list []point) {
	for _, d := range chosen(e) {
		tasks := e.tasks()
		if d.name == ideal {
			tasks = idealTasks()
		}
		for _, t := range tasks {
			list = append(list, point{d.name, t})
		}
	}
	return list
}

// Plan says what will be measured.
func (e *Experiment) Plan() (experiment.Plan, error) {
	p := experiment.Plan{SetUp: time.Duration(len(chosen(e))) * 2 * time.Second}
	for _, at := range e.points() {
		p.Points = append(p.Points, experiment.Point{ID: at.id(), Takes: at.task.takes})
	}
	return p, nil
}

// Open sets up a node for each design.
func (e *Experiment) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &bench{Experiment: e, Setting: s, at: map[string]point{}, uut: map[string]*upf{}}
	defer b.OnError(&err)
	if b.cpus, err = proc.PickPair(s.CPU); err != nil {
		return nil, err
	}
	if b.cpus.Generator == b.cpus.Device {
		return nil, device.ErrOneCPU
	}
	for _, prepare := range []func() (func() error, error){proc.GoAhead, proc.Awake} {
		back, err := prepare()
		if err != nil {
			return nil, err
		}
		b.Later(back)
	}
	for _, p := range e.points() {
		b.at[p.id()] = p
	}
	for _, d := range chosen(e) {
		if d.name == ideal {
			if b.card, err = openCard(ctx, e, s); err != nil {
				return nil, err
			}
			b.Later(b.card.Close)
			continue
		}
		if b.uut[d.name], err = openUPF(ctx, b, d.name, d, extent{sessions: e.Sessions, gnbs: 1}); err != nil {
			return nil, heldAgainst(d, err)
		}
		b.Later(b.uut[d.name].Close)
	}
	back, err := proc.Stay(b.cpus.Generator) // the other CPU is the UPF's alone
	b.Later(back)
	return b, err
}
