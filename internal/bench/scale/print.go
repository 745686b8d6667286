package scale

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// ScalingReport is what `culvert bench scaling` prints.
type ScalingReport struct {
	Bench       string           `json:"bench"`
	Rows        []scalingRow     `json:"rows"`
	Environment cost.Environment `json:"environment"`
}

// scalingRow is one function. Ratio is 2 * OneNS / TwoNS: how many times as many
// packets two cores forward as one, by CPU time. WallRatio is by the clock on the
// wall, which holds on an idle machine only.
type scalingRow struct {
	Name      string  `json:"name"`
	Entries   uint32  `json:"entries"`
	OneNS     float64 `json:"one_ns"`
	TwoNS     float64 `json:"two_ns"`
	Ratio     float64 `json:"ratio"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	WallRatio float64 `json:"wall_ratio"`
}

func scalingOf(f *experiment.File, run *result.Run) ScalingReport {
	with := f.With.(*rowsExperiment)
	out := ScalingReport{Bench: "scaling", Environment: cost.EnvironmentOf(run, with.Packets)}
	for _, p := range with.points() {
		cpu, wall := run.Select(metricTwoCores, p.labels()), run.Select(metricTwoCoresWall, p.labels())
		if len(cpu) == 0 || len(wall) == 0 {
			continue // the run was stopped before
		}
		e := cpu[0].Estimate(result.OfBaseline)
		out.Rows = append(out.Rows, scalingRow{
			Name: p.Name, Entries: p.Entries, OneNS: stats.Median(cpu[0].Baseline) / 2, TwoNS: stats.Median(cpu[0].Samples),
			Ratio: e.Value, Low: e.Low, High: e.High, WallRatio: stats.Median(wall[0].Baseline) / stats.Median(wall[0].Samples),
		})
	}
	return out
}

// PrintScalingJSON writes the rows of two cores over one.
func PrintScalingJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, scalingOf(f, run))
}

// PrintScalingTable writes the rows of two cores over one for people.
func PrintScalingTable(w io.Writer, f *experiment.File, run *result.Run) error {
	r := scalingOf(f, run)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "function\tentries\tone core, ns\ttwo cores, ns\tratio\t95 %\tby the wall\t")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.2f\t%.2f to %.2f\t%.2f\t\n",
			row.Name, row.Entries, row.OneNS, row.TwoNS, row.Ratio, row.Low, row.High, row.WallRatio)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nns: CPU time of a packet; ratio: twice one by two, median and 95 %% interval of %d rounds; by the wall: holds on an idle machine\n%s\n",
		r.Environment.Rounds, r.Environment)
	return err
}

// recoverRow is how long N4 is silent when the daemon is killed and started again
// at once, in seconds.
type recoverRow struct {
	Name    string  `json:"name"`
	Entries uint32  `json:"entries"`
	Repeats int     `json:"repeats"`
	Median  float64 `json:"median_s"`
	Max     float64 `json:"max_s"`
}

// held is what is kept when all sessions are there: octets of the daemon,
// resident, and of the data path's tables.
type held struct {
	Sessions    uint32 `json:"sessions"`
	DaemonBytes uint64 `json:"daemon_bytes"`
	TableBytes  uint64 `json:"table_bytes"`
}

// upfReport is what `culvert bench upf` prints.
type upfReport struct {
	packets  cost.Report
	pfcp     []cost.PFCPRow
	recovery recoverRow
	held     held
}

func upfReportOf(f *experiment.File, run *result.Run) (r upfReport) {
	with := f.With.(*rowsExperiment)
	r.packets = cost.NewReport("upf", run, with.Packets)
	for _, p := range with.points() {
		r.packets.Add(p.Row, run, p.labels())
	}
	for _, m := range run.Select(MetricN4, nil) {
		row := cost.PFCPRow{Name: "pfcp_" + m.Labels["procedure"], PerSecond: stats.Median(m.Samples)}
		row.Entries, _ = strconv.Atoi(m.Labels["sessions"]) // n4Samples wrote it
		for _, t := range run.Select(metricN4Time, m.Labels) {
			us := stats.Median(t.Samples) / 1000
			if t.Labels["share"] == n4Shares[0] {
				row.P50 = us
			} else {
				row.P99 = us
			}
		}
		r.pfcp = append(r.pfcp, row)
	}
	for _, m := range run.Select(MetricMemory, nil) {
		n, _ := strconv.Atoi(m.Labels["sessions"])
		r.held.Sessions = uint32(n)
		if octets := uint64(m.Samples[0]); m.Labels["held"] == holders[0] {
			r.held.DaemonBytes = octets
		} else {
			r.held.TableBytes = octets
		}
	}
	r.recovery = recoverRow{Name: "pfcp_recover", Entries: RecoverSessions}
	for _, m := range run.Select(metricRecover, nil) {
		r.recovery.Repeats, r.recovery.Median, r.recovery.Max = len(m.Samples), stats.Median(m.Samples), slices.Max(m.Samples)
	}
	return r
}

// PrintUPFJSON writes packets, N4, memory and recovery of a UPF.
func PrintUPFJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	r := upfReportOf(f, run)
	var rows []any
	for _, row := range r.packets.Rows {
		rows = append(rows, row)
	}
	for _, row := range r.pfcp {
		rows = append(rows, row)
	}
	return experiment.WriteJSON(w, struct {
		Bench    string `json:"bench"`
		Baseline string `json:"baseline"`
		Rows     []any  `json:"rows"`
		held
		Environment cost.Environment  `json:"environment"`
		Samples     []cost.RowSamples `json:"samples"`
	}{"upf", r.packets.Baseline, append(rows, r.recovery), r.held, r.packets.Environment, r.packets.Samples})
}

// PrintUPFTable writes packets, N4, memory and recovery of a UPF for people.
func PrintUPFTable(w io.Writer, f *experiment.File, run *result.Run) error {
	r := upfReportOf(f, run)
	if err := r.packets.WriteTable(w); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nN4\tsessions\ta second\tp50, us\tp99, us\t")
	for _, row := range r.pfcp {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t\n", row.Name, row.Entries, row.PerSecond, row.P50, row.P99)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d sessions: the daemon has %d MiB, the tables %d MiB\nN4: %d requests under way; the SMF is on the same machine\n"+
		"from kill -9 to the first answer, with %d sessions, %d times: %.2f s, at most %.2f s\n",
		r.held.Sessions, r.held.DaemonBytes>>20, r.held.TableBytes>>20, cost.Window,
		r.recovery.Entries, r.recovery.Repeats, r.recovery.Median, r.recovery.Max)
	return err
}
