package designs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// lenFCS is what a frame has behind what is received of it.
const lenFCS = 4

// shareOfCPU is the share of PDR at which CPU time is measured.
const shareOfCPU = 0.5

// packetTasks are one for each size of packets.
func (e *Experiment) packetTasks() (list []task) {
	for _, size := range e.Sizes {
		list = append(list, task{
			name: size, takes: time.Duration(device.TrialsOfSearch+1+len(e.Latency)) * (time.Duration(e.Trial) + device.SetUpTrial),
			measure: func(ctx context.Context, b *bench, design string) ([]experiment.Sample, error) {
				return b.packets(ctx, design, size)
			},
		})
	}
	return list
}

// packets finds PDR, and then CPU time and latency at shares of it.
func (b *bench) packets(ctx context.Context, design, size string) (list []experiment.Sample, err error) {
	pair, sent, err := b.pair(ctx, b.uut[design], size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	pdr, err := b.pdrOf(ctx, design, size, pair, sent)
	if err != nil {
		return nil, err
	}
	add := func(metric, unit string, value float64, more ...string) {
		labels := Labels(design).With("size", size)
		list = append(list, experiment.Sample{Metric: metric, Labels: labels.With(more...), Unit: unit, Value: value})
	}
	rate := max(pdr.Throughput, pdr.Lower)
	switch {
	case pdr.Cause == search.Regular:
		add(metricPackets, "packets/s", pdr.Throughput)
	case pdr.Cause == search.GeneratorLimited:
		add(metricAtLeast, "packets/s", pdr.Lower)
		b.Warn("%s, %s: %s", design, size, pdr)
	default:
		b.Warn("%s, %s: %s", design, size, pdr)
	}
	if rate < device.Lowest {
		return list, nil
	}
	trial := func(share float64, untimed bool) (traffic.Outcome, error) {
		return pair.Run(ctx, traffic.Trial{Template: sent, Rate: max(device.Lowest, share*rate), Duration: time.Duration(b.Trial), Untimed: untimed})
	}
	o, err := trial(shareOfCPU, true)
	if err != nil {
		return nil, err
	}
	add(metricCPU, "ns", b.busy(o)/float64(o.Received))
	if size == b.costSize() {
		list = append(list, b.cost(design, size, rate, float64(o.Octets)/float64(o.Received)+lenFCS)...)
	}
	for _, share := range b.Latency {
		if o, err = trial(share, false); err != nil {
			return nil, err
		}
		load := percent(share)
		add(metricP50, "us", o.Latency.Quantile(0.5)/1e3, "load", load)
		add(metricP99, "us", o.Latency.Quantile(0.99)/1e3, "load", load)
	}
	return list, nil
}

// busy is the CPU time of the device's core in a trial, in ns: the UPF, and the program
// that receives.
func (b *bench) busy(o traffic.Outcome) float64 {
	for _, c := range o.CPU.Cores {
		if c.CPU == b.cpus.Device {
			return (1 - c.Idle) * float64(o.Elapsed)
		}
	}
	return 0
}

// packetFigures show packets per second, their cost and their latency.
func (e *Experiment) packetFigures() []result.Figure {
	list := []result.Figure{
		{
			ID: "designs_packets", Title: "Packets per second of one core", Kind: result.Bars, Metric: metricPackets, X: labelDesign, Series: "size", YTitle: "packets/s",
			Headline: "packets/s of UEs, on one core",
			Caption:  "The highest rate with at most 0.5 % of loss (PDR), found by MLRsearch (RFC 9971): packets of all sessions from N3, out of GTP-U, to N6. One core has the UPF and the program that receives. Nothing is said of more cores than there were.",
		},
		{
			ID: "designs_cpu", Title: "CPU time of a packet", Kind: result.Bars, Metric: metricCPU, X: labelDesign, Series: "size", YTitle: "CPU time",
			Caption: "What the UPF's core was busy for, by packet, at half of the design's own PDR. The generator has another core and is not in it, the program that receives is. SoftUPF polls: its time holds waiting for packets.",
		},
	}
	for _, share := range e.Latency {
		load := percent(share)
		list = append(list, result.Figure{
			ID: fmt.Sprintf("designs_latency_%d", int(100*share)), Title: "Latency at " + load + " of PDR, P99", Kind: result.Bars, Metric: metricP99,
			Where: result.Labels{"load": load}, X: labelDesign, Series: "size", YTitle: "latency", Anchors: latencies,
			Caption: "From the making of a packet to the program at the receiving interface. Each design has its own PDR, so each is equally busy.",
		})
	}
	return list
}

// latencies are the paper's, at a load that it does not name.
var latencies = []result.Anchor{
	anchor(softUPF, 138, "us", "SoftUPF, 64 octets"), anchor(softUPF, 176, "us", "SoftUPF, IMIX"), anchor(softUPF, 294, "us", "SoftUPF, 1,400 octets"),
	anchor(dpOffload, 130, "us", "DPOffload, 64 octets"), anchor(dpOffload, 140, "us", "DPOffload, IMIX"), anchor(dpOffload, 222, "us", "DPOffload, 1,400 octets"),
}

// percent is the label of a share.
func percent(share float64) string { return strconv.Itoa(int(100*share)) + " %" }
