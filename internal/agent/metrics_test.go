package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
)

// scraped is what Prometheus would read.
func scraped(tb testing.TB, a *Agent) string {
	tb.Helper()
	h, err := MetricsHandler(a)
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
	d := start(t)
	got := scraped(t, d.Agent)
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
		`culvert_resources{kind="tunnel",origin="file"} 2`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s", line)
		}
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
	for line := range strings.Lines(scraped(t, start(t).Agent)) {
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
	d := start(t)
	d.mu.Lock()
	many := *d.desired
	for i := range maxSeries {
		name := fmt.Sprintf("t%d", i)
		many.api = append(many.api, resource{Ref{KindTunnel, name}, OriginAPI, gtpu.Tunnel{Name: name}})
	}
	d.desired = &many
	d.mu.Unlock()
	got := scraped(t, d.Agent)
	if strings.Contains(got, "culvert_tunnel_packets_total{") {
		t.Error("more tunnels than the bound, and still each has a series")
	}
	if want := fmt.Sprintf("culvert_tunnels_packets_total{direction=\"received\"} %d\n", maxSeries+2); !strings.Contains(got, want) {
		t.Errorf("no line %s", want)
	}
}

func TestMetricsBeforeReady(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway, newFake())
	if got := scraped(t, d.Agent); !strings.Contains(got, "culvert_build_info") || strings.Contains(got, "culvert_packets_total") {
		t.Errorf("before the start:\n%s", got)
	}
}

func TestServeMetrics(t *testing.T) {
	d := start(t)
	if err := ServeMetrics(context.Background(), d.Agent, "256.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "metrics.listen") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	const address = "127.0.0.1:39418"
	go func() { done <- ServeMetrics(ctx, d.Agent, address) }()
	var body []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue // it does not listen yet
		}
		body, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		break
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(body), "culvert_packets_total") {
		t.Errorf("served: %q", body)
	}
}
