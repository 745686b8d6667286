package n9

import (
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// The metrics.
const (
	metricDelivery  = "delivery"       // share of the packets offered that came out, both slices
	metricSlice     = "delivery_slice" // of one slice
	metricCost      = "cpu"            // CPU time of a packet in all nodes
	metricDelay     = "latency"
	metricDelayRate = "latency_offered" // at which it was measured
	metricBusy      = "cpu_busy"        // share of a CPU's time
	metricMemory    = "memory"          // of a daemon and its maps
)

func labelOf(n9 string) string { return transportOf(n9).label }

func (p point) labels(more ...string) result.Labels {
	return result.Labels{"transport": labelOf(p.n9), "direction": p.direction}.With(more...)
}

const paper = "Gramaglia et al., Experimenting with SRv6"

const nodes = "With 2 and 3 SIDs a packet goes by way of one and two service nodes more than over GTP-U or with 1 SID: their work is in it. "

// Glossary says what the figures' words mean.
func (p *Params) Glossary() map[string]string {
	return map[string]string{
		labelOf("gtpu"):        "N9 is a GTP-U tunnel from UPF1 to the slice's own UPF",
		labelOf("traditional"): "N9 is an IPv6 packet to a SID of the slice's own UPF (End.DT46); there is one SID, so no SRH",
		labelOf("enhanced"):    "N9 goes by way of a service node (End), which the SRH names, to the slice's own UPF",
		labelOf("enhanced-3"):  "N9 goes by way of two service nodes",
		labelOf("stateless"): "N3 of both slices is GTP-U over IPv6 to a SID of UPF1 (End.M.GTP6.D, the paper's figure 4b), which has no session; N9 is an IPv6 packet to " +
			"a SID of the slice's own UPF, whose argument has TEID and QFI. Down, the last SID but one is UPF1's End.M.GTP6.E",
		labelOf("stateless-func"): "as stateless, and the SRH names the slice's own UPF (End) and then a service node behind it (End.DT46), which has the data network (figure 4c): no node has a session",
		uplink:                    "from the gNB through UPF1 and the slice's own UPF to its data network",
		downlink:                  "from the data network through the slice's own UPF and UPF1 to the gNB",
		string(cost):              "a fixed rate, a third of what the slowest transport delivers whole",
		string(busy):              fmt.Sprintf("%v times the highest rate that the transport delivers whole", overload),
	}
}

// Figures show the curves, the costs and the latencies.
func (p *Params) Figures() (list []result.Figure) {
	for _, d := range p.Direction {
		list = append(list, p.curve(d))
	}
	list = append(list, result.Figure{
		ID: "fig6", Title: "CPU time of a packet at a fixed rate", Kind: result.Bars,
		Caption: "CPU time of a packet in all nodes of its way together, at one rate for all transports (a third of what the slowest of them delivers whole), " +
			"by GTP-U's in the same round: 1.1 costs a tenth more. At this rate most of it is the waking up for each packet. " + nodes +
			"The paper's figure 6, of two nodes at 10 Mbit/s, has every SRv6 variant below GTP-U.",
		Metric: metricCost, Where: result.Labels{"load": string(cost)}, X: "transport", Series: "direction", Value: result.ToBaseline,
		YTitle: "CPU time, GTP-U = 1",
	}, result.Figure{
		ID: "fig6-overload", Title: "CPU time of a packet, core saturated", Kind: result.Bars,
		Caption: "The same where more is offered than the core can do, so that it never waits: what a packet costs by itself. " + nodes,
		Metric:  metricCost, Where: result.Labels{"load": string(busy)}, X: "transport", Series: "direction", Value: result.ToBaseline,
		YTitle: "CPU time, GTP-U = 1", Headline: "times the CPU time of GTP-U on N9, all nodes together",
	}, result.Figure{
		ID: "cpu", Title: "CPU time of a packet, ns", Kind: result.Table,
		Caption: "Both in ns, with the receiving program and the interfaces between the nodes.", Metric: metricCost,
	})
	for _, d := range p.Direction {
		list = append(list, result.Figure{
			ID: "latency-" + d, Title: "Latency, " + d, Kind: result.Percentiles,
			Caption: "From the generator to the receiver, at half of the highest rate that each transport delivers whole: all nodes of the way, on one core.",
			Metric:  metricDelay, Where: result.Labels{"direction": d}, Series: "transport", YTitle: "latency", LogY: true,
		})
	}
	return append(list, result.Figure{
		ID: "slices", Title: "Delivery of each slice", Kind: result.Table,
		Caption: "Slice A has GTP-U over IPv4, slice B over IPv6. They share the queue before the core, so that overload meets both alike.", Metric: metricSlice,
	}, result.Figure{
		ID: "cores", Title: "How busy the two CPUs were", Kind: result.Table, Metric: metricBusy,
		Caption: "Share of their time that they did not idle, whoever used it. The generator never idles: it waits for the moment of each packet.",
	}, result.Figure{
		ID: "memory", Title: "Memory of each node", Kind: result.Table, Metric: metricMemory,
		Caption: "The daemon's own memory and its BPF maps. Each of these nodes has tables for 1024 sessions at most.",
	})
}

func (p *Params) curve(direction string) result.Figure {
	f := result.Figure{
		ID: "fig5-" + direction, Title: "Packet delivery ratio, " + direction, Kind: result.Lines,
		Caption: "Share of the packets of both slices that come out, by the rate of the users' packets that is offered. " +
			"One core does the work of all nodes that a packet passes: where a line falls, the core has no more time. " +
			"The highest rate delivered is where a falling curve through all rounds leaves 99.9 %: a dip at one rate that is whole again at higher ones does not count.",
		Metric: metricDelivery, Where: result.Labels{"direction": direction}, X: "offered", Series: "transport",
		XTitle: fmt.Sprintf("injected throughput, Mbit/s of packets of %d octets", p.PacketSize), YTitle: "packet delivery ratio", LogX: true,
	}
	if direction == uplink { // what the paper's text says of its figure 5, which has no numbers on its points
		const note = "bmv2 switches in VirtualBox, one virtual CPU each, i7-8650 at 1.9 GHz; size of packets not told; "
		f.Anchors = []result.Anchor{
			{Label: "paper 000, SRv6 enhanced (bmv2)", Source: paper + ", figure 5", X: "20", Y: 1, Note: note + "losses begin about here"},
			{Label: "paper 000, GTP-U (bmv2)", Source: paper + ", figure 5", X: "30", Y: 1, Note: note + "a notable drop begins about here"},
		}
	}
	return f
}

// Claims are sentences that the measurements bear out.
func (p *Params) Claims(run *result.Run) (list []string) {
	for _, d := range p.Direction {
		var parts []string
		for _, n := range p.N9 {
			if knee := result.Knee(run.Select(metricDelivery, point{n9: n, direction: d}.labels()), "offered"); knee.HasInterval() && knee.Value > 0 {
				parts = append(parts, fmt.Sprintf("%s %s (%.3g to %.3g)", labelOf(n), gbit(knee.Value), knee.Low/1e3, knee.High/1e3))
			}
		}
		if len(parts) > 0 {
			list = append(list, fmt.Sprintf("%s: highest rate of which at least %.1f %% is delivered, by a falling curve through the points: %s.", d, 100*result.Whole, strings.Join(parts, ", ")))
		}
		for _, n := range p.costed() {
			for _, m := range run.Select(metricCost, point{n9: n, direction: d}.labels("load", string(busy))) {
				// Only what differs for certain.
				if e := m.Estimate(result.ToBaseline); n != base && e.HasInterval() && (e.Low > 1 || e.High < 1) {
					list = append(list, fmt.Sprintf("%s: %s takes %.2f (%.2f to %.2f) times the CPU time of GTP-U on N9, in all nodes together, when the core is saturated.",
						d, labelOf(n), e.Value, e.Low, e.High))
				}
			}
		}
	}
	return list
}
