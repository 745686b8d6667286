package cost

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/smf"
)

func TestOutcomes(t *testing.T) {
	before := map[string]uint64{"forwarded": 10, "passed": 1, "hop_limit": 2}
	for name, tt := range map[string]struct {
		after map[string]uint64
		says  string
	}{
		"all forwarded":   {map[string]uint64{"forwarded": 110, "passed": 5, "hop_limit": 2}, ""},
		"one is missing":  {map[string]uint64{"forwarded": 109, "hop_limit": 2}, "forwarded 99 of 100"},
		"one too many":    {map[string]uint64{"forwarded": 111, "hop_limit": 2}, "forwarded 101 of 100"},
		"one was dropped": {map[string]uint64{"forwarded": 110, "hop_limit": 3}, "hop_limit"},
	} {
		err := checkOutcomes(before, tt.after, 100)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

func TestEnoughMemory(t *testing.T) {
	c := catalog.Configuration(catalog.Functions(catalog.ShortSize), 1000)
	dir := t.TempDir()
	for text, says := range map[string]string{
		"MemTotal:  99 kB\nMemAvailable:   64000000 kB\n": "",
		"MemTotal:  99 kB\nMemAvailable:   1000 kB\n":     "give fewer with --entries",
		"MemFree:   64000000 kB\n":                        "does not say MemAvailable",
	} {
		if err := os.WriteFile(filepath.Join(dir, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := enoughMemory(c, dir)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

func TestReportFromSamples(t *testing.T) {
	f := catalog.Function{Name: "end"}
	one, many := result.Labels{"entries": "1"}, result.Labels{"entries": "1000"}
	live := []float64{125, 110, 160}
	run := &result.Run{Rounds: 3, Measurements: []result.Measurement{
		{Metric: MetricPacket, Labels: one, Samples: live, Baseline: []float64{100, 110, 120}},
		{Metric: MetricKernel, Labels: one, Samples: []float64{500, 440, 800}, Baseline: live},
		{Metric: MetricFront, Labels: one, Samples: []float64{60, 61, 62}, Baseline: []float64{40, 45, 50}},
		{Metric: MetricPacket, Labels: many, Samples: []float64{200}, Baseline: []float64{100}},
		{Metric: MetricFront, Labels: many, Samples: []float64{70}, Baseline: []float64{40}},
	}}
	got := NewReport("functions", run, 0)
	got.Add(&Row{Function: f, Entries: 1, Beside: true}, run, one)
	got.Add(&Row{Function: f, Entries: 1000}, run, many)
	got.Add(&Row{Function: f, Entries: 7}, run, result.Labels{"entries": "7"}) // the run was stopped before
	if len(got.Rows) != 2 {
		t.Fatalf("%d rows, want 2: %+v", len(got.Rows), got.Rows)
	}
	first := got.Rows[0]
	if first.NS != 125 || first.Times != 1.25 || first.Ratio != 0.8 || first.Low != 1 || first.High != 4.0/3 {
		t.Errorf("row %+v: want 125 ns, 1.25, 1 to 1.33", first)
	}
	if first.KernelRatio == nil || *first.KernelRatio != 4 {
		t.Errorf("kernel ratio %v, want 4", first.KernelRatio)
	}
	if s := got.Samples[0]; s.TestRunNS != 16 || s.AddedNS != 15 {
		t.Errorf("samples %+v: want test run 16 and 15 added", s)
	}
	if got.Rows[1].KernelRatio != nil || got.Rows[1].Times != 2 {
		t.Errorf("row %+v: want 2 and no kernel", got.Rows[1])
	}
}

// The tables of a UPF hold the sessions of every group: two PDRs each, and two more for each SDF
// filter.
func TestTablesHoldSessions(t *testing.T) {
	const entries = 1000
	functions := catalog.UPFFunctions(catalog.ShortSize)
	p := Plan{Functions: functions, Entries: []uint32{entries}}
	c := catalog.Configuration(nil, 1)
	p.upfConfiguration(c)
	need := uint32(0)
	for _, g := range p.groups() {
		var spec smf.Spec
		g.Spec(&spec)
		need += min(g.Entries(), entries) * uint32(2+2*len(spec.Filters))
	}
	if pairs := uint32(2 * 21); need < pairs*entries { // those with 1, 4 and 16 filters
		t.Fatalf("the sessions have %d PDRs only", need)
	}
	if has := 2 * c.Limits.Sessions; has < need {
		t.Errorf("limits.sessions %d is for %d PDRs, and the sessions have %d", c.Limits.Sessions, has, need)
	}
}
