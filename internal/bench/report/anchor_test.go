package report

import (
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Others' figures that are far from ours stand at the edge, with their value, and
// leave ours their place.
func TestAnchorsBeyondTheAxes(t *testing.T) {
	curve := func(x string, log bool, anchors ...result.Anchor) *chart {
		t.Helper()
		r := oneBar(100)
		r.Figures[0].Anchors, r.Figures[0].LogX, r.Figures[0].LogY = anchors, log, log
		if x != "" {
			r.Figures[0].Kind, r.Figures[0].X = result.Lines, "rate"
			r.Measurements = nil
			for _, rate := range []string{"100", "200", "400"} {
				r.Measurements = append(r.Measurements, result.Measurement{Metric: "cost", Labels: result.Labels{"rate": rate}, Unit: "ns", Samples: []float64{10}})
			}
		}
		c, err := chartOf(r.Figures[0], []source{{run: r}}, palette{})
		if err != nil {
			t.Fatal(err)
		}
		for _, draw := range []func() ([]byte, error){filePicture(c).png, filePicture(c).svg} {
			if picture, err := draw(); err != nil || len(picture) == 0 {
				t.Error(err)
			}
		}
		return c
	}
	for _, tt := range []struct {
		name   string
		x      string
		log    bool
		anchor result.Anchor
		beyond edge
		label  string
	}{
		{"bars, near", "", false, result.Anchor{Y: 190}, "", ""},
		{"bars, far", "", false, result.Anchor{Y: 5000}, right, "5.00 µs ►"},
		{"bars, at ours", "", false, result.Anchor{X: "end", Y: 5000}, right, "5.00 µs ►"},
		{"bars, logarithmic, far below", "", true, result.Anchor{Y: 2}, left, "◄ 2.00 ns"},
		{"lines, too low a rate", "yes", true, result.Anchor{X: "20", Y: 10}, left, "◄ 20"},
		{"lines, too high a rate", "yes", true, result.Anchor{X: "2000000", Y: 10}, right, "2\u202fM ►"},
		{"lines, far above", "yes", false, result.Anchor{Y: 7000}, top, "▲ 7.00 µs"},
		{"lines, far below", "yes", true, result.Anchor{X: "200", Y: 0.5}, bottom, "▼ 0.500 ns"},
	} {
		tt.anchor.Label, tt.anchor.Unit = "other", "ns"
		c := curve(tt.x, tt.log, tt.anchor)
		a := c.anchors[0]
		low, high := c.valueRange()
		firstX, lastX := c.ownX()
		if a.beyond != tt.beyond || a.label != tt.label {
			t.Errorf("%s: beyond %q, %q; want %q, %q", tt.name, a.beyond, a.label, tt.beyond, tt.label)
		}
		if _, own := c.ownValues(); a.beyond != "" && own < 0.6*high {
			t.Errorf("%s: the axis ends at %v, ours at %v", tt.name, high, own)
		}
		if a.beyond != "" && (a.y < low || a.y > high || a.at < firstX || a.at > lastX) {
			t.Errorf("%s: it stands at %v, %v, outside of the picture", tt.name, a.at, a.y)
		}
	}
	two := curve("yes", true, result.Anchor{Label: "a", X: "20", Y: 10, Unit: "ns"}, result.Anchor{Label: "b", X: "30", Y: 10, Unit: "ns"})
	if two.anchors[0].level == two.anchors[1].level {
		t.Error("two at one place hide each other")
	}
}
