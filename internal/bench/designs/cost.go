package designs

import (
	"math"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// What a rate of UEs' traffic takes: arithmetic.
const (
	metricCores = "cores"
	metricWatts = "watts"
	metricPrice = "price"
)

// speeds are in Gbit/s.
var speeds = []int{10, 100}

// costSize is the size of the frames by which cores are counted: a mix, where there is one.
func (e *Experiment) costSize() string {
	if slices.Contains(e.Sizes, "imix") {
		return "imix"
	}
	return e.Sizes[0]
}

// cost is how many cores speeds take, and what those take, as if each forwarded as many
// packets per second, of so many octets, as the one that was measured.
func (e *Experiment) cost(design, size string, pps, octets float64) (list []experiment.Sample) {
	for _, speed := range speeds {
		add := func(metric, unit string, value float64) {
			labels := Labels(design).With("size", size, "rate", strconv.Itoa(speed)+" Gbit/s")
			list = append(list, experiment.Sample{Metric: metric, Labels: labels, Unit: unit, Value: value})
		}
		cores := math.Ceil(float64(speed) * 1e9 / (pps * 8 * octets))
		add(metricCores, "cores", cores)
		if e.WattsPerCore > 0 {
			add(metricWatts, "W", cores*e.WattsPerCore)
		}
		if e.Price > 0 {
			add(metricPrice, "", cores*e.Price)
		}
	}
	return list
}

// costFigures show what speeds take.
func (e *Experiment) costFigures() (list []result.Figure) {
	add := func(metric, title, y string) {
		list = append(list, result.Figure{
			ID: "designs_" + metric, Title: title, Kind: result.Bars, Metric: metric, X: labelDesign, Series: "rate", YTitle: y,
			Caption: "Arithmetic, not measured: as if each core forwarded what the one did that was measured. Traffic of UEs as frames at N6, without preamble and gap; whole cores. N4, and what the machine itself needs, are not in it.",
		})
	}
	add(metricCores, "Cores for 10 and 100 Gbit/s", "cores")
	if e.WattsPerCore > 0 {
		add(metricWatts, "Watts for 10 and 100 Gbit/s", "power")
	}
	if e.Price > 0 {
		add(metricPrice, "Price of the cores for 10 and 100 Gbit/s", "price")
	}
	return list
}
