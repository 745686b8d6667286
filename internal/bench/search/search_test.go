package search

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// ndr and pdr are what `culvert bench device` asks for.
func ndr() Goal {
	return Goal{Name: "NDR", ExceedRatio: 0.5, Width: 0.01, Initial: 200 * time.Millisecond, Final: time.Second, Sum: 3 * time.Second}
}

func pdr() Goal {
	g := ndr()
	g.Name, g.LossRatio = "PDR", 0.005
	return g
}

// device answers trials with a loss ratio.
type device func(Input) float64

func (d device) measure(_ context.Context, in Input) (Output, error) {
	return Output{LossRatio: min(1, max(0, d(in)))}, nil
}

// limited forwards so many packets/s, and drops the rest.
func limited(capacity float64) device {
	return func(in Input) float64 { return 1 - capacity/in.Load }
}

func find(t *testing.T, d device, goals ...Goal) *Result {
	t.Helper()
	r, err := Search(t.Context(), Settings{Min: 1000, Max: 10e6, Goals: goals}, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// within says that a goal was found, between bounds near enough, at `want`.
func within(t *testing.T, g GoalResult, want, tolerance float64) {
	t.Helper()
	if g.Cause != Regular || g.Lower >= g.Upper || (g.Upper-g.Lower)/g.Upper > g.Width {
		t.Errorf("%s: %+v is no regular result", g.Name, g)
	}
	if math.Abs(g.Throughput/want-1) > tolerance {
		t.Errorf("%s: %.0f, want %.0f within %v", g.Name, g.Throughput, want, tolerance)
	}
}

// A device with one limit is found within a width, wherever the limit is, in few
// trials.
func TestHardLimit(t *testing.T) {
	for _, capacity := range []float64{2000, 123_456, 1e6, 3.7e6, 9.9e6} {
		r := find(t, limited(capacity), ndr(), pdr())
		within(t, r.Goals[0], capacity, 0.01)
		within(t, r.Goals[1], capacity, 0.01)
		if n := r.Goals[0]; n.Lower > capacity || n.Upper <= capacity {
			t.Errorf("limit %.0f is not between %.0f and %.0f", capacity, n.Lower, n.Upper)
		}
		if p := r.Goals[1]; p.Lower > capacity/0.995 || p.Upper < capacity/0.995 {
			t.Errorf("0.5 %% above %.0f is not between %.0f and %.0f", capacity, p.Lower, p.Upper)
		}
		if len(r.Trials) > 30 {
			t.Errorf("limit %.0f: %d trials, want at most 30", capacity, len(r.Trials))
		}
	}
}

// A device that loses more the higher the load: the goals are far apart.
func TestGradualLoss(t *testing.T) {
	r := find(t, func(in Input) float64 { return (in.Load - 1e6) / 1e8 }, ndr(), pdr())
	within(t, r.Goals[0], 1e6, 0.01)
	within(t, r.Goals[1], 1.5e6*0.995, 0.01) // 0.5 % at 1.5 Mpps
	if len(r.Trials) > 60 {
		t.Errorf("%d trials, want at most 60", len(r.Trials))
	}
}

// Every trial meets another limit, and one of ten a hiccup: the goals excuse up
// to half of the trials, so they are found near the median limit.
func TestNoisyLimit(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		found := find(t, func(in Input) float64 {
			capacity := 1e6 * (1 + 0.02*r.NormFloat64())
			if r.IntN(10) == 0 {
				capacity /= 2
			}
			return 1 - capacity/in.Load
		}, ndr(), pdr())
		for _, g := range found.Goals {
			within(t, g, 1e6, 0.05)
		}
		if len(found.Trials) > 120 {
			t.Errorf("seed %d: %d trials, want at most 120", seed, len(found.Trials))
		}
	}
}

// A device that loses one of a thousand always has no NDR, and a PDR.
func TestLossyFloor(t *testing.T) {
	r := find(t, func(in Input) float64 { return max(0.001, 1-1e6/in.Load) }, ndr(), pdr())
	if n := r.Goals[0]; n.Cause != BelowMin || n.Lower != 0 || n.Throughput != 0 {
		t.Errorf("NDR: %+v; want none", n)
	}
	within(t, r.Goals[1], 1e6, 0.01)
}

// Queues let short trials pass above the limit: full ones decide.
func TestQueue(t *testing.T) {
	const capacity, queue = 1e6, 20_000
	r := find(t, func(in Input) float64 {
		sent := in.Load * in.Duration.Seconds()
		return ((in.Load-capacity)*in.Duration.Seconds() - queue) / sent
	}, ndr())
	within(t, r.Goals[0], capacity+queue, 0.01)
}

func TestDeviceThatForwardsNothing(t *testing.T) {
	r := find(t, func(Input) float64 { return 1 }, ndr(), pdr())
	for _, g := range r.Goals {
		if g.Cause != BelowMin {
			t.Errorf("%+v", g)
		}
	}
	if len(r.Trials) > 12 {
		t.Errorf("%d trials for a device that forwards nothing", len(r.Trials))
	}
}

// A higher load that happens to lose nothing does not make up for a lower one
// that lost too much (RFC 9971 section 5.3.3).
func TestLossInversion(t *testing.T) {
	r := find(t, func(in Input) float64 {
		if in.Load > 1e6 && in.Load < 1.1e6 {
			return 0.02
		}
		return 1 - 2e6/in.Load
	}, ndr(), pdr())
	for _, g := range r.Goals {
		if g.Lower >= g.Upper {
			t.Errorf("%+v: bounds the wrong way round", g)
		}
	}
}

// generator reaches `most` packets/s, and is slowed down now and then.
type generator struct {
	device
	most float64
	slow func() bool
}

func (g generator) measure(ctx context.Context, in Input) (Output, error) {
	reached := min(in.Load, g.most)
	if g.slow() {
		reached /= 2
	}
	out, err := g.device.measure(ctx, Input{reached, in.Duration})
	out.Reached = reached
	return out, err
}

func never() bool { return false }

// A generator that is slower than the device never makes the device look slow.
func TestGeneratorLimited(t *testing.T) {
	g := generator{limited(5e6), 2e6, never}
	for _, most := range []float64{2e6, 10e6} { // as it said of itself, and as it did not
		r, err := Search(t.Context(), Settings{Min: 1000, Max: most, Goals: []Goal{ndr(), pdr()}}, g.measure)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range r.Goals {
			if got.Cause != GeneratorLimited || got.Upper != 0 || math.Abs(got.Lower/2e6-1) > 0.001 {
				t.Errorf("highest load %v: %+v, want one that the generator limits at 2 Mpps", most, got)
			}
			if !strings.Contains(got.String(), "generator") {
				t.Errorf("it is told as %q", got)
			}
		}
	}
}

// Where the machine slows the generator at times, the device is found all the
// same: trials that fell short are not counted.
func TestGeneratorWithHiccups(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := generator{limited(1e6), 3e6, func() bool { return r.IntN(8) == 0 }}
		found, err := Search(t.Context(), Settings{Min: 1000, Max: 3e6, Goals: []Goal{ndr()}}, g.measure)
		if err != nil {
			t.Fatal(err)
		}
		within(t, found.Goals[0], 1e6, 0.01)
	}
}

