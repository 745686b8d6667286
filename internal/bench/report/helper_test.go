package report

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// chartOf is the only chart of a figure.
func chartOf(f result.Figure, sources []source, p palette) (*chart, error) {
	list, err := chartsOf(f, sources, p)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("figure %q: %d charts", f.ID, len(list))
	}
	return list[0], nil
}
