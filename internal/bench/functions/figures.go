package functions

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

const paper001 = "paper 001, table II"

// Figures are the paper's, and those that only this machine has.
func (e *Experiment) Figures() []result.Figure {
	// The table on top of the report.
	summary := &result.Summary{
		Title: "What each tunnel costs a packet",
		Caption: "CPU time beside L2 forwarding of the same frame: how many times as much, and how many ns more. Both include making and receiving the packet: " +
			"for the function alone the ratio is larger, and the ns are the same. Short packets are frames of 64 octets with FCS before any tunnel, long ones of 1478.",
	}
	summary.Rows = titlesOf(tunnelsFirst)
	list := []result.Figure{
		{
			ID: "cost", Title: "CPU time of a packet, beside L2 forwarding", Kind: result.Bars, Metric: cost.MetricPacket, Where: result.Labels{"table": usual},
			X: "function", Series: "packet", Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Headline: "times the CPU time of L2 forwarding", Summary: summary,
			Caption: "From the generator to the sink on one core, by L2 forwarding of the same frame in the same round. The generator is in both, so that the function alone differs more than this.",
		},
		{
			ID: "program", Title: "The function alone", Kind: result.Bars, Metric: cost.MetricProgram, Where: result.Labels{"table": usual},
			X: "function", Series: "packet", YTitle: "time of the program",
			Caption: "Time of one run of the XDP program (BPF_PROG_TEST_RUN), without generator, devices and sink.",
		},
	}
	if slices.ContainsFunc(e.costs(), func(p costPoint) bool { return p.Beside }) {
		list = append(list, result.Figure{
			ID: "kernel", Title: "Linux, for the same frames", Kind: result.Bars, Metric: cost.MetricKernel, X: "function", Series: "packet",
			Value: result.ToBaseline, Better: result.Neither, YTitle: "times Culvert", Headline: "times as long in the Linux kernel",
			Caption: "CPU time of a packet that the Linux kernel forwards, by Culvert's. Functions that Linux does not have, or has only with a VRF device, are left out.",
		})
	}
	if slices.ContainsFunc(e.costs(), func(p costPoint) bool { return p.table == many }) {
		list = append(list, result.Figure{
			ID: "entries", Title: "With large tables", Kind: result.Bars, Metric: cost.MetricPacket, Where: result.Labels{"table": many},
			X: "function", Series: "entries", Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Caption: "Each packet is for another session or tunnel, at random: what is added is the time to fetch its entry from memory.",
		})
	}
	if slices.ContainsFunc(e.costs(), func(p costPoint) bool { return p.table == port }) {
		list = append(list, result.Figure{
			ID: "ports", Title: "On other ports, in other frames, and beside a trace", Kind: result.Bars, Metric: cost.MetricPacket, Where: result.Labels{"table": port},
			X: "function", Series: "entries", Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Caption: "The other figures are of a port that lets everything in, and of plain frames.",
		})
	}
	if len(e.trafficPoints()) > 0 {
		list = append(list, trafficFigures()...)
	}
	if len(e.ofPaper()) > 0 {
		list = append(list, result.Figure{
			ID: "fig5", Title: "Latency beside L2 forwarding, the paper's functions (figure 5)", Kind: result.Bars, Metric: MetricLatency, Where: result.Labels{"packet": "short"},
			X: "function", Only: titlesOf(e.ofPaper()), Series: "load", Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Caption: "The six functions of the paper's figure: three that make headers longer, and three that make them shorter.",
		})
	}
	return list
}

// tunnelsFirst are the functions that a reader asks for first.
var tunnelsFirst = []string{
	"gtpu_encap", "gtpu_decap", "gtpu_switch", "uplink", "downlink",
	"h_encaps_red", "h_encaps", "end", "end_dt4", "end_dt6", "end_dt46",
	"h_m_gtp4_d", "end_m_gtp4_e", "end_m_gtp6_d", "end_m_gtp6_d_di", "end_m_gtp6_e",
}

