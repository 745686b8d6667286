package report

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// pointTicks are where points are: a reader finds the numbers that were measured.
func (c *chart) pointTicks() (list plot.ConstantTicks) {
	var at []float64
	for _, s := range c.all {
		for _, p := range s.points {
			at = append(at, p.x)
		}
	}
	slices.Sort(at)
	for _, x := range slices.Compact(at) {
		list = append(list, plot.Tick{Value: x, Label: tickText(x)})
	}
	return list
}

// apart is how far labels on an axis are from each other at least.
const apart = 6

// thinned are the ticks of the horizontal axis without labels that would print over others: the first
// and the last stay, and from the left those that there is room for.
func (p *picture) thinned(a *plot.Axis) plot.TickerFunc {
	of := a.Tick.Marker
	return func(low, high float64) []plot.Tick {
		list := slices.Clone(of.Ticks(low, high))
		slices.SortStableFunc(list, func(x, y plot.Tick) int { return cmp.Compare(x.Value, y.Value) })
		ends := func(t plot.Tick) (left, right vg.Length) {
			middle, half := p.plotWidth()*vg.Length(a.Norm(t.Value)), a.Tick.Label.Width(t.Label)/2
			return middle - half, middle + half
		}
		limit, last := vg.Length(math.Inf(1)), -1
		for i := len(list) - 1; i >= 0 && last < 0; i-- {
			if list[i].Label != "" && list[i].Value >= low && list[i].Value <= high {
				limit, _ = ends(list[i])
				last = i
			}
		}
		used := vg.Length(math.Inf(-1))
		for i, t := range list {
			if left, right := ends(t); t.Label == "" || i == last {
				continue
			} else if left < used+apart || right > limit-apart {
				list[i].Label = ""
			} else {
				used = right
			}
		}
		return list
	}
}

// plotWidth is about as wide as the area between the axes.
func (p *picture) plotWidth() vg.Length {
	beside := vg.Length(30) // numbers of the value axis
	if p.chart.flat() {
		style := textStyle(9.5, ink, false)
		for _, name := range p.chart.categories {
			for _, line := range p.categoryLines(name) {
				beside = max(beside, style.Width(line)+8)
			}
		}
	}
	return p.width - 2*p.margin - beside
}
