package demand

import (
	"math"
	"time"
)

const (
	// trend is how many periods a forecast looks back, and least how many rates it needs.
	trend, least = 8, 4
	// sure is how many of its standard errors a slope is lowered by: noise has none left.
	sure = 2
	// most is what a forecast is at most, by the largest of the rates that it is made of.
	most = 1.5
)

// forecast is the rate at the horizon, in bit/s, if a rise goes on: by the line of least squares
// through the latest rates. What these scatter about the line lowers its slope, so that noise
// rises nowhere, and a step little: by the time that half of the rates are after it they scatter
// most. 0: nothing rises for sure.
func (c *meter) forecast(at time.Time, o Options) float64 {
	var n, x, y, largest float64
	var points [][2]float64 // seconds from now, bit/s
	for _, r := range c.within(at, o) {
		middle := at.Sub(r.at) + r.over/2
		if middle > trend*o.Period {
			continue
		}
		p := [2]float64{-middle.Seconds(), r.bits}
		points = append(points, p)
		n, x, y, largest = n+1, x+p[0], y+p[1], max(largest, r.bits)
	}
	if n < least || o.Horizon <= 0 {
		return 0
	}
	x, y = x/n, y/n
	var xx, xy, yy float64
	for _, p := range points {
		dx, dy := p[0]-x, p[1]-y
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	slope := xy / xx
	scatter := max(0, yy-slope*xy) / (n - 2)
	if slope -= sure * math.Sqrt(scatter/xx); !(slope > 0) {
		return 0
	}
	return min(y+slope*(o.Horizon.Seconds()-x), most*largest)
}
