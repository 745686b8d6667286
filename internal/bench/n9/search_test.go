package n9

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// Devices of known capacity: the search must end just below it, in few trials.
func TestHighest(t *testing.T) {
	for _, tt := range []struct{ capacity, limit, want float64 }{
		{1_234_567, 1e7, 1_234_567},
		{50_000, 1e7, 50_000},
		{7_000, 1e7, 7_000},
		{3e6, 1e6, 1e6}, // the generator's limit
		{30_000, 20_000, 20_000},
	} {
		trials := 0
		got, err := highest(tt.limit, func(rate float64) (bool, error) {
			trials++
			if rate > tt.limit {
				t.Errorf("tried %v above the limit %v", rate, tt.limit)
			}
			return rate <= tt.capacity, nil
		})
		if err != nil || got > tt.want || got < tt.want/narrow {
			t.Errorf("capacity %v, limit %v: %v, %v; want %v", tt.capacity, tt.limit, got, err, tt.want)
		}
		if trials > 20 {
			t.Errorf("capacity %v: %d trials", tt.capacity, trials)
		}
	}
}

func TestHighestErrors(t *testing.T) {
	if got, err := highest(1e6, func(float64) (bool, error) { return false, nil }); !errors.Is(err, errNothing) {
		t.Errorf("a device that loses everything: %v, %v", got, err)
	}
	broken := errors.New("broken")
	if got, err := highest(1e6, func(float64) (bool, error) { return true, broken }); !errors.Is(err, broken) {
		t.Errorf("a device that breaks: %v, %v", got, err)
	}
}

func TestPreferred(t *testing.T) {
	for n, want := range map[int]float64{0: 1, 1: 1.06, 40: 10, 41: 10.6, 120: 1000, -1: 0.95, -40: 0.1, 139: 3000} {
		if got := preferred(n); math.Abs(got-want) > 1e-9*want {
			t.Errorf("preferred(%d) = %v, want %v", n, got, want)
		}
	}
	for n := -80; n < 80; n++ {
		if ratio := preferred(n+1) / preferred(n); ratio < 1.04 || ratio > 1.08 {
			t.Errorf("preferred(%d) is %v times the one before", n+1, ratio)
		}
	}
}

// The rates reach from where all is delivered to where it is not, whatever is
// between the transports.
func TestAround(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		points    int
	}{{1000, 1000, 14}, {400, 2000, 14}, {7.3, 9.1, 12}, {1000, 1000, 3}, {3, 3, 40}} {
		rates := around(tt.low, tt.high, tt.points)
		if len(rates) != tt.points || !slices.IsSorted(rates) || len(slices.Compact(slices.Clone(rates))) != tt.points {
			t.Errorf("%+v: %v", tt, rates)
		}
		if rates[0] > 0.6*tt.low || rates[0] < 0.5*tt.low || rates[tt.points-1] < above*tt.high {
			t.Errorf("%+v: %v to %v", tt, rates[0], rates[tt.points-1])
		}
	}
	// A little more or less of what was found makes the same rates, or moves them by
	// one of the series.
	if a, b := around(1000, 1500, 14), around(1001, 1501, 14); !slices.Equal(a, b) {
		t.Errorf("%v and %v", a, b)
	}
}

func TestDecimal(t *testing.T) {
	for rate, want := range map[float64]string{1.12 * 1e4: "11200", 3 * 0.1: "0.3", 1e6: "1000000", 12345.6: "12345.6", 20: "20", preferred(139): "3000", preferred(-7): "0.67"} {
		if got := decimal(rate); got != want {
			t.Errorf("decimal(%v) = %s, want %s", rate, got, want)
		}
	}
}
