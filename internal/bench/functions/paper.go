package functions

import (
	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// Paper is paper 001: its table II, and its figure 5 of short packets under heavy load. The figure
// has no numbers on its bars.
func Paper() result.Paper {
	of := func(name string) result.Labels {
		return result.Labels{"function": catalog.Titles[name].Name, "packet": "short", "load": "heavy"}
	}
	latency := func(says, a, b string) result.Finding {
		return result.Finding{Says: says + " (figure 5)", Theirs: "more", Ratio: "latency, heavy load, short packets", Metric: MetricLatency,
			A: of(a), B: of(b), Expect: result.More, NoiseLimit: experiment.NoiseOfRates}
	}
	return result.Paper{
		Number: "001", Title: "Translation between GTP-U and SRv6 without state", Source: "paper 001",
		Question: "What does a packet pay for GTP-U, for SRv6, and for the translation of one into the other?",
		Command:  "culvert bench functions", Figure: "fig5",
		Findings: []result.Finding{
			{Says: "T.M.Tmap (H.M.GTP4.D) forwards as many packets as GTP-U encap (table II)", Theirs: "100.8 million packets/s each",
				Ratio: "packets/s, heavy load, short packets", Metric: MetricRate, A: of("h_m_gtp4_d"), B: of("gtpu_encap"), Expect: result.Same, NoiseLimit: experiment.NoiseOfRates},
			{Says: "End.M.GTP4.E forwards as many packets as GTP-U encap (table II)", Theirs: "100.8 million packets/s each",
				Ratio: "packets/s, heavy load, short packets", Metric: MetricRate, A: of("end_m_gtp4_e"), B: of("gtpu_encap"), Expect: result.Same, NoiseLimit: experiment.NoiseOfRates},
			latency("SRv6 encap (H.Encaps.Red) has more latency than T.M.Tmap", "h_encaps_red", "h_m_gtp4_d"),
			latency("T.M.Tmap has more latency than GTP-U encap", "h_m_gtp4_d", "gtpu_encap"),
			latency("GTP-U encap has more latency than GTP-U decap", "gtpu_encap", "gtpu_decap"),
			latency("SRv6 encap has more latency than SRv6 decap (End.DT4)", "h_encaps_red", "end_dt4"),
			latency("T.M.Tmap has more latency than End.M.GTP4.E", "h_m_gtp4_d", "end_m_gtp4_e"),
		},
	}
}
