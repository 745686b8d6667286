package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
)

// emit sends one value with the values of its labels.
type emit func(value float64, labels ...string)

// family is a metric: a row of the table.
type family struct {
	name, help string
	labels     []string
	order      []int // of labels, as they are written
	desc       *prometheus.Desc
	kind       prometheus.ValueType
	read       func(*reading, emit)
}

func row(kind prometheus.ValueType, name, help string, read func(*reading, emit), labels ...string) []family {
	name = "culvert_" + name
	return []family{{name, help, labels, orderOf(labels), prometheus.NewDesc(name, help, labels, nil), kind, read}}
}

func gauge(name, help string, read func(*reading, emit), labels ...string) []family {
	return row(prometheus.GaugeValue, name, help, read, labels...)
}

func counter(name, help string, read func(*reading, emit), labels ...string) []family {
	return row(prometheus.CounterValue, name, help, read, labels...)
}

// counters are two metrics: name_packets_total and name_bytes_total.
func counters(name, packets, bytes string, read func(*reading, func(agent.Counter, ...string)), labels ...string) []family {
	of := func(value func(agent.Counter) uint64) func(*reading, emit) {
		return func(r *reading, emit emit) {
			read(r, func(c agent.Counter, labels ...string) { emit(float64(value(c)), labels...) })
		}
	}
	return slices.Concat(
		counter(name+"packets_total", packets, of(func(c agent.Counter) uint64 { return c.Packets }), labels...),
		counter(name+"bytes_total", bytes, of(func(c agent.Counter) uint64 { return c.Bytes }), labels...))
}

// all emits a map from the values of one label.
func all[N int | uint64](of func(*reading) map[string]N) func(*reading, emit) {
	return func(r *reading, emit emit) {
		for label, n := range of(r) {
			emit(float64(n), label)
		}
	}
}

// ofUPF reads nothing on a node that is no user plane function.
func ofUPF(read func(*reading, emit)) func(*reading, emit) {
	return func(r *reading, emit emit) {
		if r.UPF != nil && r.status != nil {
			read(r, emit)
		}
	}
}

// one emits a figure of a user plane function.
func one[N int | int64](of func(*reading) N) func(*reading, emit) {
	return ofUPF(func(r *reading, emit emit) { emit(float64(of(r))) })
}

// upDown counts what is up and what is down.
func upDown[T any](list []T, up func(T) bool, emit emit) {
	n := map[bool]int{}
	for _, v := range list {
		n[up(v)]++
	}
	emit(float64(n[true]), "up")
	emit(float64(n[false]), "down")
}

// directed emits the two directions of a tunnel or slice.
func directed(emit func(agent.Counter, ...string), names []string, first, second string, a, b agent.Counter) {
	emit(a, append(names, first)...)
	emit(b, append(names, second)...)
}

