package functions

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// trafficPair are a function's packets: what is sent, and what must come out.
type trafficPair struct{ send, expect traffic.Template }

// Templates' headers.

func plainTraffic(src, dst netip.Addr) traffic.Template {
	return traffic.Template{Inner: traffic.Inner{Source: src, Destination: dst}}
}

func gtpuTraffic(inner traffic.Template, src, dst netip.Addr, teid uint32) traffic.Template {
	inner.Outer = traffic.Outer{Kind: traffic.GTPU, Source: src, Destination: dst, TEID: teid}
	return inner
}

// srv6Traffic has its segments in the order of travel.
func srv6Traffic(inner traffic.Template, src netip.Addr, reduced bool, segments ...netip.Addr) traffic.Template {
	inner.Outer = traffic.Outer{Kind: traffic.SRv6, Source: src, Segments: segments, Reduced: reduced}
	return inner
}

// counted has n tunnels, and ues n UEs.
func counted(t traffic.Template, n int) traffic.Template {
	t.TEIDs = n
	return t
}

func ues(t traffic.Template, end traffic.End, n int) traffic.Template {
	t.Inner.UE, t.UEs = end, n
	return t
}

// trafficOf are the functions that traffic is made for, with n tunnels each.
// They are those of paper 001 and their relatives.
func trafficOf(n int) map[string]trafficPair {
	user, user6 := plainTraffic(catalog.Inner4, catalog.Dst4), plainTraffic(catalog.Inner6, catalog.Dst6)
	sid := func(number uint32) netip.Addr { return catalog.SIDAt(number * catalog.SIDsOfFunction) }
	toUE := func(first netip.Addr) traffic.Template {
		return ues(plainTraffic(catalog.Inner4, first), traffic.Destination, n)
	}
	zero := 0
	ended := srv6Traffic(user, catalog.GNB6, false, sid(1), catalog.Final)
	ended.Outer.SegmentsLeft = &zero
	translated4 := counted(srv6Traffic(user, catalog.Addr("2001:db8:30:0:c000:264::"), true, catalog.Addr("2001:db8:b:4cb:71:100:0:1")), n)
	translated4.Outer.NumberAt = 12
	e4 := counted(srv6Traffic(user, catalog.Addr("2001:db8:30:0:c000:264::"), true, catalog.Addr("2001:db8:20:4c0:5863:900:0:1")), n)
	e4.Outer.NumberAt = 12
	d6 := counted(srv6Traffic(user, catalog.Source, true, catalog.Addr("2001:db8:b:600:0:1::")), n)
	d6.Outer.NumberAt = 8
	place := catalog.Sessions{}.First(0)
	at := catalog.UEAt(catalog.UENumber(catalog.FirstUE) + place)
	up := counted(ues(gtpuTraffic(plainTraffic(at, catalog.Dst4), catalog.GNB, catalog.UPF, catalog.FirstTEID+place), traffic.Source, n), n)
	up.Outer.Container, up.Outer.QFI = traffic.Uplink, 9
	toGNB := ues(plainTraffic(catalog.Dst4, at), traffic.Destination, n)
	down := counted(gtpuTraffic(toGNB, catalog.UPF, catalog.FarGTPU, catalog.FirstAccessTEID+place), n)
	down.Outer.Container, down.Outer.QFI = traffic.Downlink, 9
	steered := catalog.UE(uint32(n)) // behind gtpu_encap's
	return map[string]trafficPair{
		catalog.BaselineName: {plainTraffic(catalog.Inner4, catalog.Dst4), plainTraffic(catalog.Inner4, catalog.Dst4)},
		"gtpu_decap":         {counted(gtpuTraffic(user, catalog.GNB, catalog.UPF, 1), n), user},
		"gtpu_encap":         {toUE(catalog.UENet), gtpuTraffic(toUE(catalog.UENet), catalog.UPF, catalog.FarGTPU, 0x1234)},
		"h_encaps_red":       {toUE(steered), srv6Traffic(toUE(steered), catalog.Source, true, catalog.Segment)},
		"end":                {srv6Traffic(user, catalog.GNB6, false, sid(1), catalog.Final), ended},
		"end_dt4":            {srv6Traffic(user, catalog.GNB6, true, sid(4)), user},
		"end_dt6":            {srv6Traffic(user6, catalog.GNB6, true, sid(5)), user6},
		"end_dt46":           {srv6Traffic(user, catalog.GNB6, true, sid(6)), user},
		"h_m_gtp4_d":         {counted(gtpuTraffic(user, catalog.GNB, catalog.Translated, 1), n), translated4},
		"end_m_gtp4_e":       {e4, counted(gtpuTraffic(user, catalog.GNB, catalog.FarGTPU, 1), n)},
		"end_m_gtp6_d":       {counted(gtpuTraffic(user, catalog.GNB6, catalog.Addr("2001:db8:20:600::1"), 1), n), d6},
		"end_m_gtp6_d_di":    {gtpuTraffic(user, catalog.GNB6, catalog.Addr("2001:db8:20:700::1"), 1), srv6Traffic(user, catalog.Source, true, catalog.FarGTP6, catalog.Addr("2001:db8:20:700::1"))},
		"end_m_gtp6_e":       {srv6Traffic(user, catalog.GNB6, false, catalog.Addr("2001:db8:20:500:0:1::"), catalog.Final), gtpuTraffic(user, catalog.Source, catalog.Final, 1)},
		"uplink":             {up, ues(plainTraffic(at, catalog.Dst4), traffic.Source, n)},
		"downlink":           {toGNB, down},
	}
}

