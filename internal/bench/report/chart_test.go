package report

import (
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// A run that was stopped may have one point of a curve, or one at zero: on a logarithmic
// axis neither has a place.
func TestPointsWithoutALogarithm(t *testing.T) {
	for name, values := range map[string]map[string]float64{"one": {"1": 10}, "at zero": {"0": 10, "5": 20}, "below it": {"1": 0, "5": 20}} {
		r := oneBar(100)
		f := &r.Figures[0]
		f.Kind, f.X, f.LogX, f.LogY = result.Lines, "rate", true, true
		r.Measurements = nil
		for rate, y := range values {
			r.Measurements = append(r.Measurements, result.Measurement{Metric: "cost", Labels: result.Labels{"rate": rate}, Unit: "ns", Samples: []float64{y}})
		}
		c, err := chartOf(*f, []source{{run: r}}, palette{})
		if err != nil {
			t.Fatal(err)
		}
		if picture, err := filePicture(c).svg(); err != nil || len(picture) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
