package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestInterval(t *testing.T) {
	for name, tt := range map[string]struct {
		samples, baseline []float64
		value, low, high  float64
	}{
		"one":   {[]float64{3}, nil, 3, 3, 3},
		"three": {[]float64{9, 1, 5}, nil, 5, 1, 9},
		// 2 * (1 + 9) / 2^9 is 3.9 %, 2 * (1 + 9 + 36) / 2^9 is 18 %
		"nine":         {[]float64{7, 1, 9, 3, 5, 2, 8, 4, 6}, nil, 5, 2, 8},
		"three beside": {[]float64{4, 4, 8}, []float64{4, 2, 2}, 2, 1, 4},
		"two beside":   {[]float64{1, 3}, []float64{1, 1}, 2, 1, 3},
		// what was slow together does not blur the ratio
		"nine beside": {[]float64{7, 1, 9, 3, 5, 2, 8, 4, 6}, []float64{14, 2, 18, 6, 10, 4, 16, 8, 12}, 0.5, 0.5, 0.5},
		// an outlier does not widen it
		"outlier": {[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1e6}, nil, 1, 1, 1},
	} {
		value, low, high := Interval(tt.samples, tt.baseline)
		if value != tt.value || low != tt.low || high != tt.high {
			t.Errorf("%s: %v, %v to %v; want %v, %v to %v", name, value, low, high, tt.value, tt.low, tt.high)
		}
	}
	for name, pair := range map[string][2][]float64{"nothing": {}, "unequal": {{1, 2}, {1}}, "none beside none": {{}, {}}} {
		if value, low, high := Interval(pair[0], pair[1]); !math.IsNaN(value) || !math.IsNaN(low) || !math.IsNaN(high) {
			t.Errorf("%s: %v, %v to %v; want no numbers", name, value, low, high)
		}
	}
}

// An interval of 95 % has the true value in it 95 times of 100, also where the
// machine slows whole rounds, and single ones very much.
func TestIntervalHoldsTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	noisy := func(value, round float64) float64 {
		v := value * round * math.Exp(0.03*r.NormFloat64())
		if r.IntN(10) == 0 {
			v *= 1 + 3*r.Float64()
		}
		return v
	}
	const runs = 300
	for _, rounds := range []int{6, 11, 15, 30} {
		held, heldBeside := 0, 0
		for range runs {
			var samples, baseline, alone []float64
			for range rounds {
				round := math.Exp(0.2 * r.NormFloat64())
				samples, baseline = append(samples, noisy(200, round)), append(baseline, noisy(100, round))
				alone = append(alone, math.Exp(r.NormFloat64())) // the median is 1
			}
			if _, low, high := Interval(samples, baseline); low <= 2 && 2 <= high {
				heldBeside++
			}
			if _, low, high := Interval(alone, nil); low <= 1 && 1 <= high {
				held++
			}
		}
		t.Logf("%d rounds: %d and %d of %d", rounds, held, heldBeside, runs)
		// 91 % is three standard deviations below 95 % of 300.
		if held < 273 || heldBeside < 273 {
			t.Errorf("%d rounds: the interval held the truth %d and %d times of %d, want 285", rounds, held, heldBeside, runs)
		}
	}
}

// Of runs of the same thing, the median of the rounds' ratios differs less than
// the ratio of the medians.
func TestPairedRatiosAreSteadier(t *testing.T) {
	r := readRecorded(t)
	for function := range r.Runs[0].Live {
		var paired, apart []float64
		for _, run := range r.Runs {
			samples, baseline := run.Live[function][0], run.Live[function][1]
			value, _, _ := Interval(samples, baseline)
			paired, apart = append(paired, math.Log(value)), append(apart, math.Log(Median(samples)/Median(baseline)))
		}
		p, a := spread(paired), spread(apart)
		t.Logf("%s: %.1f %% of paired ratios, %.1f %% of medians", function, 100*p, 100*a)
		if p > 0.8*a {
			t.Errorf("%s: runs of the same thing differ by %.1f %% with paired ratios, and by %.1f %% with medians", function, 100*p, 100*a)
		}
	}
}

// spread is the standard deviation.
func spread(values []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(values)))
}
