// Package demand estimates what headends send, from counters that are read every few seconds.
//
// An estimate is for planning: it is the larger one of the moving average and the 95th
// percentile, so that it follows a rise at once and forgets a peak slowly, or the forecast of a
// rise that goes on (forecast.go). Nothing is taken for
// zero because it was not read. Counters are of packets that were sent: where a link is full,
// what TCP sends is less than what it would send.
package demand

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// Options say how rates are smoothed. The zero value is valid.
type Options struct {
	// Period is the time from one reading to the next; 0: 10 s.
	Period time.Duration
	// Average is the time constant of the moving average; 0: 30 s.
	Average time.Duration
	// Window is how long a rate counts for the percentile; 0: 10 min.
	Window time.Duration
	// Horizon is how far ahead a rise is forecast; 0: not at all.
	Horizon time.Duration
}

const (
	// kept is for how many periods an estimate stands without a new rate.
	kept = 3
	// percentile of the rates in the window that is planned for.
	percentile = 0.95
	// restart is the increase, in octets, from which on a counter has started anew: modulo
	// 2^64, one that fell has grown by more.
	restart = 1 << 62
)

// Matrix is the estimates of all demands. It is not safe for concurrent use. Times are
// arguments: they come from one clock.
type Matrix struct {
	o      Options
	meters map[te.Key]*meter
}

// New makes a matrix without demands.
func New(o Options) *Matrix {
	o.Period = cmp.Or(o.Period, 10*time.Second)
	o.Average = cmp.Or(o.Average, 30*time.Second)
	o.Window = cmp.Or(o.Window, 10*time.Minute)
	return &Matrix{o: o, meters: map[te.Key]*meter{}}
}

// Look has later estimates look ahead so far.
func (m *Matrix) Look(ahead time.Duration) { m.o.Horizon = ahead }

// Read takes a reading of a demand's counter: the octets that its headend has sent up to a time.
// The first reading, and one that is lower than the reading before (the headend has restarted),
// give no rate.
func (m *Matrix) Read(key te.Key, at time.Time, octets uint64) {
	c := m.meters[key]
	if c == nil {
		m.meters[key] = &meter{read: at, octets: octets}
		return
	}
	c.take(at, octets, m.o)
}

// At has the estimates at a time, ordered by key. Those in unknown had no rate for three
// periods, or none yet. A demand without a reading for longer than the window is forgotten.
func (m *Matrix) At(at time.Time) (known []te.Demand, unknown []te.Key) {
	maps.DeleteFunc(m.meters, func(_ te.Key, c *meter) bool { return at.Sub(c.read) > m.o.Window })
	for _, key := range slices.SortedFunc(maps.Keys(m.meters), compare) {
		if c := m.meters[key]; c.known(at, m.o) {
			d := te.Demand{Key: key, Rate: c.estimate(at, m.o)}
			if later := c.forecast(at, m.o); later > d.Rate {
				d.Rate, d.Measured = later, d.Rate
			}
			known = append(known, d)
		} else {
			unknown = append(unknown, key)
		}
	}
	return known, unknown
}

func compare(a, b te.Key) int {
	return cmp.Or(cmp.Compare(a.Headend, b.Headend), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Color, b.Color))
}

// meter is one counter.
type meter struct {
	read    time.Time // of the last reading
	octets  uint64    // at that time
	average float64   // bit/s
	rates   []rate    // in the window, the oldest first
}

// rate is between two readings.
type rate struct {
	bits float64 // bit/s
	over time.Duration
	at   time.Time // its end
}

// take makes a rate of two readings.
func (c *meter) take(at time.Time, octets uint64, o Options) {
	over, grown := at.Sub(c.read), octets-c.octets
	switch {
	case over == 0:
		return
	case over < 0: // the clock went back: nothing says when the rates were
		*c = meter{read: at, octets: octets}
		return
	}
	fresh := c.known(at, o)
	c.read, c.octets = at, octets
	if over > kept*o.Period || grown >= restart {
		return // a counter that was not read for long may have restarted unseen
	}
	bits := float64(grown) * 8 / over.Seconds()
	if fresh {
		c.average += (bits - c.average) * (1 - math.Exp(-over.Seconds()/o.Average.Seconds()))
	} else {
		c.average = bits
	}
	c.rates = append(c.within(at, o), rate{bits, over, at})
}

// known says whether the last rate is recent.
func (c *meter) known(at time.Time, o Options) bool {
	return len(c.rates) > 0 && at.Sub(c.rates[len(c.rates)-1].at) <= kept*o.Period
}

// within are the rates that are in the window at a time.
func (c *meter) within(at time.Time, o Options) []rate {
	return slices.DeleteFunc(c.rates, func(r rate) bool { return at.Sub(r.at) > o.Window })
}

// estimate is the rate to plan for, in bit/s: the average, or if it is more, what the rates in
// the window are at most for 95 % of the time.
func (c *meter) estimate(at time.Time, o Options) float64 {
	c.rates = c.within(at, o)
	sorted := slices.SortedFunc(slices.Values(c.rates), func(a, b rate) int { return cmp.Compare(a.bits, b.bits) })
	var all, sum time.Duration
	for _, r := range sorted {
		all += r.over
	}
	for _, r := range sorted {
		if sum += r.over; float64(sum) >= percentile*float64(all) {
			return max(c.average, r.bits)
		}
	}
	return c.average
}
