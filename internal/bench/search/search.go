package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Measure runs one trial.
type Measure func(context.Context, Input) (Output, error)

// Settings are a Controller Input.
type Settings struct {
	// Min and Max are the loads between which is searched, in packets/s. Max is
	// what the generator reaches by itself.
	Min, Max float64
	Goals    []Goal
	// Most is after how many trials the search gives up; 0: 150.
	Most int
}

// Cause is why a goal's result is irregular.
type Cause string

// The causes.
const (
	// Regular: both bounds are there, and near enough.
	Regular Cause = ""
	// GeneratorLimited: the device reaches the goal at the highest load there is.
	GeneratorLimited Cause = "generator limited"
	// BelowMin: it does not even reach it at the lowest.
	BelowMin Cause = "below the lowest load"
	// Unfinished: the search was stopped, or gave up.
	Unfinished Cause = "unfinished"
)

// GoalResult is what was found for a goal; a regular one has both bounds.
type GoalResult struct {
	Goal
	// Lower and Upper are the relevant bounds in packets/s; 0: no such bound. If the
	// generator was the limit, Lower is the highest load that it reached.
	Lower float64 `json:"lower,omitempty"`
	Upper float64 `json:"upper,omitempty"`
	// Throughput is the Conditional Throughput at Lower.
	Throughput float64 `json:"throughput,omitempty"`
	Cause      Cause   `json:"cause,omitempty"`
}

func (r GoalResult) String() string {
	switch r.Cause {
	case Regular:
		return fmt.Sprintf("%s %.0f packets/s, between %.0f and %.0f", r.Name, r.Throughput, r.Lower, r.Upper)
	case GeneratorLimited:
		return fmt.Sprintf("%s at least %.0f packets/s: the generator was the limit, not the device", r.Name, r.Lower)
	case BelowMin:
		return fmt.Sprintf("%s below %.0f packets/s, the lowest load", r.Name, r.Upper)
	}
	return fmt.Sprintf("%s unfinished: between %.0f and %.0f packets/s", r.Name, r.Lower, r.Upper)
}

// Result is a Controller Output.
type Result struct {
	Goals  []GoalResult `json:"goals"`
	Trials []Trial      `json:"trials"` // in order
}

// Search looks for all goals together. It returns what it found also with an
// error: of a trial, or of ctx.
func Search(ctx context.Context, s Settings, measure Measure) (*Result, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c := &controller{Settings: s, measure: measure, at: map[float64][]Trial{}, limit: math.Floor(s.Max)}
	err := c.run(ctx)
	r := &Result{Trials: c.trials}
	for _, g := range s.Goals {
		r.Goals = append(r.Goals, c.result(g))
	}
	return r, err
}

const mostTrials = 150

func (s *Settings) check() error {
	var errs []error
	if s.Min <= 0 || s.Max < s.Min+1 {
		errs = append(errs, fmt.Errorf("loads from %v to %v packets/s: give a lowest above 0 and a highest above it", s.Min, s.Max))
	}
	if len(s.Goals) == 0 {
		errs = append(errs, errors.New("no goal to search for"))
	}
	for _, g := range s.Goals {
		errs = append(errs, g.Check())
	}
	s.Most = cmp.Or(s.Most, mostTrials)
	s.Min = math.Ceil(s.Min)
	return errors.Join(errs...)
}

// controller is the state of one search.
type controller struct {
	Settings
	measure Measure
	trials  []Trial
	at      map[float64][]Trial // those that count, by load
	limit   float64             // the highest load that may be tried
	reached float64             // the highest load that the generator reached
}

// stages are how a goal is come nearer: short trials and coarse widths first, so
// that long trials are run near the throughput only.
const stages = 3

// stage is a goal on its way: the last one is the goal itself.
func (g Goal) stage(i int) Goal {
	left := float64(stages - 1 - i)
	scale := func(from, to time.Duration) time.Duration {
		return time.Duration(float64(to) * math.Pow(float64(from)/float64(to), left/(stages-1)))
	}
	g.Final, g.Sum = scale(g.Initial, g.Final), scale(g.Initial, g.Sum)
	g.Width = min(0.5, g.Width*math.Pow(2, left))
	return g
}

