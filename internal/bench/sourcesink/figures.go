package sourcesink

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// The metrics.
const (
	metricCPU    = "cpu"       // share of a CPU's time, in %, of source and sink
	metricTotal  = "cpu_total" // of both together
	metricPacket = "packet_ns" // CPU time of a packet at one of them
)

// Labels of them.
const (
	labelEncapsulation = "encapsulation"
	labelEnd           = "end"
)

// samples are what each encapsulation took, beside GTP-U.
func samples(list []encapsulation, seen []usage) (out []experiment.Sample) {
	add := func(metric, unit string, labels result.Labels, k int, of func(usage) float64) {
		beside := of(seen[0])
		out = append(out, experiment.Sample{Metric: metric, Labels: labels, Unit: unit, Value: of(seen[k]), Baseline: &beside})
	}
	for k, e := range list {
		labels := result.Labels{labelEncapsulation: e.label}
		for _, at := range []struct {
			end string
			of  func(usage) time.Duration
		}{{source, func(u usage) time.Duration { return u.source }}, {sink, func(u usage) time.Duration { return u.sink }}} {
			labels := labels.With(labelEnd, at.end)
			add(metricCPU, "%", labels, k, func(u usage) float64 { return 100 * at.of(u).Seconds() / u.took.Seconds() })
			add(metricPacket, "ns", labels, k, func(u usage) float64 { return float64(at.of(u).Nanoseconds()) / float64(u.packets) })
		}
		add(metricTotal, "%", labels, k, func(u usage) float64 { return 100 * (u.source + u.sink).Seconds() / u.took.Seconds() })
	}
	return out
}

// Glossary says what the figures' words mean.
func (*Params) Glossary() map[string]string {
	words := map[string]string{source: "the node that encapsulates", sink: "the node that decapsulates"}
	for _, e := range encapsulations {
		words[e.label] = e.meaning
	}
	return words
}

// Figures show what is measured.
func (p *Params) Figures() []result.Figure {
	count, octets := p.pieces()
	what := fmt.Sprintf("UDP over IPv6, %g Mbit/s of payload; %d octets at once, as %d datagram(s) of %d octets in fragments of at most 1400 octets. ", p.Rate, count*octets, count, octets)
	return []result.Figure{{
		ID: "fig6", Title: "CPU by encapsulation, source and sink", Kind: result.Bars, Metric: metricCPU, X: labelEncapsulation, Series: labelEnd, YTitle: "share of a CPU, %",
		Caption: what + "CPU time of the thread that receives and handles each node's packets, by the clock on the wall. Figure 6 of the paper has the total of both, by top: every SRv6 variant below GTP-U.",
	}, {
		ID: "fig6-ratio", Title: "CPU of source and sink together, to GTP-U", Kind: result.Bars, Metric: metricTotal, X: labelEncapsulation, Value: result.ToBaseline,
		YTitle: "CPU time, GTP-U = 1", Headline: "times the CPU time of GTP-U, source and sink",
		Caption: what + "By GTP-U's in the same round: 1.1 is a tenth more. The routers between the two, which are the segments before the last one, are not counted.",
	}, {
		ID: "packets", Title: "CPU time of a packet, ns", Kind: result.Table, Metric: metricPacket, Value: result.ToBaseline,
		Caption: "Of each fragment, at source and sink. At a rate like this much of it is the waking up for packets.",
	}}
}

// Claims are sentences that the measurements bear out.
func (p *Params) Claims(run *result.Run) (list []string) {
	for _, e := range p.measured()[1:] {
		for _, m := range run.Select(metricTotal, result.Labels{labelEncapsulation: e.label}) {
			// Only what differs for certain.
			if x := m.Estimate(result.ToBaseline); x.HasInterval() && (x.Low > 1 || x.High < 1) {
				list = append(list, fmt.Sprintf("%s takes %.2f (%.2f to %.2f) times the CPU time of GTP-U, at source and sink together.", e.label, x.Value, x.Low, x.High))
			}
		}
	}
	return list
}