// families are all metrics. The first one is there before Run is ready, too.
var families = slices.Concat(
	gauge("build_info", "The program's version and the hash of the loaded data path.",
		func(r *reading, emit emit) { emit(1, r.Version, r.DataPath) }, "version", "data_path"),
	counters("", "Frames that the data path saw, by how their journey ended.", "Bytes of these frames as received.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			if r.DataPath == "" {
				return
			}
			var dropped agent.Counter // the next metric has the reasons
			for _, o := range r.outcomes {
				if !o.Drop {
					emit(o.Counter, o.Reason)
					continue
				}
				dropped.Add(o.Counter)
			}
			emit(dropped, "dropped")
		}, "outcome"),
	counter("drops_total", "Frames dropped, by reason.", func(r *reading, emit emit) {
		for _, o := range r.outcomes {
			if o.Drop {
				emit(float64(o.Packets), o.Reason)
			}
		}
	}, "reason"),
	counters("sid_", "Packets that a local SID processed and forwarded.", "Bytes of these IPv6 packets as received.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			for _, v := range r.sids {
				emit(v.Counter, desired.SIDKey(v.SID), desired.Text(v.Behavior))
			}
		}, "sid", "behavior"),
	counters("policy_", "Packets sent with an SR policy.", "Bytes of these packets as sent.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			for _, v := range r.policies {
				emit(v.Counter, v.Name)
			}
		}, "policy"),
	counters("segment_list_", "Packets sent with a segment list of an SR policy, numbered from 0.", "Bytes of these packets as sent.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			for _, v := range r.policies {
				for i, c := range v.Lists {
					emit(c, v.Name, strconv.Itoa(i))
				}
			}
		}, "policy", "list"),
	counters("class_", "Packets of a traffic class, sent to destinations where it is told from best effort.", "Bytes of these packets as sent.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			for _, v := range r.classes {
				emit(v.Counter, v.Name)
			}
		}, "class"),
	gauge("class_endpoints_without_policy", "Endpoints to which no valid policy of a traffic class leads.", func(r *reading, emit emit) {
		for _, v := range r.classes {
			emit(float64(len(v.Without)), v.Name)
		}
	}, "class"),
	gauge("segment_list_up", "1 where packets can take a segment list of an SR policy; 0 where it is down.",
		func(r *reading, emit emit) {
			for _, v := range r.policies {
				for i := range v.SegmentLists {
					up := 0.0
					if v.DownAt(i) == "" {
						up = 1
					}
					emit(up, v.Name, strconv.Itoa(i))
				}
			}
		}, "policy", "list"),
	gauge("segment_list_slow", "1 where packets do not take a segment list of an SR policy for its delay, though they could.",
		func(r *reading, emit emit) {
			for _, v := range r.policies {
				for i := range v.SegmentLists {
					slow := 0.0
					if v.SlowAt(i) != "" {
						slow = 1
					}
					emit(slow, v.Name, strconv.Itoa(i))
				}
			}
		}, "policy", "list"),
	gauge("policy_protected", "1 where a path that takes over at once protects the active one of an SR policy; 0 where none does.",
		func(r *reading, emit emit) {
			for _, v := range r.policies {
				ready := 0.0
				if slices.ContainsFunc(v.Protection, func(l agent.ProtectionList) bool { return l.Down == "" && l.Slow == "" }) {
					ready = 1
				}
				emit(ready, v.Name)
			}
		}, "policy"),
	gauge("segment_list_round_trip_seconds", "Mean of the latest round trips of a segment list's probes: its way, and the way back.",
		func(r *reading, emit emit) {
			for _, v := range r.policies {
				for i, d := range v.Delays {
					if d.Mean > 0 {
						emit(float64(d.Mean)/1e6, v.Name, strconv.Itoa(i))
					}
				}
			}
		}, "policy", "list"),
	counters("tunnel_", "T-PDUs of a GTP-U tunnel.", "Bytes of these T-PDUs.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			if r.tooMany(desired.KindTunnel) {
				return
			}
			for _, v := range r.tunnels {
				directed(emit, []string{v.Name}, "received", "sent", v.Received, v.Sent)
			}
		}, "tunnel", "direction"),
	counters("tunnels_", "T-PDUs of all GTP-U tunnels.", "Bytes of these T-PDUs.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			if r.DataPath == "" {
				return
			}
			var received, sent agent.Counter
			for _, v := range r.tunnels {
				received.Add(v.Received)
				sent.Add(v.Sent)
			}
			directed(emit, nil, "received", "sent", received, sent)
		}, "direction"),
	gauge("table_entries", "Entries in use of a table of the data path.", func(r *reading, emit emit) {
		for table, u := range r.Tables {
			emit(float64(u.Used), table)
		}
	}, "table"),
	gauge("table_capacity_entries", "Entries that a table of the data path has room for.", func(r *reading, emit emit) {
		for table, u := range r.Tables {
			emit(float64(u.Max), table)
		}
	}, "table"),
	gauge("adjacencies", "Next hops that tables refer to, by whether frames can be sent there.",
		all(func(r *reading) map[string]int { return r.Hops }), "state"),
	gauge("interface_attached", "1 if the program is attached to an interface of the configuration, in which mode.", func(r *reading, emit emit) {
		for name, mode := range r.Modes {
			emit(float64(min(1, len(mode))), name, mode)
		}
	}, "interface", "mode"),
	gauge("interface_up", "1 if an interface of the configuration, or an uplink of a cluster's node, is up and has a carrier; 0 if not. One that does not exist has no series.",
		all(func(r *reading) map[string]int { return r.Up }), "interface"),
	gauge("interface_closed", "1 if an interface of the configuration is closed, because the program is not attached, and in which mode.", func(r *reading, emit emit) {
		for name, mode := range r.Closed {
			emit(1, name, mode)
		}
	}, "interface", "mode"),
	counter("closed_packets_total", "Frames that came by closed interfaces since the start, by outcome: passed to the kernel, or dropped.",
		all(func(r *reading) map[string]uint64 { return r.ClosedFor }), "outcome"),
	counter("interface_lost_packets_total", "Frames that were forwarded to an interface and that it did not send: it lost its carrier, was down, or had no room.",
		all(func(r *reading) map[string]uint64 { return r.Lost }), "interface"),
	gauge("resources", "Configured resources, by kind and by origin: file, api, bgp, kube or overlay.", func(r *reading, emit emit) {
		for k, n := range r.Resources {
			emit(float64(n), string(k.Kind), string(k.Origin))
		}
	}, "kind", "origin"),
	gauge("reconcile_failures", "What could not be brought to the desired state and is tried again.", func(r *reading, emit emit) {
		if r.DataPath != "" {
			emit(float64(r.Failures))
		}
	}),
	counter("slow_path_events_total", "What the slow path did, by event.", all(func(r *reading) map[string]uint64 { return r.SlowPath }), "event"),
	counter("injected_frames_total", "Frames that the daemon sent through the data path. The outcomes add up to them and the frames that interfaces received.", func(r *reading, emit emit) {
		if r.DataPath != "" {
			emit(float64(r.Injected))
		}
	}),
	gauge("bgp_peers", "BGP sessions, by state (RFC 4271 section 8.2.2).", all(func(r *reading) map[string]int {
		states := map[string]int{}
		for _, p := range r.peers {
			states[p.State]++
		}
		return states
	}), "state"),
	gauge("disputed_nodes", "Other nodes of the cluster that say of themselves what is not used, because it is not theirs.", func(r *reading, emit emit) {
		if r.DataPath != "" {
			emit(float64(r.Disputed))
		}
	}),
	gauge("pod_pool_used", "Addresses of a prefix that pods of this node have; tenant is empty for the cluster's own network.", func(r *reading, emit emit) {
		for _, p := range r.podPools {
			emit(float64(p.Used), p.Prefix.String(), p.Tenant)
		}
	}, "prefix", "tenant"),
	gauge("pod_pool_size", "Addresses of a prefix that pods of this node can have.", func(r *reading, emit emit) {
		for _, p := range r.podPools {
			emit(float64(p.Size), p.Prefix.String(), p.Tenant)
		}
	}, "prefix", "tenant"),
	gauge("bgp_candidate_paths", "Candidate paths of SR policies that BGP peers advertise to this node.", func(r *reading, emit emit) {
		if r.peers != nil {
			emit(float64(r.Paths))
		}
	}),
	counter("bgp_intruding_routes_total", "Routes that a BGP peer advertised to prefixes that only this node may have. They are not used.", func(r *reading, emit emit) {
		for _, p := range r.peers {
			emit(float64(p.Intruding), p.Address.String())
		}
	}, "peer"),
	upfFamilies,
	spreadFamilies,
	isolationFamilies, flowFamilies,
)

