package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// report is what `culvert bench functions` says.
type report struct {
	Bench       string       `json:"bench"`
	Baseline    string       `json:"baseline"`
	Rows        []reportRow  `json:"rows"`
	Environment environment  `json:"environment"`
	Samples     []rowSamples `json:"samples"`
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

// rowSamples are a row's figures of each round, from which it can be drawn
// again. TestRunNS is of the program alone.
type rowSamples struct {
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

// measured are a row's samples: one of each for every round.
type measured struct {
	*row
	live, baseline, linux, testRun, front []float64
}

// measuredRow finds the samples of a row in a run, by their labels.
func measuredRow(r *row, run *result.Run, labels result.Labels) measured {
	get := func(metric string) (m result.Measurement) {
		if list := run.Select(metric, labels); len(list) > 0 {
			m = list[0]
		}
		return m
	}
	packet, front := get(metricPacket), get(metricFront)
	return measured{r, packet.Samples, packet.Baseline, get(metricKernel).Samples, front.Samples, front.Baseline}
}

// makeReport leaves out rows that a run that was stopped has no samples of.
func makeReport(bench string, rows []measured, e environment) report {
	out := report{Bench: bench, Baseline: baselineName, Environment: e}
	for _, r := range rows {
		if len(r.live) == 0 {
			continue
		}
		ratio, low, high := stats.Interval(r.baseline, r.live)
		rr := reportRow{Name: r.name, Entries: r.entries, NS: stats.Median(r.live), Ratio: ratio, Low: low, High: high}
		if len(r.linux) > 0 {
			k, _, _ := stats.Interval(r.linux, r.live)
			rr.KernelRatio = &k
		}
		out.Rows = append(out.Rows, rr)
		out.Samples = append(out.Samples, rowSamples{
			Name: r.name, Entries: r.entries,
			TestRunNS: stats.Median(r.testRun) - stats.Median(r.front), AddedNS: stats.Median(r.live) - stats.Median(r.baseline),
			LiveNS: r.live, BaselineNS: r.baseline, KernelNS: r.linux, TestRun: r.testRun, Front: r.front,
		})
	}
	return out
}

func writeJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func (r report) writeTable(w io.Writer) error {
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

// environment is where figures come from.
type environment struct {
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

// environmentOf is a run's, whose packets of one run are not in it.
func environmentOf(run *result.Run, packets int) environment {
	e := run.Environment
	return environment{
		Kernel: e.Kernel, CPU: e.CPU, CPUs: e.CPUs, Load: e.Load, Commit: e.Commit, Version: e.Version, DataPath: e.DataPath,
		Offloads: e.Offloads, Rounds: run.Rounds, Packets: uint32(packets),
	}
}

func (e environment) String() string {
	return fmt.Sprintf("%s, Linux %s, %d CPUs, load %s, commit %s", e.CPU, e.Kernel, e.CPUs, e.Load, e.Commit)
}