// ofPaper are the functions of the paper's figure 5 through which packets are sent.
func (e *Experiment) ofPaper() (names []string) {
	for _, p := range e.trafficPoints() {
		if name := p.Name; slices.Contains(inPaper, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

var inPaper = []string{"h_encaps_red", "h_m_gtp4_d", "gtpu_encap", "gtpu_decap", "end_dt4", "end_m_gtp4_e"}

// titlesOf are functions' names in charts.
func titlesOf(functions []string) (titles []string) {
	for _, name := range functions {
		titles = append(titles, catalog.Titles[name].Name)
	}
	return titles
}

// trafficFigures are table II, and figures 5 and 6.
func trafficFigures() []result.Figure {
	heavy := result.Labels{"load": "heavy"}
	deviation := func(id, header, title string) result.Figure {
		return result.Figure{
			ID: id, Title: title, Kind: result.Density, Metric: MetricLatency, Where: result.Labels{"load": "heavy", "packet": "short", "header": header},
			Series: "function", Centered: true, XTitle: "deviation from the function's median",
			Caption: "Share of the packets by how far their latency is from the median of their function, under heavy load (paper 001, figure 6). A narrow peak is a steady function.",
		}
	}
	return []result.Figure{
		{
			ID: "rate", Title: "Packets that come out under heavy load (table II)", Kind: result.Bars, Metric: MetricRate, Where: heavy, X: "function", Series: "packet", LogY: true,
			Caption: "Generator, function and receiver share one core, each packet has a time and is checked. Rates do not hold where others took more than 10 % of a CPU's time (the noise, below). The paper's figures are of a switch ASIC with 100 Gbit/s.",
			Anchors: []result.Anchor{
				{Label: "paper 001, short", Source: paper001, Y: 100_805_260, Unit: "packets/s", Note: "every function, Tofino, 100 Gbit/s"},
				{Label: "paper 001, long", Source: paper001, Y: 8_127_358, Unit: "packets/s", Note: "every function, Tofino, 100 Gbit/s"},
			},
		},
		{ID: "throughput", Title: "Throughput (table II)", Kind: result.Table, Metric: MetricThroughput,
			Caption: "What comes out, with all that a frame takes on a wire. The paper has 99.9 Mbit/s and 99.9 Gbit/s of SRv6, and 96.7 Mbit/s and 96.7 Gbit/s of short GTP-U."},
		{ID: "loss", Title: "Loss", Kind: result.Table, Metric: MetricLoss, Caption: "Share of the packets that did not come out. The paper has none."},
		{
			ID: "latency", Title: "Latency beside L2 forwarding (figure 5)", Kind: result.Bars, Metric: MetricLatency, Where: result.Labels{"packet": "short"}, X: "function", Series: "load",
			Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Caption: "Median latency of a run by that of L2 forwarding of the same packets. In the paper, under heavy load, what makes headers longer costs most: SRv6 encap, then T.M.Tmap (H.M.GTP4.D), then GTP-U encap.",
		},
		{
			ID: "latency_long", Title: "Latency beside L2 forwarding, long packets (figure 5)", Kind: result.Bars, Metric: MetricLatency, Where: result.Labels{"packet": "long"}, X: "function", Series: "load",
			Value: result.ToBaseline, YTitle: "times L2 forwarding",
			Caption: "As above. In the paper the long packets, of which there are fewer in a second, show less of it.",
		},
		{
			ID: "percentiles", Title: "Latency of single packets under light load", Kind: result.Percentiles, Metric: MetricLatency, Where: result.Labels{"load": "light", "packet": "short"}, Series: "function",
			Caption: "From the making of a packet to the receiver. The paper says that every function of its switch stays below 1 µs.",
			Anchors: []result.Anchor{{Label: "paper 001", Source: "paper 001, section V.B", Y: 1000, Unit: "ns", Note: "maximum of every function, Tofino"}},
		},
		deviation("deviation_grows", "grows", "Deviation of latency where headers grow (figure 6a)"),
		deviation("deviation_shrinks", "shrinks", "Deviation of latency where headers shrink (figure 6b)"),
	}
}

// Claims say what GTP-U, SRv6 and translation cost, where their intervals do not
// meet.
func (e *Experiment) Claims(run *result.Run) (claims []string) {
	cost := func(name string) (result.Estimate, bool) {
		list := run.Select(cost.MetricPacket, result.Labels{"function": catalog.Titles[name].Name, "packet": packetName(e.Sizes[0]), "table": usual})
		if len(list) != 1 {
			return result.Estimate{}, false
		}
		return list[0].Estimate(result.ToBaseline), true
	}
	for _, pair := range [][2]string{
		{"gtpu_encap", "h_encaps_red"}, {"gtpu_decap", "end_dt4"}, {"gtpu_switch", "h_m_gtp4_d"}, {"gtpu_switch", "end_m_gtp4_e"},
	} {
		a, okA := cost(pair[0])
		b, okB := cost(pair[1])
		if !okA || !okB {
			continue
		}
		one, other := catalog.Titles[pair[0]].Name, catalog.Titles[pair[1]].Name
		claims = append(claims, fmt.Sprintf("%s: %s and %s times L2 forwarding.", a.Relation(b,
			one+" costs less than "+other, fmt.Sprintf("%s and %s cost the same, up to %.0f %%", one, other, 100*result.Margin),
			one+" costs more than "+other, "It is not shown which of "+one+" and "+other+" costs more"), a, b))
	}
	return claims
}

// reportOf is a run as `culvert bench functions` has always printed it: CPU time,
// of the first size of packets.
func reportOf(f *experiment.File, run *result.Run) cost.Report {
	with := f.With.(*Experiment)
	r := cost.NewReport("functions", run, with.Packets)
	for _, p := range with.costs() {
		if p.Size == with.Sizes[0] {
			r.Add(p.Row, run, p.labels())
		}
	}
	return r
}

// PrintJSON writes the CPU time of the first size.
func PrintJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, reportOf(f, run))
}

// PrintTable writes the CPU time of the first size, then rates and latencies.
func PrintTable(w io.Writer, f *experiment.File, run *result.Run) error {
	if err := reportOf(f, run).WriteTable(w); err != nil {
		return err
	}
	var lines []string
	for _, m := range run.Select(MetricRate, nil) {
		latency := run.Select(MetricLatency, m.Labels)
		lines = append(lines, fmt.Sprintf("%s, %s, %s: %.0f packets/s, median latency %.0f ns", m.Labels["function"], m.Labels["packet"], m.Labels["load"],
			stats.Median(m.Samples), stats.Median(latency[0].Samples)))
	}
	_, err := io.WriteString(w, strings.Join(append(slices.Concat(lines, run.Claims, run.Warnings), ""), "\n"))
	return err
}
