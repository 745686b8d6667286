package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/culvert-net/culvert/internal/config"
)

// maxSeries is how many SIDs, policies or tunnels have series of their own.
// Beyond it only their sum is shown: a scrape must stay small, and who wants
// single ones of that many asks the management API.
const maxSeries = 10_000

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("culvert_"+name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("culvert_"+name, help, labels, nil), prometheus.GaugeValue}
}

var (
	metricBuild        = gauge("build_info", "The program's version and the hash of the loaded data path.", "version", "data_path")
	metricPackets      = counter("packets_total", "Frames that the data path saw, by how their journey ended.", "outcome")
	metricBytes        = counter("bytes_total", "Bytes of these frames as received.", "outcome")
	metricDrops        = counter("drops_total", "Frames dropped, by reason.", "reason")
	metricSIDPackets   = counter("sid_packets_total", "Packets that a local SID processed and forwarded.", "sid", "behavior")
	metricSIDBytes     = counter("sid_bytes_total", "Bytes of these IPv6 packets as received.", "sid", "behavior")
	metricPolPackets   = counter("policy_packets_total", "Packets sent with an SR policy.", "policy")
	metricPolBytes     = counter("policy_bytes_total", "Bytes of these packets as sent.", "policy")
	metricListPackets  = counter("segment_list_packets_total", "Packets sent with a segment list of an SR policy, numbered from 0.", "policy", "list")
	metricListBytes    = counter("segment_list_bytes_total", "Bytes of these packets as sent.", "policy", "list")
	metricTunPackets   = counter("tunnel_packets_total", "T-PDUs of a GTP-U tunnel.", "tunnel", "direction")
	metricTunBytes     = counter("tunnel_bytes_total", "Bytes of these T-PDUs.", "tunnel", "direction")
	metricAllPackets   = counter("tunnels_packets_total", "T-PDUs of all GTP-U tunnels.", "direction")
	metricAllBytes     = counter("tunnels_bytes_total", "Bytes of these T-PDUs.", "direction")
	metricUsed         = gauge("table_entries", "Entries in use of a table of the data path.", "table")
	metricMax          = gauge("table_capacity_entries", "Entries that a table of the data path has room for.", "table")
	metricHops         = gauge("adjacencies", "Next hops that tables refer to, by whether frames can be sent there.", "state")
	metricInterface    = gauge("interface_attached", "1 if the program is attached to an interface of the configuration, in which mode.", "interface", "mode")
	metricResources    = gauge("resources", "Configured resources, by kind and by who asked for them.", "kind", "origin")
	metricFailures     = gauge("reconcile_failures", "What could not be brought to the desired state and is tried again.")
	metricSessions     = gauge("sessions", "PFCP sessions.")
	metricMaxSessions  = gauge("sessions_max", "PFCP sessions that there is room for.")
	metricAssociations = gauge("associations", "PFCP associations, by whether the SMF answers heartbeats.", "state")
	metricReceived     = counter("pfcp_received_total", "PFCP messages received.", "message")
	metricSent         = counter("pfcp_sent_total", "PFCP messages sent.", "message")
	metricAnswers      = counter("pfcp_responses_total", "PFCP responses sent, by cause (TS 29.244 section 8.2.1).", "message", "cause")
	metricPFCP         = counter("pfcp_events_total", "What else the N4 server met, by event.", "event")
	metricPending      = gauge("pfcp_reports_pending", "Session reports that no SMF has answered yet.")
	metricUPF          = counter("upf_events_total", "What the user plane function did besides forwarding, by event.", "event")
	metricBuffered     = gauge("buffered_packets", "Packets that are kept for idle UEs.")
	metricBufferBytes  = gauge("buffered_bytes", "Bytes of these packets.")
	metricPeers        = gauge("gtpu_peers", "GTP-U peers that sessions send to, by whether they answer Echo Requests.", "state")
	metricPoolUsed     = gauge("ue_pool_used", "UE addresses of a pool that sessions have.", "prefix")
	metricPoolSize     = gauge("ue_pool_size", "UE addresses of a pool.", "prefix")
	metricSlicePackets = counter("slice_packets_total", "T-PDUs of a slice's sessions.", "slice", "direction")
	metricSliceBytes   = counter("slice_bytes_total", "Bytes of these T-PDUs.", "slice", "direction")
	metricSliceCount   = gauge("slice_sessions", "Sessions of a slice.", "slice")
	metricBGPPeers     = gauge("bgp_peers", "BGP sessions, by state (RFC 4271 section 8.2.2).", "state")
	metricBGPPaths     = gauge("bgp_candidate_paths", "Candidate paths of SR policies that BGP peers advertise to this node.")
	metricSlow         = counter("slow_path_events_total", "What the slow path did, by event.", "event")
)

var allMetrics = []metric{
	metricBuild, metricPackets, metricBytes, metricDrops, metricSIDPackets, metricSIDBytes,
	metricPolPackets, metricPolBytes, metricListPackets, metricListBytes, metricTunPackets, metricTunBytes,
	metricAllPackets, metricAllBytes, metricUsed, metricMax, metricHops, metricInterface, metricResources,
	metricFailures, metricSlow, metricBGPPeers, metricBGPPaths,
	metricSessions, metricMaxSessions, metricAssociations, metricReceived, metricSent, metricAnswers, metricPFCP, metricPending,
	metricUPF, metricBuffered, metricBufferBytes, metricPeers, metricPoolUsed, metricPoolSize,
	metricSlicePackets, metricSliceBytes, metricSliceCount,
}

// Describe makes *Agent a prometheus.Collector.
func (a *Agent) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range allMetrics {
		ch <- m.desc
	}
}

