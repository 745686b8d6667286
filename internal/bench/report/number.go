package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// scale is the multiple of a unit in which figures are written.
type scale struct {
	unit string  // "Mpackets/s"
	by   float64 // what a value is divided by
	// places are how many decimals there are; 0: as many as the value needs.
	places int
}

// Ratios have as many decimals everywhere, so that they can be read down; those
// of two runs one more, for they are all about 1.
var (
	ratioScale      = scale{by: 1, places: 2}
	differenceScale = scale{by: 1, places: 3}
)

var (
	times    = []scale{{unit: "ns", by: 1}, {unit: "µs", by: 1e3}, {unit: "ms", by: 1e6}, {unit: "s", by: 1e9}}
	multiple = []scale{{by: 1}, {unit: "k", by: 1e3}, {unit: "M", by: 1e6}, {unit: "G", by: 1e9}, {unit: "T", by: 1e12}}
	// inNS are units of time.
	inNS = map[string]float64{"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
)

// scaleOf is the multiple in which the largest value of some has few digits.
func scaleOf(unit string, largest float64) scale {
	if ns, ok := inNS[unit]; ok {
		s := fitting(times, largest*ns)
		return scale{unit: s.unit, by: s.by / ns}
	}
	if unit == "octets" && largest >= 1e4 {
		unit = "B" // the one that has multiples
	}
	if unit == "B" || strings.HasSuffix(unit, "/s") {
		s := fitting(multiple, largest)
		return scale{unit: s.unit + unit, by: s.by}
	}
	return scale{unit: unit, by: 1}
}

func fitting(list []scale, largest float64) scale {
	fit := list[0]
	for _, s := range list {
		if math.Abs(largest) >= s.by {
			fit = s
		}
	}
	return fit
}

func (s scale) suffix() string {
	if s.unit == "" {
		return ""
	}
	return " " + s.unit
}

// decimals are as many as show three digits of a value, and of a share that is
// nearly 1 that it is not.
func decimals(v float64) int {
	v = math.Abs(v)
	if v == 0 {
		return 0
	}
	n := 2 - int(math.Floor(math.Log10(v)))
	if v > 0.9 && v < 1 {
		n = max(n, min(6, int(math.Ceil(-math.Log10(1-v)-1e-6))))
	}
	return max(n, 0)
}

// number writes a value with three digits.
func number(v float64) string {
	return fixed(v, decimals(v))
}

// fixed writes a value with so many decimals, and thousands apart from 10 000 on.
func fixed(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole, part, _ := strings.Cut(text, ".")
	for i, many := len(whole)-3, len(whole) > 4; i > 0 && many; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	if part != "" {
		whole += "." + part
	}
	if v < 0 && strings.Trim(text, "0.") != "" {
		whole = "−" + whole
	}
	return whole
}

// words are an estimate's value and interval, without the unit.
func (s scale) words(e result.Estimate) (value, interval string) {
	if !e.Measured() {
		return "–", "–"
	}
	n := s.places
	if n == 0 {
		n = decimals(e.Value / s.by)
	}
	value, interval = fixed(e.Value/s.by, n), "–"
	if e.HasInterval() {
		interval = fixed(e.Low/s.by, n) + " to " + fixed(e.High/s.by, n)
	}
	return value, interval
}

// sentence is an estimate in words.
func (s scale) sentence(e result.Estimate) string {
	value, interval := s.words(e)
	if e.HasInterval() {
		return value + s.suffix() + " (" + interval + ")"
	}
	return value + s.suffix()
}

// raw is a value as a program reads it.
func raw(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 7, 64)
}
