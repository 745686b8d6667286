package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// compare runs the command, and returns what it says and its exit code.
func compare(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	c := CompareCommand()
	var b bytes.Buffer
	c.SetOut(&b)
	c.SetErr(&b)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(append(args, "--out", t.TempDir()))
	err := c.Execute()
	var exit interface{ ExitStatus() int }
	switch {
	case errors.As(err, &exit):
		return b.String(), exit.ExitStatus()
	case err != nil:
		return b.String() + err.Error(), 1
	}
	return b.String(), 0
}

// The test data has one function that got slower by 4 %, and one that got faster.
func TestCompare(t *testing.T) {
	suite, later := "testdata/suite", "testdata/later"
	out, code := compare(t, suite, later)
	for _, want := range []string{"machine", "CPU ", "kernel ", "cost, to baseline: entries 1000, function GTP-U encap", "worse", "better"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if code != ExitRegression || strings.Contains(out, notShown) {
		t.Errorf("code %d:\n%s", code, out)
	}
	if out, code := compare(t, suite, later, "--margin", "0.1"); code != 0 || strings.Contains(out, " worse") || !strings.Contains(out, " better") {
		t.Errorf("with a margin of 10 %%: code %d:\n%s", code, out)
	}
	if out, code := compare(t, suite, suite+"/../suite", "--all"); code != 0 || !strings.Contains(out, notShown) {
		t.Errorf("a run beside itself: code %d:\n%s", code, out)
	}
	files := []string{suite + "/functions/run.json", later + "/functions/run.json"}
	out, code = compare(t, append(files, "-o", "json", "--ratios")...)
	var got Outcome
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != ExitRegression || len(got.Machines) != 2 {
		t.Fatalf("code %d, %v:\n%s", code, err, out)
	}
	for _, d := range got.Comparisons[0].Differences {
		if d.Value != result.ToBaseline && d.Value != result.OfBaseline {
			t.Errorf("%s %v is no ratio", d.Metric, d.Labels)
		}
	}
	for _, wrong := range [][]string{{suite, later, "-o", "yaml"}, {suite, later, "--margin", "2"}, {suite, "nowhere"}} {
		if out, code := compare(t, wrong...); code != 1 {
			t.Errorf("%v: code %d:\n%s", wrong, code, out)
		}
	}
}

// made is a run of a data path on a machine with some noise, whose function costs so many times L2
// forwarding.
func made(t *testing.T, seed uint64, times, noise float64) string {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 1))
	r := oneBar(1)
	r.Rounds, r.NoiseLimit, r.Environment.Noise = 15, 0.5, noise
	r.Figures[0].Value = result.ToBaseline
	r.Measurements = nil
	for _, name := range []string{"end", "gtpu_encap", "gtpu_decap", "uplink"} {
		m := result.Measurement{Metric: "cost", Labels: result.Labels{"function": name}, Unit: "ns"}
		for range r.Rounds {
			base := 150 * (1 + 0.2*draw.Float64())
			m.Baseline = append(m.Baseline, base)
			m.Samples = append(m.Samples, base*times*(1+0.03*draw.NormFloat64()))
		}
		r.Measurements = append(r.Measurements, m)
	}
	return store(t, r)
}

// A data path that got slower by a tenth is found, an equal one is not, and of a machine that is too
// noisy nothing is said.
func TestRegression(t *testing.T) {
	alarms := 0
	for seed := range uint64(20) {
		if _, code := compare(t, made(t, 100+seed, 1.2, 0), made(t, 200+seed, 1.2, 0), "--margin", "0.05", "--ratios"); code != 0 {
			alarms++
		}
	}
	if alarms > 0 {
		t.Errorf("%d of 20 comparisons of equal versions fail", alarms)
	}
	slower := made(t, 2, 1.2*1.12, 0)
	if out, code := compare(t, made(t, 1, 1.2, 0), slower, "--margin", "0.05", "--ratios"); code != ExitRegression || strings.Count(out, " worse") != 4 {
		t.Errorf("12 %% slower: code %d:\n%s", code, out)
	}
	if out, code := compare(t, slower, made(t, 1, 1.2, 0), "--margin", "0.05", "--ratios"); code != 0 || strings.Count(out, " better") != 4 {
		t.Errorf("12 %% faster: code %d:\n%s", code, out)
	}
	if out, code := compare(t, made(t, 1, 1.2, 0), made(t, 2, 1.5, 0.7), "--margin", "0.05", "--ratios"); code != 0 || !strings.Contains(out, "too noisy") {
		t.Errorf("slower on a noisy machine: code %d:\n%s", code, out)
	}
}

// A rate is worse if there is less of it, a time if there is more, whichever way round a ratio is.
func TestBetter(t *testing.T) {
	for _, tt := range []struct {
		unit, metric string
		figure       result.Figure
		want         result.Better
	}{
		{"ns", "cost", result.Figure{}, result.BetterLess},
		{"ns", "cost", result.Figure{Value: result.OfBaseline}, result.BetterMore},
		{"packets/s", "rate", result.Figure{}, result.BetterMore},
		{"", "loss", result.Figure{}, result.BetterLess},
		{"", "delivery", result.Figure{}, result.BetterMore},
		{"", "share", result.Figure{}, result.Neither},
		{"ns", "kernel", result.Figure{Better: result.Neither}, result.Neither},
	} {
		if got := tt.figure.BetterOf(result.Measurement{Metric: tt.metric, Unit: tt.unit}); got != tt.want {
			t.Errorf("%s in %q: %s, want %s", tt.metric, tt.unit, got, tt.want)
		}
	}
}

// The page has the machines side by side.
func TestMachines(t *testing.T) {
	out := t.TempDir()
	if _, err := Draw([]string{"testdata/suite", "testdata/later"}, Options{Out: out, Formats: []string{"html"}}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || strings.Count(string(page), "the machines side by side") != 1 {
		t.Errorf("%v: the page has no table of machines", err)
	}
}