// scrape is one collection.
type scrape struct {
	*Agent
	ch chan<- prometheus.Metric
}

// Collect makes *Agent a prometheus.Collector. Before Run is ready there is
// the build only.
func (a *Agent) Collect(ch chan<- prometheus.Metric) {
	s := scrape{a, ch}
	if a.isReady() != nil {
		s.send(metricBuild, 1, a.options.Version, "")
		return
	}
	for _, part := range []func() error{s.daemon, s.outcomes, s.sids, s.policies, s.tunnelCounters, s.next, s.bgp, s.userPlane} {
		if err := part(); err != nil {
			ch <- prometheus.NewInvalidMetric(metricBuild.desc, err)
		}
	}
}

func (s scrape) send(m metric, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

func (s scrape) daemon() error { return s.read(s.state) }

func (s scrape) state() error {
	s.send(metricBuild, 1, s.options.Version, s.dp.Build())
	s.send(metricFailures, float64(len(s.failures)))
	for table, u := range s.dp.Usage() {
		s.send(metricUsed, float64(u.Used), table)
		s.send(metricMax, float64(u.Max), table)
	}
	type owned struct {
		kind   Kind
		origin Origin
	}
	count := map[owned]int{}
	for _, kind := range kinds {
		count[owned{kind, OriginFile}], count[owned{kind, OriginAPI}] = 0, 0
	}
	for r := range s.desired.all() {
		count[owned{r.Kind, r.origin}]++
		if v, ok := r.value.(config.Interface); ok {
			mode, attached := s.modes[v.Name]
			s.send(metricInterface, float64(boolInt(attached)), v.Name, string(mode))
		}
	}
	for k, n := range count {
		s.send(metricResources, float64(n), string(k.kind), string(k.origin))
	}
	for event, n := range s.slow.counters() {
		s.send(metricSlow, float64(n), event)
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s scrape) outcomes() error {
	list, err := s.Outcomes()
	var dropped Counter
	for _, o := range list {
		if o.Drop {
			s.send(metricDrops, float64(o.Packets), o.Reason)
			dropped.Packets += o.Packets
			dropped.Bytes += o.Bytes
			continue
		}
		s.send(metricPackets, float64(o.Packets), o.Reason)
		s.send(metricBytes, float64(o.Bytes), o.Reason)
	}
	s.send(metricPackets, float64(dropped.Packets), "dropped")
	s.send(metricBytes, float64(dropped.Bytes), "dropped")
	return err
}

func (s scrape) sids() error {
	if s.tooMany(KindSID) {
		return nil
	}
	list, err := s.SIDs()
	for _, v := range list {
		labels := []string{sidKey(v.SID), text(v.Behavior)}
		s.send(metricSIDPackets, float64(v.Counter.Packets), labels...)
		s.send(metricSIDBytes, float64(v.Counter.Bytes), labels...)
	}
	return err
}

func (s scrape) policies() error {
	if s.tooMany(KindPolicy) {
		return nil
	}
	list, err := s.Policies()
	for _, v := range list {
		s.send(metricPolPackets, float64(v.Counter.Packets), v.Name)
		s.send(metricPolBytes, float64(v.Counter.Bytes), v.Name)
		for i, c := range v.Lists {
			s.send(metricListPackets, float64(c.Packets), v.Name, strconv.Itoa(i))
			s.send(metricListBytes, float64(c.Bytes), v.Name, strconv.Itoa(i))
		}
	}
	return err
}

func (s scrape) tunnelCounters() error {
	few := !s.tooMany(KindTunnel)
	list, err := s.Tunnels()
	sum := map[string]Counter{"received": {}, "sent": {}}
	for _, v := range list {
		for direction, c := range map[string]Counter{"received": v.Received, "sent": v.Sent} {
			if few {
				s.send(metricTunPackets, float64(c.Packets), v.Name, direction)
				s.send(metricTunBytes, float64(c.Bytes), v.Name, direction)
			}
			all := sum[direction]
			sum[direction] = Counter{all.Packets + c.Packets, all.Bytes + c.Bytes}
		}
	}
	for direction, c := range sum {
		s.send(metricAllPackets, float64(c.Packets), direction)
		s.send(metricAllBytes, float64(c.Bytes), direction)
	}
	return err
}

func (s scrape) tooMany(kind Kind) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for r := range s.desired.all() {
		if r.Kind == kind {
			n++
		}
	}
	return n > maxSeries
}

func (s scrape) next() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	count := map[string]int{"ready": 0, "kernel": 0, "not_ready": 0}
	for _, h := range s.network.hops {
		switch {
		case h.next == nil:
			count["not_ready"]++
		case h.next.Pass:
			count["kernel"]++
		default:
			count["ready"]++
		}
	}
	for _, state := range slices.Sorted(maps.Keys(count)) {
		s.send(metricHops, float64(count[state]), state)
	}
	return nil
}

// MetricsHandler serves the agent's metrics, and those of the process.
func MetricsHandler(a *Agent) (http.Handler, error) {
	r := prometheus.NewRegistry()
	err := errors.Join(r.Register(a), r.Register(collectors.NewGoCollector()),
		r.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: r}), nil
}

// ServeMetrics serves /metrics on an address until ctx ends, which is no error;
// on config.MetricsOff it serves nothing.
func ServeMetrics(ctx context.Context, a *Agent, listen string) error {
	if listen == config.MetricsOff {
		<-ctx.Done()
		return nil
	}
	handler, err := MetricsHandler(a)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("metrics.listen: %w: choose another address, or %q", err, config.MetricsOff)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
