package sourcesink

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
)

// encapsulation is one of the laboratory's.
type encapsulation struct{ name, label, meaning string }

// encapsulations are all, what others stand beside first.
var encapsulations = []encapsulation{
	{"gtpu", "GTP-U", "a GTP-U tunnel over IPv6, with QFI"},
	{"traditional", "SRv6 (1 SID)", "one segment (End.DT6): an IPv6 header, no SRH"},
	{"enhanced", "SRv6 (2 SIDs)", "the segment of a router between the two (the kernel's End), then the sink's"},
	{"enhanced-3", "SRv6 (3 SIDs)", "the segments of two routers, then the sink's"},
}

// Encapsulations returns their names.
func Encapsulations() (names []string) {
	for _, e := range encapsulations {
		names = append(names, e.name)
	}
	return names
}

// Params are the parameters of the experiment.
type Params struct {
	// Encapsulations are measured beside GTP-U.
	Encapsulations []string `json:"encapsulations"`
	// Rate is what is sent, in Mbit/s of UDP's payload.
	Rate float64 `json:"rate"`
	// Datagram is what is sent at once, in octets: as several datagrams, one after another, where
	// it is more than UDP can say.
	Datagram int `json:"datagram"`
	// Time is how long each sends.
	Time experiment.Duration `json:"time"`
}

// Kind is the experiment's.
var Kind = experiment.Kind{Name: "source-sink", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &Params{Encapsulations: Encapsulations(), Rate: 10, Datagram: 100_000, Time: experiment.Duration(5 * time.Second)}
}}

// Flags offers the parameters.
func (p *Params) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&p.Encapsulations, "encapsulations", p.Encapsulations, "`names` of the tunnels: "+strings.Join(Encapsulations(), ", "))
	f.Float64Var(&p.Rate, "rate", p.Rate, "`rate` at which UDP's payload is sent, in Mbit/s")
	f.IntVar(&p.Datagram, "datagram", p.Datagram, "`octets` that are sent at once: as several datagrams where UDP's length cannot say so many")
	f.TextVar(&p.Time, "time", p.Time, "`duration` for which each sends")
}

// Quick makes it seconds.
func (p *Params) Quick() { p.Time = min(p.Time, experiment.Duration(time.Second)) }

// CPUs are those that it measures on.
func (*Params) CPUs(chosen int) ([]int, error) { return proc.Both(chosen) }

// What there may be.
const (
	leastRate, mostRate         = 0.1, 1000
	leastDatagram, mostDatagram = 100, 1_000_000
	leastTime, mostTime         = time.Second, 10 * time.Minute
	mostUDP                     = math.MaxUint16 - lenUDP // payload of one datagram, without jumbograms (RFC 2675)
	lenUDP                      = 8
)

// Validate says everything that is wrong.
func (p *Params) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Chosen(want, "encapsulations", p.Encapsulations, Encapsulations())
	want(p.Rate >= leastRate && p.Rate <= mostRate, "rate", fmt.Sprintf("give %v to %d Mbit/s", leastRate, mostRate), "%v is out of range", p.Rate)
	want(p.Datagram >= leastDatagram && p.Datagram <= mostDatagram, "datagram", fmt.Sprintf("give %d to %d", leastDatagram, mostDatagram), "%d is out of range", p.Datagram)
	d := time.Duration(p.Time)
	want(d >= leastTime && d <= mostTime, "time", fmt.Sprintf("give %v to %v", leastTime, mostTime), "%v is out of range", d)
	return experiment.Check(list)
}

// measured are those that are asked for, after GTP-U.
func (p *Params) measured() (list []encapsulation) {
	for i, e := range encapsulations {
		if i == 0 || slices.Contains(p.Encapsulations, e.name) {
			list = append(list, e)
		}
	}
	return list
}

// pieces are the datagrams that are sent at once: how many, and how long each is.
func (p *Params) pieces() (count, octets int) {
	count = (p.Datagram + mostUDP - 1) / mostUDP
	return count, p.Datagram / count
}

// interval is the time between two sends.
func (p *Params) interval() time.Duration {
	count, octets := p.pieces()
	return time.Duration(float64(count*octets) * 8 / (p.Rate * 1e6) * float64(time.Second))
}

// How long things take besides what is sent: what was seen, and some more.
const (
	takesLab    = 8 * time.Second
	takesChange = time.Second
)

const pointID = "all encapsulations"

// Plan is everything that will be measured: each round all encapsulations, one after another.
func (p *Params) Plan() (experiment.Plan, error) {
	each := time.Duration(p.Time) + takesChange
	return experiment.Plan{SetUp: takesLab, Points: []experiment.Point{{ID: pointID, Takes: time.Duration(len(p.measured())) * each}}}, nil
}
