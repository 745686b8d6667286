package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/metrics"
)

func init() { agent.SetScraped(scraped) }

var discard = slog.New(slog.DiscardHandler)

// scraped is what Prometheus would read.
func scraped(tb testing.TB, a *agent.Agent) string {
	tb.Helper()
	h, err := metrics.Handler(a)
	if err != nil {
		tb.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		tb.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	got := scraped(t, agent.StartTest(t))
	for _, line := range []string{
		`culvert_build_info{data_path="fake",version="test"} 1`,
		`culvert_packets_total{outcome="forwarded"} 0`,
		`culvert_packets_total{outcome="passed"} 1`,
		`culvert_bytes_total{outcome="passed"} 100`,
		`culvert_drops_total{reason="sr_domain_edge"} 4`,
		`culvert_sid_packets_total{behavior="End",sid="fc00:1:0:1::/64"} 7`,
		`culvert_policy_packets_total{policy="south"} 3`,
		`culvert_segment_list_bytes_total{list="1",policy="south"} 20`,
		`culvert_tunnel_bytes_total{direction="sent",tunnel="up"} 4`,
		`culvert_tunnels_packets_total{direction="received"} 2`,
		`culvert_table_entries{table="sids"} 2`,
		`culvert_adjacencies{state="not_ready"} 3`,
		`culvert_interface_attached{interface="eth0",mode="native"} 1`,
		`culvert_interface_up{interface="eth0"} 1`,
		`culvert_interface_lost_packets_total{interface="eth0"} 0`,
		`culvert_injected_frames_total 7`,
		`culvert_resources{kind="tunnel",origin="file"} 2`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	series := map[string]bool{}
	for line := range strings.Lines(got) {
		name := line[:strings.LastIndexByte(line, ' ')]
		if series[name] && !strings.HasPrefix(line, "#") {
			t.Errorf("twice: %s", line)
		}
		series[name] = true
	}
	if !series["go_goroutines"] {
		t.Error("nothing of the process")
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Prometheus' own judge of names, units and help.
func TestMetricsPleasePromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("install the package prometheus: %v", err)
	}
	// The Go runtime's own metrics are not ours to name.
	var ours []string
	for line := range strings.Lines(scraped(t, agent.StartTest(t))) {
		if strings.Contains(line, "culvert_") {
			ours = append(ours, line)
		}
	}
	if len(ours) < 50 {
		t.Fatalf("only %d lines of metrics", len(ours))
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(strings.Join(ours, ""))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// A scrape stays small however many tunnels there are.
func TestMetricsAreBounded(t *testing.T) {
	const maxSeries = 10_000
	a := agent.StartTest(t)
	a.AddTunnels(maxSeries)
	got := scraped(t, a)
	if strings.Contains(got, "culvert_tunnel_packets_total{") {
		t.Error("more tunnels than the bound, and still each has a series")
	}
	if want := fmt.Sprintf("culvert_tunnels_packets_total{direction=\"received\"} %d\n", maxSeries+2); !strings.Contains(got, want) {
		t.Errorf("no line %s", want)
	}
}

func TestMetricsBeforeReady(t *testing.T) {
	if got := scraped(t, agent.PrepareTest(t)); !strings.Contains(got, "culvert_build_info") || strings.Contains(got, "culvert_packets_total") {
		t.Errorf("before the start:\n%s", got)
	}
}

func TestServeMetrics(t *testing.T) {
	a := agent.StartTest(t)
	if err := metrics.Serve(context.Background(), a, "256.0.0.1:1", discard); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	const address = "127.0.0.1:39418"
	go func() { done <- metrics.Serve(ctx, a, address, discard) }()
	if status, body := get(t, "http://"+address+"/metrics"); status != http.StatusOK || !strings.Contains(body, "culvert_packets_total") {
		t.Errorf("/metrics: %d %q", status, body)
	}
	if status, body := get(t, "http://"+address+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if status, body := get(t, "http://"+address+"/readyz"); status != http.StatusOK || body != "[+] started\n[+] interfaces\n[+] resources\nready\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNotReady(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	const address = "127.0.0.1:39419"
	go func() { done <- metrics.Serve(ctx, agent.PrepareTest(t), address, discard) }()
	status, body := get(t, "http://"+address+"/readyz")
	if status != http.StatusServiceUnavailable || !strings.HasPrefix(body, "[-] started: ") || !strings.HasSuffix(body, "\nnot ready\n") {
		t.Errorf("/readyz before the start: %d %q", status, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// get asks until somebody listens.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(data)
	}
	t.Fatalf("nobody answers at %s", url)
	return 0, ""
}