func TestGeneratorBelowTheLowestLoad(t *testing.T) {
	g := generator{limited(1e6), 500, never}
	_, err := Search(t.Context(), Settings{Min: 1000, Max: 1e6, Goals: []Goal{ndr()}}, g.measure)
	if err == nil || !strings.Contains(err.Error(), "the generator reaches 500 packets/s only") {
		t.Error(err)
	}
}

// What was found before the end is kept.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r, err := Search(ctx, Settings{Min: 1000, Max: 10e6, Goals: []Goal{ndr(), pdr()}}, func(ctx context.Context, in Input) (Output, error) {
		if n++; n == 8 {
			cancel()
		}
		return limited(1e6).measure(ctx, in)
	})
	if !errors.Is(err, context.Canceled) || len(r.Trials) != 8 || len(r.Goals) != 2 {
		t.Fatalf("%v, %+v", err, r)
	}
	if g := r.Goals[0]; g.Cause != Unfinished || !strings.Contains(g.String(), "unfinished") {
		t.Errorf("%+v", g)
	}
}

func TestTrialFails(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	r, err := Search(t.Context(), Settings{Min: 1000, Max: 10e6, Goals: []Goal{ndr()}}, func(ctx context.Context, in Input) (Output, error) {
		if n++; n == 3 {
			return Output{}, broken
		}
		return limited(1e6).measure(ctx, in)
	})
	if !errors.Is(err, broken) || len(r.Trials) != 2 {
		t.Errorf("%v, %+v", err, r)
	}
}

// However the device behaves, the search ends, in the load's limits, and the
// result that it calls regular is one.
func TestAnyDeviceEnds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := Settings{Min: 10 + 100*r.Float64(), Goals: []Goal{ndr(), pdr()}, Most: 200}
		s.Max = s.Min * math.Pow(10, 0.01+4*r.Float64())
		if s.Max < s.Min+2 {
			s.Max = s.Min + 2
		}
		s.Goals[0].ExceedRatio = float64(r.IntN(2)) / 2
		got, err := Search(t.Context(), s, func(_ context.Context, in Input) (Output, error) {
			if in.Load < s.Min || in.Load > s.Max || in.Duration <= 0 {
				t.Fatalf("seed %d: trial %+v outside %v to %v", seed, in, s.Min, s.Max)
			}
			return Output{LossRatio: max(0, r.Float64()-r.Float64()), Reached: in.Load * (0.99 + 0.02*r.Float64())}, nil
		})
		if err != nil && !strings.Contains(err.Error(), "the generator reaches") {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(got.Trials) > s.Most+tries {
			t.Errorf("seed %d: %d trials of %d", seed, len(got.Trials), s.Most)
		}
		for _, g := range got.Goals {
			if g.Upper != 0 && g.Lower >= g.Upper {
				t.Errorf("seed %d: %+v", seed, g)
			}
		}
	}
}

func TestSettingsCheck(t *testing.T) {
	for name, s := range map[string]Settings{
		"no goals":    {Min: 1, Max: 10},
		"no loads":    {Goals: []Goal{ndr()}},
		"upside down": {Min: 10, Max: 5, Goals: []Goal{ndr()}},
		"bad goal":    {Min: 1, Max: 10, Goals: []Goal{{Name: "NDR"}}},
	} {
		if _, err := Search(t.Context(), s, limited(1).measure); err == nil {
			t.Errorf("%s: searched", name)
		}
	}
}
