package overlay

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// Row is traffic of one kind by one variant. Ratio is its throughput by that of
// Baseline in the same round, which is flat routing with as many routers between:
// the median of the rounds, with its 95 % interval.
type Row struct {
	Name     string  `json:"name"`
	Family   string  `json:"family"`
	Protocol string  `json:"protocol"`
	GSO      bool    `json:"gso"` // at the pod
	Services int     `json:"services"`
	Gbit     float64 `json:"gbit_per_s"`
	Baseline string  `json:"baseline"`
	Ratio    float64 `json:"ratio"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	// GbitByWall is by the clock on the wall, others' use of the CPU included.
	GbitByWall float64 `json:"gbit_per_s_by_wall"`
	// The CPU is that of the sender, both nodes and the receiver.
	PacketNS      float64 `json:"cpu_ns_per_packet"`
	GiBSeconds    float64 `json:"cpu_s_per_gib"`
	PacketsPerCPU float64 `json:"packets_per_cpu_s"`
	PacketRatio   float64 `json:"packets_ratio"` // packets in a CPU second, by the baseline's
	PacketLow     float64 `json:"packets_low"`
	PacketHigh    float64 `json:"packets_high"`
	N             int     `json:"n"` // rounds
}

const bitsOfGiB = 8 << 30

// reportOf has rows in the order in which they were measured.
func reportOf(run *result.Run) Report {
	r := Report{Bench: "overlay", Environment: run.Environment, Agent: agentRows(run), Verdicts: Verdicts(run), Warnings: run.Warnings, Exchanges: exchangeRows(run), Policies: policyRows(run)}
	for _, m := range run.Select(metricRate, nil) {
		rate, ratio := m.Estimate(result.Plain), m.Estimate(result.ToBaseline)
		wall, packet := one(run, metricWall, m.Labels), one(run, metricPacket, m.Labels)
		ns, packets := packet.Estimate(result.Plain), packet.Estimate(result.OfBaseline)
		r.Rows = append(r.Rows, Row{
			Name: m.Labels[labelName], Family: m.Labels[labelFamily], Protocol: m.Labels[labelProtocol], GSO: m.Labels[labelGSO] == on, Services: servicesOf(m),
			Gbit: rate.Value / 1e9, Baseline: variantOf(m.Labels[labelName]).beside, Ratio: ratio.Value, Low: ratio.Low, High: ratio.High,
			GbitByWall: wall.Estimate(result.Plain).Value / 1e9, PacketNS: ns.Value, GiBSeconds: bitsOfGiB / rate.Value,
			PacketsPerCPU: 1e9 / ns.Value, PacketRatio: packets.Value, PacketLow: packets.Low, PacketHigh: packets.High, N: rate.N,
		})
	}
	return r
}

// one is the measurement of a metric with these labels and no others.
func one(run *result.Run, metric string, labels result.Labels) result.Measurement {
	for _, m := range run.Select(metric, labels) {
		if len(m.Labels) == len(labels) {
			return m
		}
	}
	return result.Measurement{}
}

// Report is what -o json says.
type Report struct {
	Bench       string             `json:"bench"`
	Environment result.Environment `json:"environment"`
	Rows        []Row              `json:"rows"`
	Exchanges   []ExchangeRow      `json:"exchanges"`
	Policies    []PolicyRow        `json:"policies"`
	Agent       []AgentRow         `json:"agent"`
	Verdicts    []Verdict          `json:"verdicts"`
	Warnings    []string           `json:"warnings,omitempty"`
}

// AgentRow is a thing that the agent does, or what it has of the memory.
type AgentRow struct {
	Name  string  `json:"name"`         // pod_add, policy_change or agent_memory
	By    string  `json:"by,omitempty"` // the plugin, or the agent in it; the management API, or BGP
	Nodes int     `json:"nodes"`        // that it knows
	P50   float64 `json:"p50_ms,omitempty"`
	P99   float64 `json:"p99_ms,omitempty"`
	CPU   float64 `json:"cpu_ms,omitempty"` // of the agent, for one
	MiB   float64 `json:"mib,omitempty"`
	N     int     `json:"n"` // rounds; the figures are their medians
}

func agentRows(run *result.Run) (rows []AgentRow) {
	place := map[AgentRow]int{}
	for _, m := range run.Measurements {
		if m.Metric != metricPod && m.Metric != metricChange && m.Metric != metricMemory {
			continue
		}
		nodes, err := strconv.Atoi(m.Labels[labelNodes])
		if err != nil {
			continue // somebody else's
		}
		key := AgentRow{Name: m.Metric, By: m.Labels[labelBy], Nodes: nodes, N: len(m.Samples)}
		i, known := place[key]
		if !known {
			i = len(rows)
			place[key], rows = i, append(rows, key)
		}
		to := map[string]*float64{p50: &rows[i].P50, p99: &rows[i].P99, perEach: &rows[i].CPU}[m.Labels[labelQuantile]]
		*cmp.Or(to, &rows[i].MiB) = m.Estimate(result.Plain).Value
	}
	return rows
}

// PrintJSON writes the rows of a run.
func PrintJSON(w io.Writer, _ *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, reportOf(run))
}

// PrintTable writes them for people.
func PrintTable(w io.Writer, _ *experiment.File, run *result.Run) error {
	r := reportOf(run)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Rows) > 0 {
		fmt.Fprintln(t, "name\tfamily\tprotocol\tGSO\tServices\tGbit/s\tto\tratio\t95 %\tCPU ns/packet\tCPU s/GiB\tpackets ratio\t95 %")
	}
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.2f\t%s\t%.3f\t%.3f to %.3f\t%.0f\t%.2f\t%.3f\t%.3f to %.3f\n",
			x.Name, x.Family, x.Protocol, gsoOf[x.GSO], x.Services, x.Gbit, x.Baseline, x.Ratio, x.Low, x.High, x.PacketNS, x.GiBSeconds, x.PacketRatio, x.PacketLow, x.PacketHigh)
	}
	printExchanges(t, r)
	if len(r.Agent) > 0 {
		fmt.Fprintln(t, "\nagent\tby\tnodes\tP50 ms\tP99 ms\tCPU ms\tMiB")
	}
	for _, x := range r.Agent {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", x.Name, x.By, x.Nodes, figure(x.P50), figure(x.P99), figure(x.CPU), figure(x.MiB))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := []string{""}
	for _, v := range r.Verdicts {
		lines = append(lines, v.String())
	}
	_, err := fmt.Fprintln(w, strings.Join(append(append(lines, r.Warnings...), r.Environment.String()), "\n"))
	return err
}

// figure is empty where nothing was measured.
func figure(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}
