// Package monitor shows what an engine does: a page at /, /state as JSON, /metrics for
// Prometheus, /healthz.
package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/engine/picture"
	"github.com/culvert-net/culvert/internal/plural"
)

// Serve serves the state of an engine until ctx ends, which is no error; on netfile.ListenOff it
// serves nothing. Nobody can change anything by it.
func Serve(ctx context.Context, e *loop.Engine, listen string) error {
	if listen == netfile.ListenOff {
		<-ctx.Done()
		return nil
	}
	handler, err := Handler(e)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("engine.listen: %w: choose another address, or %q", err, netfile.ListenOff)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("engine.listen: %w", err)
	}
	return nil
}

// Handler answers requests.
func Handler(e *loop.Engine) (http.Handler, error) {
	r := prometheus.NewRegistry()
	if err := errors.Join(r.Register(collector{e}), r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r}))
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(e.State()) // the client is gone
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": picture.Policy + "; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		_ = picture.Write(w, page(e)) // the client is gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux, nil
}

// page shows the last round, and those before it.
func page(e *loop.Engine) picture.Page {
	s := e.State()
	p := e.History.Page("Traffic engineering")
	p.Problem = s.Problem
	p.Facts = [][2]string{{"state", s.Word}}
	if !s.At.IsZero() {
		mode := "changes headends"
		if !s.Apply {
			mode = "changes nothing: engine.apply is false"
		}
		p.Facts = append(p.Facts,
			[2]string{"round", fmt.Sprintf("%d, at %s; lists of demands changed %s", s.Counts.Rounds, s.At.Format(time.DateTime), plural.Of(int(s.Counts.Changes), "time"))},
			[2]string{"mode", mode})
	}
	for _, text := range s.Failed {
		p.Facts = append(p.Facts, [2]string{"no answer", text})
	}
	for _, text := range s.LeftOut {
		p.Facts = append(p.Facts, [2]string{"left out", text})
	}
	return p
}

// Get asks the engine at an address for its state.
func Get(ctx context.Context, address string) (s loop.State, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/state", nil)
	if err != nil {
		return s, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return s, fmt.Errorf("no engine at %s: %w (is `culvert te run` running? --engine says where)", address, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s is no engine: it answers %s", address, answer.Status)
	}
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// collector has the metrics of the last round.
type collector struct{ *loop.Engine }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("culvert_te_"+name, help, labels, nil)
}

var (
	rounds      = desc("rounds_total", "Rounds, by result.", "result")
	changes     = desc("changes_total", "Demands that got other lists.")
	last        = desc("last_round_timestamp_seconds", "When the last round began.")
	took        = desc("last_round_seconds", "How long the last round took.")
	problem     = desc("problem", "1 while the engine has a problem: culvert te status says which.")
	lease       = desc("lease_held", "1 while this engine holds its lease, and may change headends; missing where it needs none.")
	silent      = desc("headends_without_answer", "Headends that did not answer in the last round.")
	unknown     = desc("demands_unknown", "Demands whose rate is not measured.")
	utilisation = desc("utilisation_ratio", "The largest utilisation: now, after the plan (then), if all demands may change (best), and the bound of all lists of two segments.", "when")
	link        = desc("link_utilisation_ratio", "Utilisation of a link's direction by the demands now.", "link")
	rate        = desc("demand_bits_per_second", "What a demand is planned with.", "headend", "endpoint", "color")
)

// Describe sends all of them.
func (c collector) Describe(ch chan<- *prometheus.Desc) { Describe(ch) }

// Describe sends the description of each metric.
func Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rounds, changes, last, took, problem, lease, silent, unknown, utilisation, link, rate} {
		ch <- d
	}
}

// Collect sends their values.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.State()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counter(rounds, s.Counts.Rounds-s.Counts.Failed, "done")
	counter(rounds, s.Counts.Failed, "failed")
	counter(changes, s.Counts.Changes)
	gauge(silent, float64(len(s.Failed)))
	gauge(unknown, float64(len(s.Unknown)))
	gauge(problem, map[bool]float64{true: 1}[s.Problem != ""])
	if s.Lease != nil {
		gauge(lease, map[bool]float64{true: 1}[s.Lease.Held])
	}
	if !s.At.IsZero() {
		gauge(last, float64(s.At.UnixMilli())/1000)
		gauge(took, s.Took.Seconds())
	}
	for _, d := range s.Demands {
		gauge(rate, d.Rate, d.Headend, d.Endpoint, fmt.Sprint(d.Color))
	}
	if s.Plan == nil {
		return
	}
	for when, v := range map[string]float64{"now": s.Plan.Now, "then": s.Plan.Then, "best": s.Plan.Best, "bound": s.Plan.Bound} {
		gauge(utilisation, v, when)
	}
	for _, l := range s.Plan.Links {
		gauge(link, l.Now, l.Link)
	}
}
