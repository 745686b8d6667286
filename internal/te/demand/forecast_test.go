package demand

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// estimates reads a rate of bit/s each 10 s, and returns what is estimated with a horizon of 20 s
// after each reading, and what without.
func estimates(t *testing.T, periods int, rate func(seconds float64) float64) (ahead, plain []float64) {
	t.Helper()
	at, key, octets := time.Unix(1e9, 0), te.Key{Headend: "a", Endpoint: "b"}, 0.0
	with, without := New(Options{Horizon: 20 * time.Second}), New(Options{})
	for i := range periods + 1 {
		for _, m := range []*Matrix{with, without} {
			m.Read(key, at, uint64(octets))
		}
		if i > 0 {
			a, _ := with.At(at)
			b, _ := without.At(at)
			if a[0].Measured > 0 && (a[0].Measured != b[0].Rate || a[0].Rate <= a[0].Measured) {
				t.Errorf("%+v: without a horizon it is %+v", a[0], b[0])
			}
			ahead, plain = append(ahead, a[0].Rate), append(plain, b[0].Rate)
		}
		for s := range 10 {
			octets += rate(float64(10*i+s)+0.5) / 8
		}
		at = at.Add(10 * time.Second)
	}
	return ahead, plain
}

func TestRampIsAnticipated(t *testing.T) {
	ramp := func(s float64) float64 { return 1e8 + 1e6*max(0, s-300) } // 1 % each second, from 300 s on
	ahead, plain := estimates(t, 60, ramp)
	for i := 36; i < 60; i++ { // 60 s after it has begun
		now := float64(10 * (i + 1))
		if then := ramp(now + 20); ahead[i] < 0.97*then || ahead[i] > 1.03*then {
			t.Errorf("at %v s: %.4g, want %.4g", now, ahead[i], then)
		}
		if plain[i] > ramp(now) {
			t.Errorf("at %v s it is %.4g without a horizon: more than is sent", now, plain[i])
		}
	}
	for i := range 30 {
		if ahead[i] != plain[i] {
			t.Errorf("before the ramp: %v, want %v", ahead[i], plain[i])
		}
	}
	down, before := estimates(t, 60, func(s float64) float64 { return 1e8 - 1e5*s })
	for i := range down {
		if down[i] != before[i] {
			t.Errorf("what falls is forecast: %v, want %v", down[i], before[i])
		}
	}
}

func TestStepDoesNotOvershoot(t *testing.T) {
	for _, from := range []float64{0, 1e8, 5e8} {
		for offset := range 10 { // the step is within a period
			ahead, _ := estimates(t, 60, func(s float64) float64 {
				if s < float64(300+offset) {
					return from
				}
				return 1e9
			})
			for i, v := range ahead {
				if v > from+1.3*(1e9-from) {
					t.Errorf("from %v to 1e9, reading %d: %.4g", from, i, v)
				}
			}
		}
	}
}

func TestNoiseDoesNotInflate(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		noise := map[float64]float64{} // the same in each reading of a second
		ahead, plain := estimates(t, 400, func(s float64) float64 {
			period := math.Floor(s / 10)
			if _, has := noise[period]; !has {
				noise[period] = 1e8 * math.Exp(0.2*r.NormFloat64())
			}
			return noise[period]
		})
		var sum, base float64
		for i := 60; i < len(ahead); i++ {
			sum, base = sum+ahead[i], base+plain[i]
			if ahead[i] > 1.5*plain[i] {
				t.Errorf("seed %d, reading %d: %.4g, without a horizon %.4g", seed, i, ahead[i], plain[i])
			}
		}
		if sum > 1.01*base {
			t.Errorf("seed %d: the mean is %.3f times that without a horizon", seed, sum/base)
		}
	}
}