// withTraffic are the functions of a list that traffic is made for.
func withTraffic(list []catalog.Function) []catalog.Function {
	made := trafficOf(1)
	return slices.DeleteFunc(list, func(f catalog.Function) bool { _, ok := made[f.Name]; return !ok })
}

// trafficPoint is a function under one of the paper's conditions.
type trafficPoint struct {
	catalog.Function
	load  string
	trial time.Duration
}

// trafficPoints are those of an experiment.
func (e *Experiment) trafficPoints() (points []trafficPoint) {
	if e.Traffic.Runs == 0 {
		return nil
	}
	for _, size := range e.Sizes {
		for _, f := range withTraffic(e.chosen(size)) {
			if len(e.Traffic.Functions) > 0 && !slices.Contains(e.Traffic.Functions, f.Name) {
				continue
			}
			for _, load := range []string{"light", "heavy"} {
				points = append(points, trafficPoint{f, load, time.Duration(e.Traffic.Trial)})
			}
		}
	}
	return points
}

func (p trafficPoint) id() string {
	return fmt.Sprintf("traffic: %s, %d octets, %s", p.Name, p.Size, p.load)
}

// settleTime is what a trial takes besides its packets.
const settleTime = 150 * time.Millisecond

// labels also say what the function does to the length of a packet's headers.
func (p trafficPoint) labels() result.Labels {
	out := rig.LenEthernet + rig.LenIPv4 + p.Want.Payload
	if p.Want.EtherType == rig.TypeIPv6 {
		out += rig.LenIPv6 - rig.LenIPv4
	}
	header := map[int]string{-1: "shrinks", 0: "stays", 1: "grows"}[cmp.Compare(out, len(p.Data))]
	return result.Labels{"function": catalog.Titles[p.Name].Name, "packet": packetName(p.Size), "load": p.load, "header": header}
}

// Preamble and gap around a frame, and its checksum: what it takes on a wire
// besides what the receiver counts.
const aroundFrame = 20 + 4

// lightRate is the paper's: 100 Mbit/s on the wire of packets in one SRv6 header.
func lightRate(size int) float64 {
	return math.Round(100e6 / float64(8*(size+rig.LenIPv4+rig.LenIPv6+rig.LenEthernet+aroundFrame)))
}

// trafficTunnels is how many each function has in traffic.
const trafficTunnels = 1000

// trafficBench sends through the data path, through a UPF, and through L2
// forwarding alone.
type trafficBench struct {
	node.Undo
	points        map[string]trafficPoint
	l2Pair        *traffic.Pair
	pairs         map[bool]*traffic.Pair // by whether there are sessions
	cpu           int
	warn          func(format string, args ...any)
	templatePairs map[string]trafficPair
}

func openTraffic(ctx context.Context, s experiment.Setting, points []trafficPoint) (_ *trafficBench, err error) {
	b := &trafficBench{points: map[string]trafficPoint{}, pairs: map[bool]*traffic.Pair{}, warn: s.Warn, templatePairs: trafficOf(trafficTunnels)}
	defer b.OnError(&err)
	for _, p := range points {
		b.points[p.id()] = p
	}
	if b.cpu, err = proc.Chosen(s.CPU); err != nil {
		return nil, err
	}
	for _, sessions := range []bool{false, true} {
		if err := b.addNode(ctx, s, sessions); err != nil {
			return nil, err
		}
	}
	l2, err := rig.New(node.RunName()+"-l", 1)
	if err != nil {
		return nil, err
	}
	b.Later(l2.Close)
	err = l2.Net.Node.Do(func() error { return l2.Bench.Forward(l2.Index[node.PortIn], l2.Hop()) })
	if err != nil {
		return nil, err
	}
	b.l2Pair, err = b.pair(ctx, l2)
	return b, err
}

// addNode sets up a data path with the functions that have traffic, with
// sessions or without, if there are any.
func (b *trafficBench) addNode(ctx context.Context, s experiment.Setting, sessions bool) error {
	p := cost.Plan{Binary: s.Culvert, BPFFS: s.BPFFS, Name: node.RunName() + "-t", Entries: []uint32{trafficTunnels}, Packets: rig.MorePackets, CPU: b.cpu, Open: true}
	if sessions {
		p.Name += "u"
	}
	for _, point := range b.points {
		if (point.Sessions != nil) == sessions && !slices.Contains(catalog.Names(p.Functions), point.Name) {
			p.Functions = append(p.Functions, point.Function)
		}
	}
	if len(p.Functions) == 0 {
		return nil
	}
	node, err := cost.SetUp(ctx, p, 1)
	if err != nil {
		return err
	}
	b.Later(node.Close)
	b.pairs[sessions], err = b.pair(ctx, node.Node)
	return err
}

