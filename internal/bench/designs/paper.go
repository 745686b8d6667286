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

// published are the paper's numbers, by measure and designs.
var published = map[[3]string]string{
	{metricPackets, steerOffload, softUPF}:       "up to 1.45 times",
	{metricP50, softUPF, steerOffload}:           "up to 1.59 times",
	{metricP50, softUPF, dpOffload}:              "138 and 130 µs: 1.06 times (1.32 at 1,400 octets)",
	{signalling.PerSecond, softUPF, dpOffload}:   "5,100 and 666: 7.7 times",
	{signalling.PerSecond, cpOffload, softUPF}:   "2.05 million and 5,100: 402 times",
	{signalling.PerSecond, cpOffload, dpOffload}: "2.05 million and 666: 3,000 times",
	{signalling.P99, dpOffload, softUPF}:         "1,646 and 113 µs: 15 times",
	{signalling.P99, softUPF, cpOffload}:         "113 and 26 µs: 4.3 times",
	{metricP99, steerOffload, softUPF}:           "7 times",
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
			Says: f.says, Theirs: published[[3]string{f.metric, f.higher, f.lower}], Ratio: ratioOf[f.metric] + ", " + f.higher + " compared with " + f.lower, Metric: f.metric, Expect: result.More,
			A: where.With(labelDesign, f.higher), B: where.With(labelDesign, f.lower), Incomparable: incomparable(f.where),
		})
	}
	return p
}
