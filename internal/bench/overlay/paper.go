package overlay

import "github.com/culvert-net/culvert/internal/bench/result"

// Paper is paper 002: its figure 15.
func Paper() result.Paper {
	beside := func(protocol, gso string) result.Labels {
		return result.Labels{labelName: ours, labelFamily: "ipv4", labelProtocol: protocol, labelGSO: gso, labelServices: "0", labelBeside: ipInIP}
	}
	finding := func(says, theirs string, of result.Labels) result.Finding {
		return result.Finding{Says: says, Theirs: theirs, Ratio: "throughput over SRv6, compared with IP-in-IP", Metric: metricBeside, A: of, Expect: result.NotLess}
	}
	return result.Paper{
		Number: "002", Title: "Kubernetes networking over SRv6", Source: paper,
		Question: "Do pods of two nodes get as much over SRv6 as over the tunnel that was there before, IP-in-IP?",
		Command:  "culvert bench overlay", Figure: "fig15-tcp",
		Findings: []result.Finding{
			finding("TCP over SRv6 has as much throughput as over IP-in-IP, or more (figure 15)", "slightly above, 2 Gbit/s", beside("tcp", on)),
			finding("UDP over SRv6 has as much throughput as over IP-in-IP (figure 15)", "the same, 1 Gbit/s", beside("udp", off)),
		},
	}
}