func (b *trafficBench) pair(ctx context.Context, r *rig.Rig) (*traffic.Pair, error) {
	around := r.Net.Around.Path()
	p, err := traffic.Open(ctx, traffic.Options{
		TX: traffic.Port{Namespace: around, Interface: "g0"}, RX: traffic.Port{Namespace: around, Interface: "s0"}, CPU: b.cpu,
	})
	if err == nil {
		b.Later(p.Close)
	}
	return p, err
}

// measure sends a point's packets through L2 forwarding, and through its
// function.
func (b *trafficBench) measure(ctx context.Context, id string) ([]experiment.Sample, error) {
	p := b.points[id]
	t := traffic.Trial{Duration: p.trial}
	if p.load == "light" {
		t.Rate = lightRate(p.Size)
	}
	packets := b.templatePairs[p.Name]
	t.Template = ofSize(packets.send, p.Size)
	t.Template.Ethernet.Destination = traffic.MAC(node.MAC(1))
	beside, err := b.trial(ctx, b.l2Pair, t)
	if err != nil {
		return nil, fmt.Errorf("the baseline: %w", err)
	}
	if p.Name == catalog.BaselineName {
		return p.samples(beside, beside), nil
	}
	expect := ofSize(packets.expect, p.Size)
	t.Expect = &expect
	own, err := b.trial(ctx, b.pairs[p.Sessions != nil], t)
	if err != nil {
		return nil, err
	}
	return p.samples(own, beside), nil
}

// ofSize gives a template its length.
func ofSize(t traffic.Template, size int) traffic.Template {
	t.Payload = size
	if t.Inner.Source.Is6() {
		t.Payload = catalog.Size6(size)
	}
	return t
}

// trial runs one; packets that come out otherwise than they must are no figure.
func (b *trafficBench) trial(ctx context.Context, pair *traffic.Pair, t traffic.Trial) (traffic.Outcome, error) {
	o, err := pair.Run(ctx, t)
	if err == nil && o.Corrupt+o.Unexpected+o.Unreadable+o.Duplicated > 0 {
		err = fmt.Errorf("of %d packets %d came out wrong, %d twice, and %d that nobody sent: %s",
			o.Sent, o.Corrupt+o.Unreadable, o.Duplicated, o.Unexpected, strings.Join(o.Faults[:min(1, len(o.Faults))], ""))
	}
	if err == nil && t.Rate > 0 && o.AtLimit {
		b.warn("the generator did not reach the light load in every run: these latencies are of fewer packets")
	}
	return o, err
}

// The metrics of traffic.
const (
	MetricRate       = "rate"       // packets/s that come out
	MetricThroughput = "throughput" // bit/s that come out, as on a wire
	MetricLoss       = "loss"       // share of packets
	MetricLatency    = "latency"    // median of a run, beside L2 forwarding's
)

func (p trafficPoint) samples(own, beside traffic.Outcome) []experiment.Sample {
	of := func(metric, unit string, value func(traffic.Outcome) float64) experiment.Sample {
		l2 := value(beside)
		return experiment.Sample{Metric: metric, Labels: p.labels(), Unit: unit, Value: value(own), Baseline: &l2}
	}
	// o.Rate leaves out the time in which somebody else had the CPU, that both share.
	perSecond := func(n uint64, o traffic.Outcome) float64 { return o.Rate * float64(n) / float64(max(1, o.Sent)) }
	loss := experiment.Sample{Metric: MetricLoss, Labels: p.labels(), Value: float64(own.Lost) / float64(max(1, own.Sent))}
	latency := of(MetricLatency, "ns", func(o traffic.Outcome) float64 { return medianOf(o.Latency) })
	latency.Histogram = own.Latency
	return []experiment.Sample{
		of(MetricRate, "packets/s", func(o traffic.Outcome) float64 { return perSecond(o.Received, o) }),
		of(MetricThroughput, "bit/s", func(o traffic.Outcome) float64 { return 8 * perSecond(o.Octets+o.Received*aroundFrame, o) }),
		loss, latency,
	}
}

// medianOf is a histogram's median, at its place in the bucket that it is in.
func medianOf(h *result.Histogram) float64 {
	half, seen := float64(h.Total())/2, 0.0
	for i, n := range h.Count {
		if seen+float64(n) >= half {
			low, high := float64(h.Lower[i]), float64(h.Upper[i])
			return low + (high-low)*(half-seen)/float64(n)
		}
		seen += float64(n)
	}
	return math.NaN()
}
