package search

import (
	"math"
	"slices"
	"testing"
	"time"
)

// The example of RFC 9971 appendix C: four goals, six points in time. In the last
// two its table calls the load a lower bound of the fourth goal beside exceed
// ratios of 42.9 % and 27.3 %, which are above the 20 % that the goal allows: the
// rule of section 6.1 and the code of appendix A say upper bound, and they hold.
func TestExampleSearch(t *testing.T) {
	const s = time.Second
	goals := []Goal{
		{Name: "RFC2544", Final: 60 * s, Sum: 60 * s},
		{Name: "TST009", Final: 60 * s, Sum: 120 * s, ExceedRatio: 0.5},
		{Name: "1s final", Final: s, Sum: 120 * s, LossRatio: 0.005, ExceedRatio: 0.5},
		{Name: "20% exceed", Final: 60 * s, Sum: 60 * s, LossRatio: 0.005, ExceedRatio: 0.2},
	}
	var trials []Trial
	for _, point := range []struct {
		name  string
		times int
		added Trial
		want  []bound
	}{
		{"first short good", 59, trial(s, 0), []bound{undecided, undecided, undecided, undecided}},
		{"first short bad", 1, trial(s, 0.01), []bound{upper, undecided, undecided, undecided}},
		{"last short bad", 59, trial(s, 0.01), []bound{upper, undecided, undecided, upper}},
		{"last short good", 1, trial(s, 0), []bound{upper, undecided, lower, upper}},
		{"first long bad", 1, trial(60*s, 0.001), []bound{upper, undecided, lower, upper}},
		{"first long good", 1, trial(60*s, 0), []bound{upper, lower, lower, upper}},
	} {
		trials = append(trials, slices.Repeat([]Trial{point.added}, point.times)...)
		for i, g := range goals {
			if got := g.classify(trials); got != point.want[i] {
				t.Errorf("%s, goal %s: %d, want %d", point.name, g.Name, got, point.want[i])
			}
		}
	}
	for i, want := range map[int]float64{1: 1e6, 2: 1e6, 3: 999e3} {
		if got := goals[i].throughput(1e6, trials); math.Abs(got-want) > 1e-3 {
			t.Errorf("conditional throughput of %s: %v, want %v", goals[i].Name, got, want)
		}
	}
}

func trial(d time.Duration, loss float64) Trial {
	return Trial{Input{1e6, d}, Output{LossRatio: loss}}
}

// A third trial is never needed where two of two decide, and tenths of a second
// add up.
func TestClassifyTenths(t *testing.T) {
	const d = 100 * time.Millisecond
	g := Goal{Final: d, Sum: 3 * d, ExceedRatio: 1.0 / 3}
	for name, tt := range map[string]struct {
		losses []float64
		want   bound
	}{
		"two good of three": {[]float64{0, 0}, lower},
		"one good":          {[]float64{0}, undecided},
		"one bad":           {[]float64{0.1}, undecided},
		"two bad":           {[]float64{0.1, 0.1}, upper},
		"good, bad, good":   {[]float64{0, 0.1, 0}, lower},
		"nothing":           {nil, undecided},
	} {
		var trials []Trial
		for _, loss := range tt.losses {
			trials = append(trials, trial(d, loss))
		}
		if got := g.classify(trials); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// The time that counts is the one that the trial says.
func TestEffectiveDuration(t *testing.T) {
	g := Goal{Final: time.Second, Sum: 2 * time.Second}
	long := trial(time.Second, 0)
	if got := g.classify([]Trial{long}); got != undecided {
		t.Errorf("one second of two: %d", got)
	}
	long.Effective = 2 * time.Second
	if got := g.classify([]Trial{long}); got != lower {
		t.Errorf("two seconds of two: %d", got)
	}
}

// Without a trial of full length there is no throughput to tell.
func TestThroughputWithoutFullTrials(t *testing.T) {
	g := Goal{Final: time.Second, Sum: time.Second}
	for _, trials := range [][]Trial{nil, {trial(time.Second/2, 0)}} {
		if got := g.throughput(1e6, trials); got != 0 {
			t.Errorf("%v: %v, want 0", trials, got)
		}
	}
}

func TestGoalCheck(t *testing.T) {
	good := Goal{Name: "PDR", LossRatio: 0.005, ExceedRatio: 0.5, Width: 0.01, Initial: 1, Final: 2, Sum: 2}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, break1 := range map[string]func(*Goal){
		"loss":                 func(g *Goal) { g.LossRatio = 1 },
		"exceed":               func(g *Goal) { g.ExceedRatio = -0.1 },
		"no width":             func(g *Goal) { g.Width = 0 },
		"width below the loss": func(g *Goal) { g.Width = 0.001 },
		"no initial":           func(g *Goal) { g.Initial = 0 },
		"final before initial": func(g *Goal) { g.Initial = 3 },
		"sum below final":      func(g *Goal) { g.Sum = 1 },
	} {
		bad := good
		break1(&bad)
		if err := bad.Check(); err == nil {
			t.Errorf("%s: %+v passed", name, bad)
		}
	}
}
