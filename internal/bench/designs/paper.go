package designs

import (
	"maps"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// ratioOf says what is compared by a measure.
var ratioOf = map[string]string{
	metricPackets: "packets/s, 64 octets", metricP50: "median latency at half of PDR, 64 octets", metricP99: "latency, P99",
	signalling.PerSecond: "handovers/s", signalling.P99: "latency of an answer, P99",
}

// Paper is paper 003, with its findings as Claims has them: of short packets, where there are
// several sizes.
func Paper() result.Paper {
	p := result.Paper{
		Number: "003", Title: "Four designs of a UPF", Source: paper,
		Question: "What does a UPF gain where programmable hardware does part of its work, and what does it lose? Here XDP takes the hardware's place, on one core.",
		Command:  "make soft && culvert bench designs", Figure: "designs_n4",
	}
	for _, f := range findings {
		where := maps.Clone(f.where)
		if f.metric == metricPackets || f.metric == metricP50 {
			where["size"] = "64"
		}
		p.Findings = append(p.Findings, result.Finding{
			Says: f.says, Ratio: ratioOf[f.metric] + ", " + f.higher + " by " + f.lower, Metric: f.metric, Expect: result.More,
			A: where.With("design", f.higher), B: where.With("design", f.lower),
		})
	}
	return p
}
