package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/bench/scale"
)

var culvert string // that is measured

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "culvert-bench-test-")
	if err == nil {
		culvert = filepath.Join(dir, "culvert")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", culvert, "../../cmd/culvert").CombinedOutput(); err != nil {
			err = fmt.Errorf("build culvert: %w: %s", err, out)
		}
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the benchmark makes network namespaces and loads programs")
	}
}

// nothingLeft fails the test unless the run removed everything that it made.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"/run/netns/" + node.RunName() + "-*", "/sys/fs/bpf/" + node.RunName() + "*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("%v is left (%v)", left, err)
		}
	}
}

func TestQuickRun(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	var out bytes.Buffer
	c := Command()
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs([]string{"functions", "--quick", "--functions", "l2_forward,end,h_m_gtp4_d,gtpu_encap", "--entries", "1000", "-o", "json", "--culvert", culvert, "--dir", dir})
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err) // also: a frame that did not come out, or came out wrong
	}
	var got cost.Report
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Bench != "functions" || got.Baseline != "l2_forward" {
		t.Errorf("bench %q, baseline %q", got.Bench, got.Baseline)
	}
	if e := got.Environment; e.Kernel == "" || e.CPU == "" || e.Commit == "" || e.DataPath == "" || len(e.Offloads) == 0 {
		t.Errorf("environment %+v is not whole", e)
	}
	want := map[string][]uint32{"l2_forward": {1}, "end": {1000}, "h_m_gtp4_d": {1000}, "gtpu_encap": {1000}}
	rows := map[string]int{}
	for _, r := range got.Rows {
		if w := want[r.Name]; rows[r.Name] >= len(w) || w[rows[r.Name]] != r.Entries {
			t.Errorf("row %s with %d entries: want %v", r.Name, r.Entries, w)
		}
		rows[r.Name]++
		if r.NS == 0 || r.Times == 0 || r.Low > r.Times || r.High < r.Times { // noise may be larger than the difference that NS is
			t.Errorf("row %+v makes no sense", r)
		}
		kernel := r.Name == "end" || r.Name == "l2_forward"
		if (r.KernelRatio != nil) != kernel {
			t.Errorf("row %s with %d entries: kernel ratio is there: %v, want %v", r.Name, r.Entries, r.KernelRatio != nil, kernel)
		}
	}
	for name, entries := range want {
		if rows[name] != len(entries) {
			t.Errorf("%s has %d rows, want %d", name, rows[name], len(entries))
		}
	}
	nothingLeft(t)
}

// Variants that need more of the node than other frames: a trace, a port that steers, tunnels and
// sessions of their own.
func TestQuickVariants(t *testing.T) {
	needRoot(t)
	names := []string{
		"end@trace", "h_encaps_l2_red@trace", "gtpu_decap@steered", "h_encaps_red@port", "end_dt4@padded",
		"gtpu_decap@ipv6", "gtpu_encap@ipv6", "gtpu_switch@ipv6", "gtpu_encap@outside", "h_encaps_red@outside",
		"uplink@ipv6", "downlink@ipv6", "uplink@outside", "downlink@outside", "uplink@trace", "downlink@steered",
	}
	r, err := execute(t.Context(), t.TempDir(), "functions", "--quick", "--functions", strings.Join(names, ","), "--entries", "1000", "--rounds", "1", "--runs", "0")
	if err != nil {
		t.Fatal(err) // also: a frame that did not come out, or a trace that was not there
	}
	for _, name := range names {
		if of := (result.Labels{"function": catalog.TitleOf(name).Name}); len(r.Select(cost.MetricPacket, of)) != 1 {
			t.Errorf("%s has no figure", name)
		}
	}
	nothingLeft(t)
}

