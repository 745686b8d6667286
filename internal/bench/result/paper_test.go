package result

import (
	"math"
	"testing"
)

func of(of string, samples ...float64) Measurement {
	return Measurement{Metric: "time", Labels: Labels{"of": of}, Samples: samples}
}

// Each verdict, and that the other side of 1 turns it.
func TestJudge(t *testing.T) {
	one := []float64{1, 1, 1, 1, 1, 1}
	times := func(list ...float64) Measurement { return of("a", list...) }
	for _, tt := range []struct {
		name string
		a    Measurement
		x    Expectation
		want Verdict
	}{
		{"more, and it is", times(1.2, 1.3, 1.2, 1.3, 1.2, 1.3), More, Agrees},
		{"more by little, for certain", times(1.02, 1.03, 1.02, 1.03, 1.02, 1.03), More, Agrees},
		{"more, and it is less", times(0.8, 0.7, 0.8, 0.7, 0.8, 0.7), More, Contradicts},
		{"more, and there is no difference", times(0.99, 1.01, 1, 1.02, 1, 0.98), More, Contradicts},
		{"more, and it may be", times(0.9, 1.3, 1.2, 0.95, 1.2, 1.3), More, Open},
		{"less, and it is", times(0.8, 0.7, 0.8, 0.7, 0.8, 0.7), Less, Agrees},
		{"less, and it is more", times(1.2, 1.3, 1.2, 1.3, 1.2, 1.3), Less, Contradicts},
		{"the same, and it is", times(0.99, 1.01, 1, 1.02, 1, 0.98), Same, Agrees},
		{"the same, and it is more", times(1.2, 1.3, 1.2, 1.3, 1.2, 1.3), Same, Contradicts},
		{"the same, and it may be", times(0.9, 1.3, 1.2, 0.95, 1.2, 1.3), Same, Open},
		{"no less, and it is more", times(1.2, 1.3, 1.2, 1.3, 1.2, 1.3), NotLess, Agrees},
		{"no less, and it is less", times(0.8, 0.7, 0.8, 0.7, 0.8, 0.7), NotLess, Contradicts},
		{"one round", times(1.2), More, Open},
		{"as many rounds as the other has not", times(1.2, 1.3), More, NotMeasured},
		{"nothing", Measurement{Metric: "other"}, More, NotMeasured},
	} {
		b := of("b", one...)
		if len(tt.a.Samples) == 1 {
			b.Samples = one[:1]
		}
		f := Finding{Metric: "time", A: Labels{"of": "a"}, B: Labels{"of": "b"}, Expect: tt.x}
		if j := f.Judge(&Run{Measurements: []Measurement{tt.a, b}}); j.Verdict != tt.want {
			t.Errorf("%s: %s of %v, want %s", tt.name, j.Verdict, j.Ours, tt.want)
		}
	}
}

// A run with more noise than a finding bears says nothing of it.
func TestJudgeNoise(t *testing.T) {
	r := &Run{NoiseLimit: 0.5, Environment: Environment{Noise: 0.2}, Measurements: []Measurement{of("a", 2, 2, 2), of("b", 1, 1, 1)}}
	f := Finding{Metric: "time", A: Labels{"of": "a"}, B: Labels{"of": "b"}, Expect: More}
	if j := f.Judge(r); j.Verdict != Agrees {
		t.Errorf("below the run's limit: %s", j.Verdict)
	}
	f.NoiseLimit = 0.1
	if j := f.Judge(r); j.Verdict != Open || j.Why != "others used the CPU" {
		t.Errorf("above the finding's own limit: %s, %q", j.Verdict, j.Why)
	}
}

