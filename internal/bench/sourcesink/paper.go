package sourcesink

import "github.com/culvert-net/culvert/internal/bench/result"

// Findings are what paper 000 says in its figure 6, which has no numbers on its bars.
func Findings() (list []result.Finding) {
	for _, mode := range []struct{ says, label string }{
		{"traditional mode", "SRv6 (1 SID)"}, {"enhanced mode (2 SIDs)", "SRv6 (2 SIDs)"}, {"enhanced mode (3 SIDs)", "SRv6 (3 SIDs)"},
	} {
		list = append(list, result.Finding{
			Says: "SRv6 " + mode.says + " takes less CPU than GTP-U at source and sink (figure 6)", Theirs: "less",
			Ratio: "CPU time of source and sink, compared with GTP-U's", Metric: metricTotal, A: result.Labels{labelEncapsulation: mode.label}, Expect: result.Less,
		})
	}
	return list
}
