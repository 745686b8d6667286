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

// What its figure doubts is in no picture and no table, and a sentence says so.
func TestDoubt(t *testing.T) {
	r := oneBar(100)
	r.Figures[0].Doubt = &result.Doubt{Metric: "loss", Where: result.Labels{"of": "pair"}, Above: 0.01, Why: "the pair loses too"}
	for _, name := range []string{"other", "third"} {
		r.Measurements = append(r.Measurements, result.Measurement{Metric: "cost", Labels: result.Labels{"function": name}, Unit: "ns", Samples: []float64{300}})
	}
	for name, loss := range map[string]float64{"end": 0.01, "other": 0.02, "third": 0.5} {
		r.Measurements = append(r.Measurements, result.Measurement{Metric: "loss", Labels: result.Labels{"function": name, "of": "pair"}, Samples: []float64{loss}})
	}
	c, err := chartOf(r.Figures[0], []source{{run: r}}, palette{})
	if err != nil {
		t.Fatal(err)
	}
	people, _ := c.tables()
	if len(c.series[0].points) != 1 || len(people.Rows) != 1 || people.Rows[0][0] != "end" {
		t.Errorf("%d points, rows %v", len(c.series[0].points), people.Rows)
	}
	if len(c.Notes) != 1 || c.Notes[0] != "Left out: other; third: the pair loses too." {
		t.Errorf("notes %q", c.Notes)
	}
}
