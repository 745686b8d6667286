package device

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// Experiment is `culvert bench device`: the throughput and the latency of whatever is
// between two interfaces, and of built-in devices to compare it with.
type Experiment struct {
	// TX and RX are the interfaces that the device is between; none: only the
	// built-in ones are measured.
	TX      string `json:"tx,omitempty"`
	RX      string `json:"rx,omitempty"`
	TXNetns string `json:"tx_netns,omitempty"` // a name, or a path
	RXNetns string `json:"rx_netns,omitempty"`
	// MAC is the address of the device's interface behind TX, where the template
	// has none.
	MAC traffic.MAC `json:"mac,omitempty"`
	// Template is what is sent: a name, or a file; Expect what must come out.
	Template string `json:"template,omitempty"`
	Expect   string `json:"expect,omitempty"`
	Method   string `json:"method,omitempty"` // live or packet

	// Against are the built-in devices: kernel, culvert, or one function of
	// theirs, as in kernel/end.
	Against []string `json:"against,omitempty"`
	Sizes   []string `json:"sizes,omitempty"` // octets with FCS, or imix

	// The goals of the search (RFC 9971): NDR loses nothing, PDR as much as Loss.
	Loss    float64             `json:"loss,omitempty"`
	Exceed  float64             `json:"exceed,omitempty"`
	Width   float64             `json:"width,omitempty"`
	Initial experiment.Duration `json:"initial,omitempty"`
	Final   experiment.Duration `json:"final,omitempty"`
	Sum     experiment.Duration `json:"sum,omitempty"`
	// Latency is at which shares of PDR it is measured, Curve at which rates, in
	// Mpps, the loss.
	Latency []float64 `json:"latency,omitempty"`
	Curve   []float64 `json:"curve,omitempty"`
}

// Lowest is the lowest load, in packets/s: a trial of 0.1 s has 100 packets.
const Lowest = 1000

func newDevice() *Experiment {
	return &Experiment{
		Template: "ipv4", Against: []string{KernelDevice, CulvertDevice}, Sizes: []string{"64", "imix", "1518"},
		Loss: 0.005, Exceed: 0.5, Width: 0.02,
		Initial: experiment.Duration(200 * time.Millisecond), Final: experiment.Duration(time.Second), Sum: experiment.Duration(3 * time.Second),
		Latency: []float64{0.1, 0.5, 0.9}, Curve: []float64{0.25, 0.5, 1, 1.5, 2, 3, 4, 6},
	}
}

// longestFrame is Ethernet's, in octets with FCS: a device need not take longer ones.
const longestFrame = 1518

// Kind is what files and `culvert bench device` make.
var Kind = experiment.Kind{Name: "device", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment { return newDevice() }}

// Flags offers the parameters.
func (d *Experiment) Flags(f *pflag.FlagSet) {
	f.StringVar(&d.TX, "tx", d.TX, "`interface` that sends to the device")
	f.StringVar(&d.RX, "rx", d.RX, "`interface` that gets what the device forwards")
	f.StringVar(&d.TXNetns, "tx-netns", d.TXNetns, "network `namespace` that --tx is in")
	f.StringVar(&d.RXNetns, "rx-netns", d.RXNetns, "network `namespace` that --rx is in")
	f.TextVar(&d.MAC, "mac", d.MAC, "Ethernet `address` of the device's interface behind --tx")
	f.StringVar(&d.Template, "template", d.Template, "what is sent: a `file`, or one of "+strings.Join(TemplateNames(), ", "))
	f.StringVar(&d.Expect, "expect", d.Expect, "what must come out: a `file`, or one of the same (default: what is sent)")
	f.StringVar(&d.Method, "method", d.Method, "`method` of sending packets: live or packet (default: live where the interface can)")
	f.StringSliceVar(&d.Against, "against", d.Against, "built-in `devices` to compare with: kernel, culvert, or functions of theirs such as kernel/end")
	f.StringSliceVar(&d.Sizes, "sizes", d.Sizes, "`octets` of frames with FCS, or imix")
	f.Float64Var(&d.Loss, "loss", d.Loss, "`share` of packets that may be lost at PDR")
	f.Float64Var(&d.Exceed, "exceed", d.Exceed, "`share` of trials that may lose more")
	f.Float64Var(&d.Width, "width", d.Width, "how near the bounds of NDR and PDR come, as a `share`")
	f.TextVar(&d.Initial, "initial", d.Initial, "`duration` of the first trials")
	f.TextVar(&d.Final, "final", d.Final, "`duration` of the last trials")
	f.TextVar(&d.Sum, "sum", d.Sum, "`duration` of all trials that decide about one rate")
}

// CPUs are those that it measures on.
func (*Experiment) CPUs(chosen int) ([]int, error) { return proc.Both(chosen) }

// Quick makes it seconds.
func (d *Experiment) Quick() {
	d.Sizes = d.Sizes[:1]
	d.Initial, d.Final, d.Sum = experiment.Duration(50*time.Millisecond), experiment.Duration(100*time.Millisecond), experiment.Duration(300*time.Millisecond)
	d.Width, d.Latency, d.Curve = 0.1, []float64{0.5}, []float64{0.1, 0.5}
}

// goals are NDR and PDR.
func (d *Experiment) goals() []search.Goal {
	g := search.Goal{
		Name: "NDR", ExceedRatio: d.Exceed, Width: d.Width,
		Initial: time.Duration(d.Initial), Final: time.Duration(d.Final), Sum: time.Duration(d.Sum),
	}
	p := g
	p.Name, p.LossRatio = "PDR", d.Loss
	return []search.Goal{g, p}
}

