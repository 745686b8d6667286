package metrics

import (
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/flow"
)

// recording reads nothing on a node that records no flows.
func recording(read func(*agent.FlowGauges, emit)) func(*reading, emit) {
	return func(r *reading, emit emit) {
		if r.Flows != nil {
			read(r.Flows, emit)
		}
	}
}

// ofPairs counts for each pair of workloads and verdict.
func ofPairs(name, help string, of func(flow.Count) float64) []family {
	return counter("overlay_workload_"+name, help, recording(func(g *agent.FlowGauges, emit emit) {
		for p, c := range g.Pairs {
			emit(of(c), p.SourceNamespace, p.Source, p.DestinationNamespace, p.Destination, p.Verdict, p.Observed)
		}
	}), "source_namespace", "source", "destination_namespace", "destination", "verdict", "observed")
}

// flowFamilies are those of a node that records flows of its pods.
var flowFamilies = slices.Concat(
	gauge("overlay_flows", "Flows of pods that are kept for culvert flow.", recording(func(g *agent.FlowGauges, emit emit) { emit(float64(g.Flows)) })),
	counter("overlay_flow_records_left_out_total", "Records of flows that were left out, by the pod that made too many; without pod: the node's own packets.",
		recording(func(g *agent.FlowGauges, emit emit) {
			for pod, n := range g.LeftOut {
				namespace, name, named := strings.Cut(pod, "/")
				if !named {
					namespace, name = "", pod
				}
				emit(float64(n), namespace, name)
			}
		}), "namespace", "pod"),
	ofPairs("flows_total", "Flows between two workloads, of which a packet was seen.", func(c flow.Count) float64 { return float64(c.Flows) }),
	ofPairs("packets_total", "Packets between two workloads, both ways, estimated from those that were seen.", func(c flow.Count) float64 { return float64(c.Packets) }),
	ofPairs("bytes_total", "Octets of layer 3 of these packets, estimated; of dropped ones none are counted.", func(c flow.Count) float64 { return float64(c.Octets) }),
	ofPairs("handshakes_total", "TCP handshakes between two workloads whose SYN and SYN/ACK were seen.", func(c flow.Count) float64 { return float64(c.Handshakes) }),
	ofPairs("handshake_seconds_total", "Time of these handshakes together, from SYN to SYN/ACK.", func(c flow.Count) float64 { return float64(c.HandshakeMicroseconds) / 1e6 }),
)