// What ours cannot show is not judged, whatever the interval and the noise; without a
// measurement it is not measured.
func TestJudgeIncomparable(t *testing.T) {
	r := &Run{NoiseLimit: 0.1, Environment: Environment{Noise: 0.2}, Measurements: []Measurement{of("a", 1, 1, 1), of("b", 2, 2, 2)}}
	f := Finding{Metric: "time", A: Labels{"of": "a"}, B: Labels{"of": "b"}, Expect: More, Incomparable: "one core"}
	if j := f.Judge(r); j.Verdict != NotComparable || j.Why != "one core" || j.Ours.Value != 0.5 {
		t.Errorf("%s, %q, %v", j.Verdict, j.Why, j.Ours)
	}
	r.Measurements = nil
	if j := f.Judge(r); j.Verdict != NotMeasured {
		t.Errorf("without a measurement: %s", j.Verdict)
	}
}

// What has a baseline is compared by it: with another, or with its own.
func TestJudgeBaselines(t *testing.T) {
	a, b := of("a", 20, 40, 60), of("b", 10, 20, 30)
	a.Baseline, b.Baseline = []float64{10, 20, 30}, []float64{10, 20, 30}
	r := &Run{Measurements: []Measurement{a, b}}
	for name, f := range map[string]Finding{
		"with another":       {Metric: "time", A: Labels{"of": "a"}, B: Labels{"of": "b"}, Expect: More},
		"with its own":       {Metric: "time", A: Labels{"of": "a"}, Expect: More},
		"two are selected":   {Metric: "time", A: Labels{}, Expect: More},
		"nothing to compare": {Metric: "time", A: Labels{"of": "a"}, B: Labels{"of": "c"}, Expect: More},
	} {
		want, verdict := 2.0, Agrees
		if name == "two are selected" || name == "nothing to compare" {
			want, verdict = math.NaN(), NotMeasured
		}
		if j := f.Judge(r); j.Ours.Value != want && !math.IsNaN(want) || j.Verdict != verdict {
			t.Errorf("%s: %v, %s", name, j.Ours, j.Verdict)
		}
	}
}

// Knees are compared by the curves, whatever order their rates are in.
func TestJudgeKnees(t *testing.T) {
	var list []Measurement
	for _, at := range []struct {
		rate string
		a, b float64
	}{{"400", 1, 0.5}, {"100", 1, 1}, {"200", 0.997, 1}, {"800", 0.6, 0.3}} {
		for name, v := range map[string]float64{"a": at.a, "b": at.b} {
			list = append(list, Measurement{Metric: "delivered", Labels: Labels{"of": name, "rate": at.rate}, Samples: []float64{v, v, v, v, v, v}})
		}
	}
	f := Finding{Metric: "delivered", A: Labels{"of": "a"}, B: Labels{"of": "b"}, Knee: "rate", Expect: More}
	j := f.Judge(&Run{Measurements: list})
	if j.Verdict != Agrees || j.Ours.Value < 1.9 || j.Ours.Value > 2.1 {
		t.Errorf("%s of %v, want twice", j.Verdict, j.Ours)
	}
	if k := Knee(list[:0], "rate"); k.Measured() {
		t.Errorf("the knee of nothing is %v", k)
	}
}

func TestSum(t *testing.T) {
	judged := func(list ...Verdict) (out []Judged) {
		for _, v := range list {
			out = append(out, Judged{Verdict: v})
		}
		return out
	}
	for _, tt := range []struct {
		list  []Judged
		want  Verdict
		words string
	}{
		{judged(NotMeasured, NotMeasured), NotMeasured, "not measured"},
		{judged(Agrees, Open, NotMeasured), Agrees, "agrees in 1 of 2"},
		{judged(Agrees, Contradicts, Contradicts), Contradicts, "agrees in 1, contradicts in 2 of 3"},
		{judged(Contradicts, Open), Contradicts, "contradicts in 1 of 2"},
		{judged(Open), Open, "not shown"},
		{judged(Agrees, NotComparable), Agrees, "agrees in 1 of 1"},
		{judged(NotComparable, NotMeasured), NotComparable, "not comparable"},
		{nil, NotMeasured, "not measured"},
	} {
		if v, words := Sum(tt.list); v != tt.want || words != tt.words {
			t.Errorf("%v: %s, %q", tt.list, v, words)
		}
	}
}
