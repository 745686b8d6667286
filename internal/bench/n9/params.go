package n9

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
)

// transport is one of N9's, as the laboratory names it.
type transport struct {
	name  string // as in the laboratory
	label string // as in figures
	paper bool   // figure 5 has it
	entry *[2]slice
}

// transports are all of the laboratory's, by how much they push.
var transports = []transport{
	{"gtpu", "GTP-U", true, &bySessions},
	{"traditional", "SRv6 traditional (1 SID)", true, &bySessions},
	{"enhanced", "SRv6 enhanced (2 SIDs)", true, &bySessions},
	{"enhanced-3", "SRv6 enhanced (3 SIDs)", false, &bySessions},
	{"stateless", "SRv6 stateless (1 SID)", true, &bySIDs},
	{"stateless-func", "SRv6 stateless, FUNC behind UPF (2 SIDs)", true, &byFunctions},
}

func transportOf(name string) transport {
	return transports[slices.IndexFunc(transports, func(t transport) bool { return t.name == name })]
}

// base is what the CPU time of the others stands beside.
const base = "gtpu"

// The directions.
const (
	uplink   = "uplink"
	downlink = "downlink"
)

// Params are the parameters of the experiment.
type Params struct {
	// N9 are the transports whose curve is measured. The CPU time of all others
	// is beside it.
	N9        []string `json:"n9"`
	Direction []string `json:"direction"`
	// Rates are those of the curve, in Mbit/s of the users' packets, of both slices
	// together. None: around the highest that are delivered whole, which are
	// searched for.
	Rates []float64 `json:"rates,omitempty"`
	// Points are as many rates as are chosen where none are given.
	Points int `json:"points"`
	// PacketSize is that of a user's packet (T-PDU), in octets.
	PacketSize int                 `json:"packet_size"`
	Trial      experiment.Duration `json:"trial"` // how long each rate is offered
}

// Kind is the experiment's.
var Kind = experiment.Kind{Name: "slices", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment {
	return &Params{N9: []string{"gtpu", "traditional", "enhanced"}, Direction: Directions(),
		Points: 12, PacketSize: 1400, Trial: experiment.Duration(300 * time.Millisecond)}
}}

// CPUs are those that it measures on.
func (*Params) CPUs(chosen int) ([]int, error) {
	nodes, generator, err := chooseCPUs(chosen)
	return []int{nodes, generator}, err
}

// Flags offers the parameters.
func (p *Params) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&p.N9, "n9", p.N9, "`transports` of N9: "+strings.Join(Transports(), ", "))
	f.StringSliceVar(&p.Direction, "direction", p.Direction, "`directions` of the traffic: uplink, downlink")
	f.Float64SliceVar(&p.Rates, "rates", p.Rates, "`rates` that are offered, in Mbit/s of the users' packets (default: around the highest without loss)")
	f.IntVar(&p.Points, "points", p.Points, "`number` of rates that are chosen")
	f.IntVar(&p.PacketSize, "packet-size", p.PacketSize, "`octets` of a user's packet")
	f.DurationVar((*time.Duration)(&p.Trial), "trial", time.Duration(p.Trial), "`time` for which each rate is offered")
}

// Quick makes it seconds.
func (p *Params) Quick() {
	p.Direction, p.Points, p.Trial = p.Direction[:min(1, len(p.Direction))], 3, experiment.Duration(100*time.Millisecond)
	p.N9 = p.N9[:min(2, len(p.N9))]
}

// Directions are the names of both.
func Directions() []string { return []string{uplink, downlink} }

// Transports are the names of N9's.
func Transports() (list []string) {
	for _, t := range transports {
		list = append(list, t.name)
	}
	return list
}

// The sizes of a T-PDU: with the tag it is at least 40, and with GTP-U over IPv6
// or three SIDs around it at most an MTU of 1500.
const (
	leastSize = 40
	mostSize  = 1400
)

const leastTrial = 20 * time.Millisecond

// Validate says everything that is wrong.
func (p *Params) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Chosen(want, "n9", p.N9, Transports())
	experiment.Chosen(want, "direction", p.Direction, Directions())
	for i, r := range p.Rates {
		at, possible := fmt.Sprintf("rates[%d]", i), r > 0 && r <= 1e6
		want(possible, at, "give Mbit/s, above 0 and at most 1000000", "%v", r)
		want(!possible || !slices.Contains(p.Rates[:i], r), at, "give it once", "%v is there twice", r)
	}
	want(p.Points >= 2 && p.Points <= 100, "points", "give 2 to 100", "%d", p.Points)
	want(p.PacketSize >= leastSize && p.PacketSize <= mostSize,
		"packet_size", fmt.Sprintf("give %d to %d: headers around it must fit an MTU of 1500", leastSize, mostSize), "%d octets", p.PacketSize)
	want(time.Duration(p.Trial) >= leastTrial, "trial", "give "+leastTrial.String()+" or more", "%v is too short to tell loss", p.Trial)
	return experiment.Check(list)
}

// What a point is of.
type aspect string

const (
	delivery aspect = "delivery" // what is delivered of what is offered, at all rates
	cost     aspect = "cost"     // CPU time at a fixed rate
	busy     aspect = "overload" // CPU time when the CPU is full
	delay    aspect = "latency"
)

// point is what is measured at once.
type point struct {
	aspect
	n9, direction string
}

func (p point) id() string { return strings.Join([]string{string(p.aspect), p.n9, p.direction}, ", ") }

// measured are the transports that are measured at all: those that are asked for,
// and the one that their CPU time stands beside.
func (p *Params) measured() []string {
	return slices.DeleteFunc(Transports(), func(n string) bool { return n != base && !slices.Contains(p.costed(), n) })
}

// costed are the transports whose CPU time is measured: of the paper's figure 6,
// so that headers differ in their SIDs only.
func (p *Params) costed() []string {
	return slices.DeleteFunc(Transports(), func(n string) bool {
		return n != "enhanced-3" && !slices.Contains(p.N9, n)
	})
}

func (p *Params) points() (list []point) {
	for _, d := range p.Direction {
		for _, n := range p.N9 {
			list = append(list, point{delivery, n, d}, point{delay, n, d})
		}
		for _, n := range p.costed() {
			list = append(list, point{cost, n, d}, point{busy, n, d})
		}
	}
	return list
}

// How long things take besides the packets: what was seen, and some more.
const (
	takesLab    = 10 * time.Second
	takesChange = 600 * time.Millisecond // of the transport or the direction
	takesTrial  = 200 * time.Millisecond
	trialsLimit = 12 // that a search takes
)

// Plan is everything that will be measured.
func (p *Params) Plan() (experiment.Plan, error) {
	trial := time.Duration(p.Trial) + takesTrial
	search := takesChange + trialsLimit*trial
	plan := experiment.Plan{SetUp: takesLab + time.Duration(len(p.measured())*len(p.Direction))*search}
	for _, x := range p.points() {
		takes := takesChange + trial
		switch x.aspect {
		case delivery:
			takes = takesChange + time.Duration(cmp.Or(len(p.Rates), p.Points))*trial
		case cost, busy:
			takes *= 2
		}
		plan.Points = append(plan.Points, experiment.Point{ID: x.id(), Takes: takes})
	}
	return plan, nil
}
