package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/culvert-net/culvert/internal/agent/metrics"
	"github.com/culvert-net/culvert/internal/engine/monitor"
	"github.com/culvert-net/culvert/internal/metricdoc"
)

// all are the metrics of all programs.
func all(t *testing.T) (out []metricdoc.Metric) {
	t.Helper()
	for _, describe := range []func(chan<- *client.Desc){metrics.Describe, monitor.Describe} {
		list, err := metricdoc.Read(describe)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, list...)
	}
	return out
}

// others are metrics of Prometheus and of its library.
var others = []string{"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"}

var names = regexp.MustCompile(`\b(?:culvert_\w+|process_\w+)\b`)

// checkNames finds names of metrics that are not known.
func checkNames(t *testing.T, known []metricdoc.Metric, where, expression string) {
	t.Helper()
	for _, name := range names.FindAllString(expression, -1) {
		if !slices.Contains(others, name) && !slices.ContainsFunc(known, func(m metricdoc.Metric) bool { return m.Name == name }) {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "culvert.rules.yaml")
	promtool(t, "test", "rules", "culvert.rules.test.yaml")
	var tests struct{ Tests []struct{ Name string } }
	read(t, "culvert.rules.test.yaml", &tests)
	var tested []string
	for _, c := range tests.Tests {
		tested = append(tested, c.Name)
	}
	if there := alerts(t); len(there) == 0 || !slices.Equal(there, tested) {
		t.Errorf("alerts %v\ntested %v", there, tested)
	}
}

// alerts are the names of all, whose expressions ask for metrics that there are.
func alerts(t *testing.T) (out []string) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	read(t, "culvert.rules.yaml", &rules)
	known := all(t)
	for _, r := range rules.Groups[0].Rules {
		checkNames(t, known, r.Alert, r.Expr)
		out = append(out, r.Alert)
	}
	return out
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// empty is what is wrong with an answer without series.
const empty = "the answer is empty"

// query is what a panel of a dashboard asks.
type query struct{ panel, expr string }

// queries are those of all dashboards.
func queries(t *testing.T) (out []query) {
	t.Helper()
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("dashboards %v, %v", files, err)
	}
	for _, file := range files {
		var board struct {
			UID    string
			Panels []struct {
				Title   string
				Type    string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct{ Name string }
			}
		}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &board)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		variables := map[string]bool{"$__rate_interval": true}
		for _, v := range board.Templating.List {
			variables["$"+v.Name] = true
		}
		for _, p := range board.Panels {
			if p.Type == "row" {
				continue
			}
			where := board.UID + ": " + p.Title
			if len(p.Targets) == 0 {
				t.Errorf("%s asks nothing", where)
			}
			for _, target := range p.Targets {
				for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(target.Expr, -1) {
					if !variables[v] {
						t.Errorf("%s: there is no variable %s", where, v)
					}
				}
				out = append(out, query{where, target.Expr})
			}
		}
	}
	return out
}

// values are what labels have in the samples; others have one value.
var values = map[string][]string{
	"outcome": {"forwarded", "dropped"}, "direction": {"uplink", "downlink"}, "cause": {"1", "75"},
	"state": {"up", "down", "established", "ready", "not_ready", "announced"},
}

// zero are metrics whose panels show what is 0.
var zero = []string{"culvert_interface_attached", "culvert_segment_list_up", "culvert_policy_protected"}

// samples has a sample of each metric, and counters grow.
func samples(t *testing.T) http.Handler {
	list, begin := all(t), time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range list {
			value := 1.0
			switch {
			case slices.Contains(zero, m.Name):
				value = 0
			case m.IsCounter():
				value = 1000 * time.Since(begin).Seconds()
			}
			series := []string{""}
			for _, label := range m.Labels {
				of, several := values[label]
				if !several {
					of = []string{"x"}
				}
				var next []string
				for _, s := range series {
					for _, v := range of {
						next = append(next, fmt.Sprintf("%s,%s=%q", s, label, v))
					}
				}
				series = next
			}
			for _, s := range series {
				fmt.Fprintf(w, "%s{%s} %g\n", m.Name, strings.TrimPrefix(s, ","), value)
			}
		}
		fmt.Fprintf(w, "process_cpu_seconds_total %g\nprocess_resident_memory_bytes 1\n", time.Since(begin).Seconds())
	})
}

// Prometheus answers each query of each dashboard, and not with nothing.
func TestDashboards(t *testing.T) {
	list, known := queries(t), all(t)
	for _, q := range list {
		checkNames(t, known, q.panel, q.expr)
	}
	target := httptest.NewServer(samples(t))
	defer target.Close()
	ask := serve(t, strings.TrimPrefix(target.URL, "http://"), nil)
	for _, q := range list {
		if answer := ask(q.expr); answer != "" {
			t.Errorf("%s: %s: %s", q.panel, q.expr, answer)
		}
	}
}

// serve runs Prometheus, in front of which a command may stand, until it has scraped a target
// some times. What it returns asks it, and says what is wrong with the answer.
func serve(t *testing.T, target string, before []string) (ask func(expr string) string) {
	t.Helper()
	dir, address := t.TempDir(), freePort(t)
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nrule_files: [%s]\nscrape_configs: [{job_name: culvert, static_configs: [{targets: [%q]}]}]\n",
		absolute(t, "culvert.rules.yaml"), target)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	args := append(slices.Clone(before), "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("install the package prometheus: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	})
	get := getter(before)
	expand := strings.NewReplacer("$job", ".*", "$instance", ".*", "$slice", ".*", "$__rate_interval", "10s")
	ask = func(expr string) string {
		data, err := get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expand.Replace(expr)))
		if err != nil {
			return err.Error()
		}
		var answer struct {
			Status, Error string
			Data          struct{ Result []json.RawMessage }
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return err.Error()
		}
		if answer.Status != "success" {
			return answer.Error
		}
		if len(answer.Data.Result) == 0 {
			return empty
		}
		return ""
	}
	const scraped = "count_over_time(culvert_build_info[1m]) >= 5"
	for end := time.Now().Add(time.Minute); ask(scraped) != ""; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("%s: %s\n%s", scraped, ask(scraped), said)
		}
	}
	return ask
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// getter reads pages, from where a command leads that stands in front.
func getter(before []string) func(page string) ([]byte, error) {
	return func(page string) ([]byte, error) {
		args := append(slices.Clone(before), "curl", "--silent", "--show-error", page)
		return exec.Command(args[0], args[1:]...).Output()
	}
}