// upfFamilies are those of a user plane function.
var upfFamilies = slices.Concat(
	gauge("sessions", "PFCP sessions.", one(func(r *reading) int { return r.status.Sessions })),
	gauge("sessions_max", "PFCP sessions that there is room for.", one(func(r *reading) int { return r.status.MaxSessions })),
	gauge("announced_prefixes", "UE prefixes that the configuration has BGP announce, by network instance and by what they are: announced, withdrawn or refused.",
		func(r *reading, emit emit) {
			n := map[[2]string]int{}
			for _, a := range r.announcements {
				for _, state := range []string{agent.Announced, agent.Withdrawn, agent.Refused} {
					n[[2]string{a.NetworkInstance, state}] += 0
				}
				n[[2]string{a.NetworkInstance, a.State}]++
			}
			for labels, count := range n {
				emit(float64(count), labels[:]...)
			}
		}, "network_instance", "state"),
	counter("announcement_withdrawals_total", "How often the UE prefixes of a network instance were withdrawn, because N3 or N4 was down.",
		ofUPF(all(func(r *reading) map[string]uint64 { return r.withdrawals })), "network_instance"),
	gauge("journal_failing", "1 while the session journal takes no sessions, because its disk is full or fails.", one(func(r *reading) int {
		return min(1, len(r.status.Journal))
	})),
	gauge("associations", "PFCP associations, by whether the SMF answers heartbeats.", ofUPF(func(r *reading, emit emit) {
		upDown(r.associations, func(a agent.AssociationStatus) bool { return a.Up }, emit)
	}), "state"),
	counter("pfcp_received_total", "PFCP messages received.", ofUPF(all(func(r *reading) map[string]uint64 { return r.UPF.PFCP.Received })), "message"),
	counter("pfcp_sent_total", "PFCP messages sent.", ofUPF(all(func(r *reading) map[string]uint64 { return r.UPF.PFCP.Sent })), "message"),
	counter("pfcp_responses_total", "PFCP responses sent, by cause (TS 29.244 section 8.2.1).", ofUPF(func(r *reading, emit emit) {
		for _, a := range r.UPF.PFCP.Answers {
			emit(float64(a.Count), a.Message, strconv.Itoa(int(a.Cause)))
		}
	}), "message", "cause"),
	counter("pfcp_events_total", "What else the N4 server met, by event.",
		ofUPF(all(func(r *reading) map[string]uint64 { return r.UPF.PFCP.Events })), "event"),
	counter("pfcp_data_path_total", "PFCP messages by what the data path did (upf.n4_fast): answered, answered again, or left to the daemon.",
		ofUPF(all(func(r *reading) map[string]uint64 {
			n := r.UPF.N4Fast
			return map[string]uint64{"heartbeat": n.Heartbeats, "modification": n.Modifications, "repeated": n.Repeated, "left": n.Left}
		})), "event"),
	gauge("pfcp_reports_pending", "Session reports that no SMF has answered yet.", one(func(r *reading) int { return int(r.UPF.PFCP.ReportsPending) })),
	counter("upf_events_total", "What the user plane function did besides forwarding, by event.",
		ofUPF(all(func(r *reading) map[string]uint64 { return r.UPF.Events })), "event"),
	gauge("buffered_packets", "Packets that are kept for idle UEs.", one(func(r *reading) int { return r.status.Buffered })),
	gauge("buffered_bytes", "Bytes of these packets.", one(func(r *reading) int64 { return r.UPF.BufferedBytes })),
	gauge("gtpu_peers", "GTP-U peers that sessions send to, by whether they answer Echo Requests.", ofUPF(func(r *reading, emit emit) {
		upDown(r.status.Peers, func(p agent.PeerStatus) bool { return !p.Down }, emit)
	}), "state"),
	gauge("ue_pool_used", "UE addresses of a pool that sessions have.", ofUPF(func(r *reading, emit emit) {
		for _, p := range r.status.Pools {
			emit(float64(p.Used), p.Prefix.String())
		}
	}), "prefix"),
	gauge("ue_pool_size", "UE addresses of a pool.", ofUPF(func(r *reading, emit emit) {
		for _, p := range r.status.Pools {
			emit(float64(p.Size), p.Prefix.String())
		}
	}), "prefix"),
	counters("slice_", "T-PDUs of a slice's sessions.", "Bytes of these T-PDUs.",
		func(r *reading, emit func(agent.Counter, ...string)) {
			for _, v := range r.slices {
				directed(emit, []string{v.Name}, "uplink", "downlink", v.Uplink, v.Downlink)
			}
		}, "slice", "direction"),
	gauge("slice_sessions", "Sessions of a slice.", func(r *reading, emit emit) {
		for _, v := range r.slices {
			emit(float64(v.Sessions), v.Name)
		}
	}, "slice"),
	gauge("slice_imported_routes", "Routes of a slice's VPN that its UEs' packets leave by.", func(r *reading, emit emit) {
		for _, v := range r.slices {
			if v.Imports() {
				emit(float64(v.Imported), v.Name)
			}
		}
	}, "slice"),
)
