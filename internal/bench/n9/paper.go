package n9

import "github.com/culvert-net/culvert/internal/bench/result"

// Paper is paper 000: its figure 5, which has no numbers on its points. Figure 6 is of the
// experiment source-sink.
func Paper() result.Paper {
	curve := func(n9 string) result.Labels { return point{n9: n9, direction: uplink}.labels() }
	const highest = "highest rate delivered, compared with GTP-U's"
	return result.Paper{
		Number: "000", Title: "SRv6 as a tunnelling protocol for network slices", Source: paper,
		Question: "Can SRv6 take the place of GTP-U between UPFs (N9) of two slices, and what does it cost?",
		Command:  "culvert bench slices && culvert bench source-sink", Figure: "fig5-" + uplink,
		Findings: []result.Finding{
			{Says: "SRv6 traditional mode (1 SID) delivers as much as GTP-U, or more (figure 5)", Theirs: "similar, and the best at high rates",
				Ratio: highest, Metric: metricDelivery, A: curve("traditional"), B: curve(base), Knee: "offered", Expect: result.NotLess},
			{Says: "SRv6 enhanced mode (2 SIDs) loses packets at a lower rate than GTP-U (figure 5)", Theirs: "20 and 30 Mbit/s: 0.67 times",
				Ratio: highest, Metric: metricDelivery, A: curve("enhanced"), B: curve(base), Knee: "offered", Expect: result.Less},
		},
	}
}
