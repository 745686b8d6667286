package cost

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Report is what `culvert bench functions` says.
type Report struct {
	Bench       string       `json:"bench"`
	Baseline    string       `json:"baseline"`
	Rows        []reportRow  `json:"rows"`
	Environment Environment  `json:"environment"`
	Samples     []RowSamples `json:"samples"`
}

// reportRow is one function. NS is the CPU time of a packet from generator to
// sink; Ratio is the baseline's by it, with its 95 % interval. KernelRatio is
// the kernel's time by ours.
type reportRow struct {
	Name        string   `json:"name"`
	Entries     uint32   `json:"entries"`
	NS          float64  `json:"ns"`
	Ratio       float64  `json:"ratio"`
	Low         float64  `json:"low"`
	High        float64  `json:"high"`
	KernelRatio *float64 `json:"kernel_ratio"`
}

// RowSamples are a row's figures of each round, from which it can be drawn
// again. TestRunNS is of the program alone.
type RowSamples struct {
	Name       string    `json:"name"`
	Entries    uint32    `json:"entries"`
	TestRunNS  float64   `json:"test_run_ns"`
	AddedNS    float64   `json:"added_ns"`
	LiveNS     []float64 `json:"live"`
	BaselineNS []float64 `json:"baseline"`
	KernelNS   []float64 `json:"kernel,omitempty"`
	TestRun    []float64 `json:"test_run"`
	Front      []float64 `json:"test_run_front"`
}

// Measured are a row's samples: one of each for every round.
type Measured struct {
	*Row
	live, baseline, linux, testRun, front []float64
}

// MeasuredRow finds the samples of a row in a run, by their labels.
func MeasuredRow(r *Row, run *result.Run, labels result.Labels) Measured {
	get := func(metric string) (m result.Measurement) {
		if list := run.Select(metric, labels); len(list) > 0 {
			m = list[0]
		}
		return m
	}
	packet, front := get(MetricPacket), get(MetricFront)
	return Measured{r, packet.Samples, packet.Baseline, get(MetricKernel).Samples, front.Samples, front.Baseline}
}

// MakeReport leaves out rows that a run that was stopped has no samples of.
func MakeReport(bench string, rows []Measured, e Environment) Report {
	out := Report{Bench: bench, Baseline: catalog.BaselineName, Environment: e}
	for _, r := range rows {
		if len(r.live) == 0 {
			continue
		}
		ratio, low, high := stats.Interval(r.baseline, r.live)
		rr := reportRow{Name: r.Name, Entries: r.Entries, NS: stats.Median(r.live), Ratio: ratio, Low: low, High: high}
		if len(r.linux) > 0 {
			k, _, _ := stats.Interval(r.linux, r.live)
			rr.KernelRatio = &k
		}
		out.Rows = append(out.Rows, rr)
		out.Samples = append(out.Samples, RowSamples{
			Name: r.Name, Entries: r.Entries,
			TestRunNS: stats.Median(r.testRun) - stats.Median(r.front), AddedNS: stats.Median(r.live) - stats.Median(r.baseline),
			LiveNS: r.live, BaselineNS: r.baseline, KernelNS: r.linux, TestRun: r.testRun, Front: r.front,
		})
	}
	return out
}

// WriteJSON writes a report, indented.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// WriteTable writes a line for each row, and explains the columns.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "function\tentries\tns\tadded\ttest_run\tratio\t95 %\tkernel\t")
	for i, row := range r.Rows {
		s := r.Samples[i]
		kernel := "-"
		if row.KernelRatio != nil {
			kernel = fmt.Sprintf("%.1f x", *row.KernelRatio)
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%+.1f\t%.1f\t%.3f\t%.3f to %.3f\t%s\t\n",
			row.Name, row.Entries, row.NS, s.AddedNS, s.TestRunNS, row.Ratio, row.Low, row.High, kernel)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
ns        CPU time of a packet: the generator, the device, the function, the sink, on one core
added     ns more than %s of the same frame in the same round
test_run  ns of the program alone, without the generator (BPF_PROG_TEST_RUN)
ratio     %[1]s by function: the median of %d rounds, and its 95 %% interval
kernel    how many times as long the kernel takes for the same frame
%s
`, r.Baseline, r.Environment.Rounds, r.Environment)
	return err
}

// Environment is where figures come from.
type Environment struct {
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Load     string            `json:"load"` // average, when it began
	Commit   string            `json:"commit"`
	Version  string            `json:"version"`
	DataPath string            `json:"data_path"` // hash of the loaded build
	Offloads map[string]string `json:"offloads"`  // of the receiving interface
	Rounds   int               `json:"rounds"`
	Packets  uint32            `json:"packets"` // of a live run
}

// EnvironmentOf is a run's, whose packets of one run are not in it.
func EnvironmentOf(run *result.Run, packets int) Environment {
	e := run.Environment
	return Environment{
		Kernel: e.Kernel, CPU: e.CPU, CPUs: e.CPUs, Load: e.Load, Commit: e.Commit, Version: e.Version, DataPath: e.DataPath,
		Offloads: e.Offloads, Rounds: run.Rounds, Packets: uint32(packets),
	}
}

func (e Environment) String() string {
	return fmt.Sprintf("%s, Linux %s, %d CPUs, load %s, commit %s", e.CPU, e.Kernel, e.CPUs, e.Load, e.Commit)
}
