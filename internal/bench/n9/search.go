package n9

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Between these rates, in packets/s, the highest is searched for.
const (
	slowest = 1000
	begin   = 50_000
)

// narrow is how near the two rates are, one delivered whole and one not, between
// which the search ends.
const narrow = 1.06

// errNothing says that not even the slowest rate is delivered.
var errNothing = errors.New("packets are lost at any rate")

// highest finds the highest rate up to a limit, in packets/s, that is delivered
// whole: by doubling, then by halving the way between.
func highest(limit float64, whole func(rate float64) (bool, error)) (float64, error) {
	good, bad := 0.0, math.Inf(1)
	for rate := min(begin, limit); good == 0 || bad > good*narrow; {
		ok, err := whole(rate)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			bad = rate
		case rate >= limit:
			return limit, nil
		default:
			good = rate
		}
		if bad <= slowest {
			return 0, fmt.Errorf("%w: %.0f packets/s and more", errNothing, bad)
		}
		switch {
		case math.IsInf(bad, 1):
			rate = min(2*good, limit)
		case good == 0:
			rate = bad / 2
		default:
			rate = math.Sqrt(good * bad)
		}
	}
	return good, nil
}

// series are the preferred numbers R40 (ISO 3): each is 1.06 times the one
// before. Rates are of it, so that runs meet at the same ones.
var series = []float64{
	1, 1.06, 1.12, 1.18, 1.25, 1.32, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.12, 2.24, 2.36, 2.5, 2.65, 2.8, 3,
	3.15, 3.35, 3.55, 3.75, 4, 4.25, 4.5, 4.75, 5, 5.3, 5.6, 6, 6.3, 6.7, 7.1, 7.5, 8, 8.5, 9, 9.5,
}

// preferred is the n-th number of the series, which goes on in both directions.
func preferred(n int) float64 {
	power := math.Floor(float64(n) / float64(len(series)))
	return series[n-int(power)*len(series)] * math.Pow(10, power)
}

// decimal writes a rate without exponent, and without what binary fractions add.
func decimal(rate float64) string {
	d := math.Pow(10, 6-math.Ceil(math.Log10(rate)))
	return strconv.FormatFloat(math.Round(rate*d)/d, 'f', -1, 64)
}

// The rates begin at this share of the lowest that is delivered whole, and reach
// this one of the highest.
const (
	below = 0.55
	above = 1.4
)

// around are as many rates as are asked for, in even steps, from where all is
// delivered to where nothing of it is whole.
func around(low, high float64, points int) []float64 {
	first := int(math.Floor(float64(len(series)) * math.Log10(below*low)))
	step := 1
	for preferred(first+step*(points-1)) < above*high {
		step++
	}
	rates := make([]float64, points)
	for i := range rates {
		rates[i] = preferred(first + step*i)
	}
	return rates
}
