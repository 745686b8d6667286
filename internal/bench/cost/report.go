package cost

import (
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
// sink; Times is how many times the baseline's, with its 95 % interval, as in the
// report. Ratio is the inverse of Times: the baseline's time by ours. KernelRatio is the kernel's.
type reportRow struct {
	Name        string   `json:"name"`
	Entries     uint32   `json:"entries"`
	NS          float64  `json:"ns"`
	Times       float64  `json:"times"`
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

// NewReport has no rows yet.
func NewReport(bench string, run *result.Run, packets int) Report {
	return Report{Bench: bench, Baseline: catalog.BaselineName, Environment: EnvironmentOf(run, packets)}
}

// Add adds a row of a run, whose measurements have the labels; one that a stopped run
// has no samples of is left out.
func (r *Report) Add(row *Row, run *result.Run, labels result.Labels) {
	get := func(metric string) (m result.Measurement) {
		if list := run.Select(metric, labels); len(list) > 0 {
			m = list[0]
		}
		return m
	}
	packet, front, linux := get(MetricPacket), get(MetricFront), get(MetricKernel).Samples
	live := packet.Samples
	if len(live) == 0 {
		return
	}
	times, low, high := stats.Interval(live, packet.Baseline)
	out := reportRow{Name: row.Name, Entries: row.Entries, NS: stats.Median(live), Times: times, Ratio: 1 / times, Low: low, High: high}
	if len(linux) > 0 {
		k, _, _ := stats.Interval(linux, live)
		out.KernelRatio = &k
	}
	r.Rows = append(r.Rows, out)
	r.Samples = append(r.Samples, RowSamples{
		Name: row.Name, Entries: row.Entries,
		TestRunNS: stats.Median(front.Samples) - stats.Median(front.Baseline), AddedNS: stats.Median(live) - stats.Median(packet.Baseline),
		LiveNS: live, BaselineNS: packet.Baseline, KernelNS: linux, TestRun: front.Samples, Front: front.Baseline,
	})
}

// WriteTable writes a line for each row, and explains the columns.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "function\tentries\tns\tadded\ttest_run\ttimes\t95 %\tkernel\t")
	for i, row := range r.Rows {
		s := r.Samples[i]
		kernel := "-"
		if row.KernelRatio != nil {
			kernel = fmt.Sprintf("%.1f x", *row.KernelRatio)
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%+.1f\t%.1f\t%.3f\t%.3f to %.3f\t%s\t\n",
			row.Name, row.Entries, row.NS, s.AddedNS, s.TestRunNS, row.Times, row.Low, row.High, kernel)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
ns        CPU time of a packet: the generator, the device, the function, the sink, on one core
added     ns more than %s of the same frame in the same round
test_run  ns of the program alone, without the generator (BPF_PROG_TEST_RUN)
times     how many times as long as %[1]s takes: the median of %d rounds, and its 95 %% interval
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