func TestQuickUPF(t *testing.T) {
	needRoot(t)
	var out bytes.Buffer
	c := Command()
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs([]string{"upf", "--quick", "--functions", "uplink,downlink,uplink_plain,downlink_filters_16", "--entries", "1,500", "-o", "json", "--culvert", culvert, "--dir", t.TempDir()})
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err) // also: a session refused, a frame that did not come out, or came out wrong
	}
	var got struct {
		Bench, Baseline                     string
		Rows                                []map[string]any
		Sessions, Daemon_bytes, Table_bytes float64
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Bench != "upf" || got.Baseline != catalog.BaselineName || got.Sessions != 3*500 || got.Daemon_bytes < 1<<20 || got.Table_bytes < 1500*64 {
		t.Errorf("%+v", got)
	}
	rows := map[string]int{}
	for _, r := range got.Rows {
		name := r["name"].(string)
		rows[name]++
		figure := "times"
		if name == "pfcp_recover" {
			figure = "median_s"
			if r["entries"].(float64) != scale.RecoverSessions || r["max_s"].(float64) < r["median_s"].(float64) {
				t.Errorf("row %v makes no sense", r)
			}
		} else if strings.HasPrefix(name, "pfcp_") {
			figure = "per_second"
			if p50, p99 := r["p50_us"].(float64), r["p99_us"].(float64); p50 <= 0 || p99 < p50 {
				t.Errorf("row %v makes no sense", r)
			}
		}
		if v, ok := r[figure].(float64); !ok || v == 0 || v < 0 && figure != "times" { // it is of differences
			t.Errorf("row %v has no %s", r, figure)
		}
	}
	want := map[string]int{"uplink": 2, "downlink": 2, "uplink_plain": 2, "downlink_filters_16": 2, "pfcp_establish": 1, "pfcp_modify": 1, "pfcp_delete": 1,
		"pfcp_establish_5k": 1, "pfcp_modify_5k": 1, "pfcp_delete_5k": 1, "pfcp_recover": 1}
	if !maps.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	nothingLeft(t)
}

// A function whose frames come out otherwise than it wants has no figure.
func TestWrongFramesAreNoFigure(t *testing.T) {
	needRoot(t)
	wrong := catalog.Functions(catalog.ShortSize)[1]
	wrong.Want = rig.WantIPv6(catalog.Mapped, 16, rig.ProtoRouting, wrong.Want.Payload)
	lost := catalog.Functions(catalog.ShortSize)[1]
	lost.Data = bytes.Clone(lost.Data)
	lost.Data[rig.LenEthernet+7] = 1 // hop limit: the data path drops it
	for says, f := range map[string]catalog.Function{"it goes to": wrong, "0 of 1024 frames came out": lost} {
		p := cost.Plan{Binary: culvert, BPFFS: "/sys/fs/bpf", Functions: []catalog.Function{f}, Entries: []uint32{1}, Packets: 1024, CPU: -1}
		b, err := cost.SetUp(t.Context(), p, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Round(t.Context(), cost.RowsOf(p.Functions, p.Entries)[0]); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %q, got %v", says, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		nothingLeft(t)
	}
}

func TestScaling(t *testing.T) {
	needRoot(t)
	cpus, err := proc.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := Command()
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs([]string{"scaling", "--functions", "l2_forward,end", "--entries", "1", "--repeat", "1", "--packets", "6400", "-o", "json", "--culvert", culvert, "--dir", t.TempDir()})
	err = c.ExecuteContext(t.Context())
	if len(cpus) < 2 {
		if err == nil || !strings.Contains(err.Error(), "two CPUs") {
			t.Errorf("with one CPU: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var got scale.ScalingReport
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"l2_forward", "end"} {
		if r := got.Rows[i]; r.Name != name || r.OneNS == 0 || r.TwoNS == 0 || r.Ratio == 0 { // noise may be larger than these differences
			t.Errorf("row %+v: want one of %s that makes sense", r, name)
		}
	}
	nothingLeft(t)
}

func TestDaemonThatEnds(t *testing.T) {
	needRoot(t)
	p := cost.Plan{Binary: "/bin/false", BPFFS: "/sys/fs/bpf", Functions: catalog.Functions(catalog.ShortSize)[:2], Entries: []uint32{1}, Packets: 1024, CPU: -1}
	if _, err := cost.SetUp(t.Context(), p, 1); err == nil || !strings.Contains(err.Error(), "culvert run ended") {
		t.Errorf("want an error about the daemon's end, got %v", err)
	}
	nothingLeft(t)
}
