package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/config"
)

// maxSeries is how many SIDs, policies or tunnels have series of their own.
// Beyond it only their sum is shown: a scrape must stay small, and the management
// API has single ones.
const maxSeries = 10_000

// Describe sends the description of each metric, in the order in which people look for them.
func Describe(ch chan<- *prometheus.Desc) {
	for i := range families {
		ch <- families[i].desc
	}
}

// reading is what a scrape reads of the agent.
type reading struct {
	agent.Gauges
	outcomes     []agent.Outcome
	sids         []agent.SIDStatus
	policies     []agent.PolicyStatus
	classes      []agent.ClassStatus
	tunnels      []agent.TunnelStatus
	slices       []agent.SliceStatus
	associations []agent.AssociationStatus
	peers        []agent.BGPPeerStatus
	status       *agent.UPFStatus

	announcements []agent.AnnouncementStatus
	withdrawals   map[string]uint64
	podPools      []pods.Pool
}

// read reads all of it, as far as there are no errors.
func read(a *agent.Agent) (*reading, error) {
	r := &reading{Gauges: a.Gauges()}
	if r.DataPath == "" {
		return r, nil
	}
	r.podPools, _ = agent.PodPools(a) // none: the daemon is ending
	var errs [8]error
	r.outcomes, errs[0] = a.Outcomes()
	if !r.tooMany(desired.KindSID) {
		r.sids, errs[1] = a.SIDs()
	}
	if !r.tooMany(desired.KindPolicy) {
		r.policies, errs[2] = a.Policies()
	}
	r.tunnels, errs[3] = a.Tunnels()
	r.classes, errs[7] = a.Classes()
	if r.peers, errs[4] = a.BGPPeers(); errors.Is(errs[4], agent.ErrNotBGP) {
		errs[4] = nil
	}
	if r.UPF != nil {
		var s agent.Status
		s, errs[5] = a.Status()
		r.status = s.UPF
		r.associations, _ = a.Associations() // with UPF this is no error
		r.slices, errs[6] = a.Slices()
		r.announcements, _ = a.Announcements() // none: the configuration announces nothing
		r.withdrawals = r.UPF.Withdrawals
	}
	return r, errors.Join(errs[:]...)
}

// tooMany says that single series of a kind are not shown.
func (r *reading) tooMany(kind desired.Kind) bool {
	n := 0
	for of, count := range r.Resources {
		if of.Kind == kind {
			n += count
		}
	}
	return n > maxSeries
}

// Handler serves the agent's metrics, and those of the process.
func Handler(a *agent.Agent) (http.Handler, error) {
	r := prometheus.NewRegistry()
	err := errors.Join(r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	process := promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: r})
	return textHandler{agent: a, process: process}, nil
}

// Serve serves /metrics, /healthz and /readyz on an address until ctx ends, which is no error; on
// config.MetricsOff it serves nothing.
func Serve(ctx context.Context, a *agent.Agent, listen string, log *slog.Logger) error {
	if listen == config.MetricsOff {
		<-ctx.Done()
		return nil
	}
	handler, err := Handler(a)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w: choose another address, or %q", err, config.MetricsOff)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	mux.HandleFunc("GET /healthz", healthy(a))
	mux.HandleFunc("GET /readyz", ready(a))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