func (c *controller) run(ctx context.Context) error {
	hints, err := c.begin(ctx)
	if err != nil {
		return err
	}
	for i := range stages {
		for _, g := range c.Goals {
			if i > 0 {
				low, high := c.bounds(g.stage(i - 1))
				hints = []float64{low, high}
			}
			if err := c.reach(ctx, g.stage(i), hints); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin tries the highest load, and what came out of it, and what came out of
// that: the throughput of a device that has one limit is among them (FRMOL, RFC
// 2285). The lowest is first, since a bound makes those above it void.
func (c *controller) begin(ctx context.Context) (hints []float64, err error) {
	first := c.Goals[0].stage(0).Final
	for range 3 {
		load := c.limit
		if len(hints) > 0 {
			load = hints[0]
		}
		t, err := c.try(ctx, Input{load, first})
		if err != nil {
			return nil, err
		}
		rate := min(t.Load, cmp.Or(t.Reached, t.Load)) * (1 - t.LossRatio) // Trial Forwarding Rate, of what was offered
		hints = append([]float64{c.clamp(rate)}, hints...)
		if t.LossRatio == 0 || hints[0] == c.Min {
			break
		}
	}
	return hints, nil
}

// reach tries loads until the goal's bounds are near enough, those first that
// were bounds before.
func (c *controller) reach(ctx context.Context, g Goal, hints []float64) error {
	for step := g.Width; len(c.trials) < c.Most; {
		low, high := c.bounds(g)
		// A hint may be a bound, and is not known to be.
		i := slices.IndexFunc(hints, func(h float64) bool {
			return h > low && (high == 0 || h < high) && h <= c.limit && g.classify(c.at[h]) == undecided
		})
		var load float64
		if i >= 0 {
			load = hints[i]
		} else if next, ok := c.next(g, low, high, &step); ok {
			load = next
		} else {
			return nil
		}
		// The load is tried until it is known which bound it is.
		for load <= c.limit && len(c.trials) < c.Most && g.classify(c.at[load]) == undecided {
			if _, err := c.try(ctx, Input{load, g.Final}); err != nil {
				return err
			}
		}
	}
	return nil
}

// next returns the load to try: between the bounds, or, if only one bound exists,
// away from it in steps that double. ok is false if the bounds are near enough, or
// cannot come nearer.
func (c *controller) next(g Goal, low, high float64, step *float64) (load float64, ok bool) {
	switch {
	case low > 0 && high > 0:
		if (high-low)/high <= g.Width {
			return 0, false
		}
		load = math.Round(math.Sqrt(low * high)) // the halves' relative widths are equal
		return load, load > low && load < high
	case low > 0:
		load = c.clamp(max(low+1, low*(1+*step)))
	case high > 0:
		load = c.clamp(high / (1 + *step))
	default:
		load = c.limit
	}
	*step *= 2
	return load, low < c.limit && (high == 0 || high > c.Min)
}

// tries is how often the generator may fall short of a load before it is held to
// be unable to: what else the machine does must not set the limit.
const tries = 3

// try runs trials until one counts. Where the generator falls short again and
// again, of a load that it never reached, its best becomes the limit of the
// search; the last trial is returned, and counts for no load.
func (c *controller) try(ctx context.Context, in Input) (t Trial, err error) {
	best := 0.0
	for range tries {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		out, err := c.measure(ctx, in)
		if err != nil {
			return t, err
		}
		t = Trial{in, out}
		c.trials = append(c.trials, t)
		if !t.fellShort() {
			c.at[in.Load] = append(c.at[in.Load], t)
			c.reached = max(c.reached, in.Load)
			return t, nil
		}
		best = max(best, t.Reached)
	}
	if best = max(best, c.reached); best < c.Min {
		return t, fmt.Errorf("the generator reaches %.0f packets/s only: the lowest load is %.0f", best, c.Min)
	}
	c.limit = c.clamp(best)
	return t, nil
}

// clamp makes a load one that may be tried, of whole packets.
func (c *controller) clamp(load float64) float64 {
	return max(c.Min, min(c.limit, math.Floor(load)))
}

// bounds returns the relevant bounds: the lowest upper bound, and the highest lower
// bound below it. A missing bound is 0.
func (c *controller) bounds(g Goal) (low, high float64) {
	for load, trials := range c.at {
		if g.classify(trials) == upper && (high == 0 || load < high) {
			high = load
		}
	}
	for load, trials := range c.at {
		if g.classify(trials) == lower && load > low && (high == 0 || load < high) {
			low = load
		}
	}
	return low, high
}

func (c *controller) result(g Goal) GoalResult {
	r := GoalResult{Goal: g}
	r.Lower, r.Upper = c.bounds(g)
	r.Throughput = g.throughput(r.Lower, c.at[r.Lower])
	switch {
	case r.Lower > 0 && r.Upper > 0 && (r.Upper-r.Lower <= 1 || (r.Upper-r.Lower)/r.Upper <= g.Width):
		r.Cause = Regular
	case r.Upper == 0 && r.Lower > 0 && r.Lower >= c.limit:
		r.Cause = GeneratorLimited
	case r.Upper > 0 && r.Upper <= c.Min:
		r.Cause = BelowMin
	default:
		r.Cause = Unfinished
	}
	return r
}
