package ambr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// The directions.
const (
	uplink   = "uplink"
	downlink = "downlink"
)

// traffic is a kind of it, by what iperf3 is to do.
type traffic struct {
	name, meaning string
	udp           bool
	flows         int
	octets        int // of each of many connections, one after another; 0: one connection
}

var traffics = []traffic{
	{name: "tcp", meaning: "one connection", flows: 1},
	{name: "tcp-4", meaning: "four connections at once", flows: 4},
	{name: "tcp-short", meaning: "connections of 1 MiB, one after another", flows: 1, octets: 1 << 20},
	{name: "udp", meaning: "UDP at twice the AMBR", flows: 1, udp: true},
}

// Params are the parameters of the experiment.
type Params struct {
	// AMBR are rates of the session, in Mbit/s of T-PDUs.
	AMBR []int `json:"ambr"`
	// RTT are round-trip times that the delay line makes.
	RTT       []experiment.Duration `json:"rtt"`
	Direction []string              `json:"direction"`
	Traffic   []string              `json:"traffic"`
	// Congestion is the congestion control of TCP, as the kernel calls it.
	Congestion string `json:"congestion"`
	// Time is how long each sends.
	Time experiment.Duration `json:"time"`
}

// Kind is the experiment's.
var Kind = experiment.Kind{Name: "ambr", NoiseLimit: noiseLimit, New: func() experiment.Experiment {
	return &Params{
		AMBR: []int{20, 100, 500}, RTT: []experiment.Duration{experiment.Duration(500 * time.Microsecond), experiment.Duration(20 * time.Millisecond), experiment.Duration(100 * time.Millisecond)},
		Direction: Directions(), Traffic: Traffics(), Congestion: "cubic", Time: experiment.Duration(30 * time.Second),
	}
}}

// noiseLimit is more than that of rates: the AMBR, not the CPU, is to be what limits
// the traffic, and the benchmark goes before other programs.
const noiseLimit = 0.5

// Directions returns the names of the directions.
func Directions() []string { return []string{uplink, downlink} }

// Traffics returns the names of the kinds of traffic.
func Traffics() (names []string) {
	for _, t := range traffics {
		names = append(names, t.name)
	}
	return names
}

// Flags offers the parameters.
func (p *Params) Flags(f *pflag.FlagSet) {
	f.IntSliceVar(&p.AMBR, "ambr", p.AMBR, "`rates` of the session, in Mbit/s")
	f.Var(&durations{&p.RTT}, "rtt", "round-trip times, as a `list`")
	f.StringSliceVar(&p.Direction, "direction", p.Direction, "`directions` of the traffic: "+strings.Join(Directions(), ", "))
	f.StringSliceVar(&p.Traffic, "traffic", p.Traffic, "`kinds` of traffic: "+strings.Join(Traffics(), ", "))
	f.StringVar(&p.Congestion, "congestion", p.Congestion, "congestion `control` of TCP, as the kernel calls it")
	f.TextVar(&p.Time, "time", p.Time, "`duration` for which each sends")
}

// durations is a flag of durations, with commas between them.
type durations struct{ list *[]experiment.Duration }

// String writes them.
func (d *durations) String() string {
	if d.list == nil {
		return ""
	}
	var words []string
	for _, v := range *d.list {
		words = append(words, v.String())
	}
	return strings.Join(words, ",")
}

// Set reads them.
func (d *durations) Set(text string) error {
	var list []experiment.Duration
	for word := range strings.SplitSeq(text, ",") {
		var v experiment.Duration
		if err := v.UnmarshalText([]byte(word)); err != nil {
			return err
		}
		list = append(list, v)
	}
	*d.list = list
	return nil
}

// Type is what help calls it.
func (*durations) Type() string { return "durations" }

// Quick makes it seconds.
func (p *Params) Quick() {
	p.AMBR, p.RTT, p.Direction = p.AMBR[:min(1, len(p.AMBR))], p.RTT[:min(1, len(p.RTT))], p.Direction[:min(1, len(p.Direction))]
	p.Time = min(p.Time, experiment.Duration(2*time.Second))
}

// CPUs are those that it measures on.
func (*Params) CPUs(int) ([]int, error) { return proc.Allowed() }

// What there may be.
const (
	mostAMBR  = 10_000
	mostRTT   = time.Second
	leastTime = time.Second
	mostTime  = 10 * time.Minute
)

// Validate says everything that is wrong.
func (p *Params) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Each(want, "ambr", fmt.Sprintf("1 to %d Mbit/s", mostAMBR), "%d is out of range", p.AMBR, func(r int) bool { return r >= 1 && r <= mostAMBR })
	want(len(p.AMBR) > 0, "ambr", "such as 20 and 100", "there is none")
	experiment.Each(want, "rtt", "0s to "+mostRTT.String(), "%v is out of range", p.RTT, func(d experiment.Duration) bool { return time.Duration(d) <= mostRTT })
	want(len(p.RTT) > 0, "rtt", "such as 20ms", "there is none")
	experiment.Chosen(want, "direction", p.Direction, Directions())
	experiment.Chosen(want, "traffic", p.Traffic, Traffics())
	want(p.Congestion != "", "congestion", "such as cubic", "it is empty")
	time := time.Duration(p.Time)
	want(time >= leastTime && time <= mostTime, "time", fmt.Sprintf("%v to %v", leastTime, mostTime), "%v is out of range", time)
	for _, at := range repeated(p.points()) {
		want(false, "ambr, rtt", "give each once", "%s is there twice", at)
	}
	return experiment.Check(list)
}

func repeated(points []point) (ids []string) {
	known := map[string]bool{}
	for _, at := range points {
		if known[at.id()] {
			ids = append(ids, at.id())
		}
		known[at.id()] = true
	}
	return ids
}

// point is traffic through a rate, with a round-trip time.
type point struct {
	traffic   traffic
	direction string
	ambr      int
	rtt       time.Duration
}

func (p point) id() string {
	return fmt.Sprintf("%s %s, %d Mbit/s, RTT %v", p.traffic.name, p.direction, p.ambr, p.rtt)
}

func (p point) labels() result.Labels {
	return result.Labels{labelTraffic: p.traffic.name, labelDirection: p.direction, labelAMBR: fmt.Sprint(p.ambr), labelRTT: p.rtt.String()}
}

func (p *Params) points() (list []point) {
	for _, t := range traffics {
		if !slices.Contains(p.Traffic, t.name) {
			continue
		}
		for _, direction := range p.Direction {
			for _, ambr := range p.AMBR {
				for _, rtt := range p.RTT {
					list = append(list, point{t, direction, ambr, time.Duration(rtt)})
				}
			}
		}
	}
	return list
}

// How long things take besides what is sent: what was seen, and some more.
const (
	takesLab    = 10 * time.Second
	takesAround = 2 * time.Second
)

// Plan is everything that will be measured.
func (p *Params) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: takesLab}
	for _, at := range p.points() {
		plan.Points = append(plan.Points, experiment.Point{ID: at.id(), Takes: time.Duration(p.Time) + takesAround})
	}
	return plan, nil
}
