package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// rounds makes a check until the median of how long packets were lost is within the limit, at most
// as often as the check says. Each round has to pass by itself. The result is that of the median's
// round, and says what the others were.
func rounds(ctx context.Context, p topology.Planned, run func(context.Context, topology.Planned) report.Result) report.Result {
	start, limit := time.Now(), milliseconds(time.Duration(p.Expect.LossFor))
	var made []report.Result
	var texts []string
	for {
		last := run(ctx, p)
		made, texts = append(made, last), append(texts, fmt.Sprintf("%.0f", last.LossFor))
		if !last.Pass {
			return last
		}
		slices.SortFunc(made, func(a, b report.Result) int { return cmp.Compare(a.LossFor, b.LossFor) })
		median := made[len(made)/2]
		within := median.LossFor <= limit
		if (!within || len(made) < topology.LeastRounds) && len(made) < p.Rounds && ctx.Err() == nil {
			continue
		}
		words := fmt.Sprintf("packets were lost for %.0f ms, the median of %s", median.LossFor, strings.Join(texts, ", "))
		if median.Pass = within; !within {
			words += fmt.Sprintf(": want %v ms", limit)
		}
		median.Detail, median.Seconds = report.OneLine([]string{words, median.Detail}), time.Since(start).Seconds()
		return median
	}
}