// own says whether there is a device of the user's.
func (d *Experiment) own() bool { return d.TX != "" || d.RX != "" }

func (d *Experiment) tx() traffic.Port {
	return traffic.Port{Namespace: netns(d.TXNetns), Interface: d.TX}
}
func (d *Experiment) rx() traffic.Port {
	return traffic.Port{Namespace: netns(d.RXNetns), Interface: d.RX}
}

// netns is the path of a namespace that ip(8) knows by name.
func netns(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	return filepath.Join("/run/netns", name)
}

// Validate names fields as flags are named, with underscores.
func (d *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	d.checkPorts(want)
	for field, name := range map[string]string{"template": d.Template, "expect": d.Expect} {
		_, err := readTemplate(name)
		want(err == nil || name == "", field, "a YAML file, or one of "+strings.Join(TemplateNames(), ", "), "%v", err)
	}
	sent, err := readTemplate(d.Template)
	want(!d.own() || err != nil || sent.Ethernet.Destination != nil || d.MAC != nil,
		"mac", "the Ethernet address of the device's interface behind tx, here or as ethernet.destination in the template", "where does the device receive?")
	builtIn := func(name string) bool { return len(chosen(name)) > 0 }
	experiment.Each(want, "against", "one of "+strings.Join(AgainstNames(), ", "), "there is no built-in device %q", d.Against, builtIn)
	size := func(size string) bool { _, err := Sized(traffic.Template{}, size); return err == nil }
	experiment.Each(want, "sizes", fmt.Sprintf("64 to %d octets, or imix", longestFrame), "%q is no size", d.Sizes, size)
	want(len(d.Sizes) > 0, "sizes", "such as 64, imix and 1518", "there is none")
	for _, g := range d.goals() {
		if err := g.Check(); err != nil {
			want(false, "final", "see loss, exceed, width, initial, final and sum", "%v", err)
			break
		}
	}
	share := func(share float64) bool { return share > 0 && share <= 1 }
	experiment.Each(want, "latency", "a share of PDR: more than 0, up to 1", "%v is none", d.Latency, share)
	enough := func(mpps float64) bool { return mpps*1e6 >= Lowest }
	experiment.Each(want, "curve", "in Mpps, 0.001 or more", "%v is too little", d.Curve, enough)
	return experiment.Check(list)
}

// checkPorts looks at what says where the device is.
func (d *Experiment) checkPorts(want experiment.Want) {
	want(d.TX == "" || d.RX != "", "rx", "the interface that gets what the device forwards", "it is missing beside tx")
	want(d.RX == "" || d.TX != "", "tx", "the interface that sends to the device", "it is missing beside rx")
	want(!d.own() || d.tx() != d.rx(), "rx", "another interface: the device is between two", "%s is the interface that sends, too", d.RX)
	want(d.own() || len(d.Against) > 0, "tx", "give tx and rx, or against", "there is nothing to measure")
	for field, name := range map[string]string{"tx_netns": d.TXNetns, "rx_netns": d.RXNetns} {
		_, err := os.Stat(netns(name))
		want(err == nil || name == "", field, "one that `ip netns` lists, or a path", "there is no network namespace %q (%v)", name, err)
	}
	methods := []traffic.Method{traffic.Auto, traffic.Live, traffic.Packet}
	want(slices.Contains(methods, traffic.Method(d.Method)), "method", "live or packet", "there is no method %q", d.Method)
}

// Sized is a template with frames of a size.
func Sized(t traffic.Template, size string) (traffic.Template, error) {
	t.Size, t.Payload, t.IMIX = 0, 0, false
	if size == "imix" {
		t.IMIX = true
		return t, nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 64 || n > longestFrame {
		return t, fmt.Errorf("%q is no size", size)
	}
	t.Size = n
	if t.Check() != nil {
		t.Size = 0 // as short as its headers let it be
	}
	return t, nil
}

// point is what is measured in one go: a device with frames of one size.
type point struct {
	target Target
	size   string
}

func (p point) id() string { return p.target.String() + ", " + p.size }

// points are all, the user's device first.
func (d *Experiment) points() []point {
	var targets []Target
	if d.own() {
		targets = append(targets, Target{Device: "device", Function: d.TX + " to " + d.RX})
	}
	for _, name := range d.Against {
		for _, t := range chosen(name) {
			if !slices.ContainsFunc(targets, func(u Target) bool { return u.String() == t.String() }) {
				targets = append(targets, t)
			}
		}
	}
	if len(d.Against) > 0 {
		targets = append(targets, Target{Device: Veth, Function: Veth})
	}
	var list []point
	for _, t := range targets {
		for _, size := range d.Sizes {
			list = append(list, point{t, size})
		}
	}
	return list
}

// TrialsOfSearch are about as many as a search has of its shortest and its
// longest trials; what is between costs little.
const TrialsOfSearch = 8

// SetUpTrial is what a trial takes besides its packets.
const SetUpTrial = 150 * time.Millisecond

// Plan says what will be measured.
func (d *Experiment) Plan() (experiment.Plan, error) {
	one := TrialsOfSearch*(time.Duration(d.Initial)+time.Duration(d.Final)+3*SetUpTrial) +
		time.Duration(2*ringTrials+len(d.Latency)+len(d.Curve))*(time.Duration(d.Final)+SetUpTrial)
	p := experiment.Plan{SetUp: 3 * time.Second}
	for _, at := range d.points() {
		p.Points = append(p.Points, experiment.Point{ID: at.id(), Takes: one.Round(100 * time.Millisecond)})
	}
	return p, nil
}
