package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func TestRankSum(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for name, tt := range map[string]struct {
		a, b []float64
		want float64
	}{
		// Tables of the Mann-Whitney test: U = 0 of 5 and 5 has 2 of 252 choices.
		"apart":   {ten[:5], ten[5:], 2.0 / 252},
		"two":     {ten[:2], ten[2:4], 2.0 / 6},
		"between": {[]float64{1, 4}, []float64{2, 3}, 1},
		"alike":   {[]float64{1, 1, 1}, []float64{1, 1, 1}, 1},
		// 4 and 4 tie: of the 6 choices only those of {1, 4} are as far off.
		"tied": {[]float64{1, 4}, []float64{4, 9}, 4.0 / 6},
	} {
		if got := rankSum(tt.a, tt.b); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
		if got, back := rankSum(tt.a, tt.b), rankSum(tt.b, tt.a); math.Abs(got-back) > 1e-12 {
			t.Errorf("%s: %v one way, %v the other", name, got, back)
		}
	}
}

// Where all ways are too many to count, the normal distribution says the same.
func TestRankSumOfMany(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	draw := func(n int, shift float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = math.Round(20 * (r.NormFloat64() + shift)) // with ties
		}
		return out
	}
	for _, shift := range []float64{0, 0.3, 0.6} {
		a, b := draw(exact/2, 0), draw(exact/2, shift)
		counted := rankSum(a, b)
		near := rankSum(slices.Concat(a, a), slices.Concat(b, b)) // more than are counted
		if shift == 0 && near < 0.05 || near > counted+0.05 {
			t.Errorf("shift %v: %v counted, %v of twice as many", shift, counted, near)
		}
	}
	same := 0
	for range 200 {
		if rankSum(draw(exact, 0), draw(exact, 0)) < 0.05 {
			same++
		}
	}
	if same < 2 || same > 20 { // 10 expected, standard deviation 3
		t.Errorf("%d of 200 pairs of the same distribution differ at 5 %%", same)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.04, 0.001, 0.02, 0.012})
	// 0.001 * 4, 0.012 * 3, 0.02 * 2, 0.04 * 1
	if want := []bool{true, true, true, true}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got = Holm([]float64{0.04, 0.001, 0.026, 0.012})
	// 0.026 * 2 is more than 0.05: the one after it does not count either.
	if want := []bool{false, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDifferences(t *testing.T) {
	base := []float64{100, 101, 102, 103, 104, 105, 106, 107, 108}
	scaled := func(by float64) (out []float64) {
		for _, v := range base {
			out = append(out, v*by)
		}
		return out
	}
	first := []Series{{base, nil}, {base, nil}, {base, base}, {base, nil}, {nil, nil}}
	second := []Series{{scaled(1.2), nil}, {scaled(1.009), nil}, {scaled(1.2), scaled(1.2)}, {base[:2], nil}, {base, nil}}
	got := Differences(first, second, Margin)
	for i, real := range []bool{true, false, false, false, false} {
		if got[i].Real != real {
			t.Errorf("%d: %+v: real is %v", i, got[i], !real)
		}
	}
	if d := got[0]; math.Abs(d.Ratio-1.2) > 1e-9 || d.Low > 1.2 || d.Low < 1.1 || d.High < 1.2 || d.High > 1.3 {
		t.Errorf("%+v, want 1.2 in a narrow interval", d)
	}
	if d := got[2]; d.Ratio != 1 || d.P != 1 {
		t.Errorf("slow rounds of both: %+v, want no difference", d)
	}
	if d := got[4]; !math.IsNaN(d.Ratio) || d.P != 1 {
		t.Errorf("of nothing: %+v", d)
	}
}

// recorded are runs of the same thing on a machine that others used: the same
// program and functions again and again, each with a daemon of its own.
type recorded struct {
	Runs []struct {
		Noise []float64               // before and after
		Live  map[string][2][]float64 // of functions: samples, baseline
	}
}

func readRecorded(t *testing.T) (r recorded) {
	t.Helper()
	text, err := os.ReadFile("testdata/same.json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pairs compares runs that are drawn at random, and returns the share of p below
// 5 %, and of pairs in which Holm finds any difference.
func (r recorded) pairs(n int, margin float64) (share, any float64) {
	draw := rand.New(rand.NewPCG(9, 10))
	below, all, found := 0, 0, 0
	for range n {
		i := draw.IntN(len(r.Runs))
		j := (i + 1 + draw.IntN(len(r.Runs)-1)) % len(r.Runs)
		var ps []float64
		for name, a := range r.Runs[i].Live {
			b := r.Runs[j].Live[name]
			p := chance(Series{a[0], a[1]}.logs(), Series{b[0], b[1]}.logs(), margin)
			if ps = append(ps, p); p < level {
				below++
			}
			all++
		}
		if slices.Contains(Holm(ps), true) {
			found++
		}
	}
	return float64(below) / float64(all), float64(found) / float64(n)
}

// Runs of the same thing differ as often as the test allows for, 5 times of 100.
// Without a margin it would be nearly twice that: each run has a daemon and
// memory of its own.
func TestSameThing(t *testing.T) {
	r := readRecorded(t)
	if len(r.Runs) < 50 {
		t.Fatalf("%d runs are recorded", len(r.Runs))
	}
	share, any := r.pairs(500, Margin)
	t.Logf("differ at 5 %%: %.3f of comparisons; after Holm: %.3f of pairs of runs", share, any)
	if share < 0.03 || share > 0.07 {
		t.Errorf("%.3f of comparisons of the same thing differ at 5 %%", share)
	}
	if any > 0.10 {
		t.Errorf("in %.3f of pairs of runs of the same thing a difference is called real", any)
	}
	if without, _ := r.pairs(500, 0); without < 0.07 {
		t.Errorf("without the margin %.3f differ: it is there for nothing", without)
	}
}

// With the margin of `make bench-ci` runs of the same thing hardly ever differ, on a busy machine too.
func TestSameThingOnForge(t *testing.T) {
	_, any := readRecorded(t).pairs(500, 0.05)
	t.Logf("after Holm, with a margin of 5 %%: %.3f of pairs of runs", any)
	if any > 0.03 {
		t.Errorf("in %.3f of pairs of runs of the same thing a difference is called real", any)
	}
}

// A difference that is there is found in the same runs.
func TestOtherThing(t *testing.T) {
	r := readRecorded(t)
	found, all := 0, 0
	for i := 1; i < len(r.Runs); i++ {
		for name, a := range r.Runs[i-1].Live {
			b := r.Runs[i].Live[name]
			slower := make([]float64, len(b[0]))
			for k, v := range b[0] {
				slower[k] = 1.4 * v
			}
			if chance(Series{a[0], a[1]}.logs(), Series{slower, b[1]}.logs(), Margin) < level {
				found++
			}
			all++
		}
	}
	if found < all*95/100 {
		t.Errorf("what takes 1.4 times as long differs in %d of %d comparisons", found, all)
	}
}
