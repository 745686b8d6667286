package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/isolation"
)

// enforcing reads nothing on a node that enforces no NetworkPolicies.
func enforcing(read func(*isolation.Status, emit)) func(*reading, emit) {
	return func(r *reading, emit emit) {
		if r.NetworkPolicies != nil {
			read(r.NetworkPolicies, emit)
		}
	}
}

func isolationGauge(name, help string, of func(*isolation.Status) int) []family {
	return gauge(name, help, enforcing(func(s *isolation.Status, emit emit) { emit(float64(of(s))) }))
}

// isolationFamilies are those of a node that enforces NetworkPolicies.
var isolationFamilies = slices.Concat(
	isolationGauge("network_policies", "NetworkPolicies of the cluster.", func(s *isolation.Status) int { return s.Policies }),
	isolationGauge("network_policy_closed_namespaces", "Namespaces for whose NetworkPolicies there is no room: their isolated pods are closed.", func(s *isolation.Status) int { return len(s.Exceeded) }),
	isolationGauge("network_policy_problems", "Rules of NetworkPolicies that cannot be used, and pods that they do not reach.", func(s *isolation.Status) int { return len(s.Problems) }),
	gauge("network_policy_pods", "Pods of this node, by what NetworkPolicies say of them; closed: the Kubernetes API has not reported them.",
		enforcing(func(s *isolation.Status, emit emit) {
			emit(float64(s.Isolated), "isolated")
			emit(float64(s.Open), "open")
			emit(float64(s.Closed), "closed")
		}), "state"),
	isolationGauge("network_policy_identities", "Identities that rules tell peers apart by.", func(s *isolation.Status) int { return s.Identities }),
	isolationGauge("network_policy_peers", "Addresses and prefixes of these identities.", func(s *isolation.Status) int { return s.Peers }),
	row(prometheus.CounterValue, "network_policy_failures_total", "Times that the data path did not take what NetworkPolicies say.",
		enforcing(func(s *isolation.Status, emit emit) { emit(float64(s.Failures)) })),
	gauge("network_policy_applied_timestamp_seconds", "When the data path was last brought to what NetworkPolicies say; 0: not since the start.",
		enforcing(func(s *isolation.Status, emit emit) {
			seconds := 0.0
			if !s.Applied.IsZero() {
				seconds = float64(s.Applied.UnixMilli()) / 1000
			}
			emit(seconds)
		})),
	podCounter("network_policy_dropped_packets_total", "Packets that NetworkPolicies of a pod of this node do not allow.",
		func(p *agent.IsolatedPod) (uint64, uint64) { return p.IngressDropped, p.EgressDropped }),
	podCounter("network_policy_flows_total", "Flows of pods of this node that began, and that NetworkPolicies allowed.",
		func(p *agent.IsolatedPod) (uint64, uint64) { return p.IngressFlows, p.EgressFlows }),
	counter("network_policy_displaced_flows_total", "Flows, mostly of this pod, that were forgotten early to make room for a new flow of it.",
		func(r *reading, emit emit) {
			for i := range r.Isolated {
				emit(float64(r.Isolated[i].Displaced), r.Isolated[i].Namespace, r.Isolated[i].Name)
			}
		}, "namespace", "pod"),
)

// podCounter counts for each pod and direction.
func podCounter(name, help string, of func(*agent.IsolatedPod) (ingress, egress uint64)) []family {
	return counter(name, help, func(r *reading, emit emit) {
		for i := range r.Isolated {
			p := &r.Isolated[i]
			ingress, egress := of(p)
			emit(float64(ingress), p.Namespace, p.Name, "ingress")
			emit(float64(egress), p.Namespace, p.Name, "egress")
		}
	}, "namespace", "pod", "direction")
}
