package search

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Goal is a Search Goal (RFC 9971 section 4.6).
type Goal struct {
	Name string `json:"name"`
	// LossRatio is what a trial may lose of its packets: 0 for NDR.
	LossRatio float64 `json:"loss_ratio"`
	// ExceedRatio is the share of the trials' time that may lose more.
	ExceedRatio float64 `json:"exceed_ratio"`
	// Width is how near the bounds must come: their difference by the upper one.
	Width float64 `json:"width"`
	// Initial is the duration of the first trials, Final that of those which a
	// lower bound needs.
	Initial time.Duration `json:"initial_trial_duration"`
	Final   time.Duration `json:"final_trial_duration"`
	// Sum is how long a load is tried at most to decide about it.
	Sum time.Duration `json:"duration_sum"`
}

// Check says what cannot be searched for.
func (g Goal) Check() error {
	var errs []error
	want := func(right bool, format string, args ...any) {
		if !right {
			errs = append(errs, fmt.Errorf("goal %q: "+format, append([]any{g.Name}, args...)...))
		}
	}
	want(g.LossRatio >= 0 && g.LossRatio < 1, "loss ratio %v: give 0 to less than 1", g.LossRatio)
	want(g.ExceedRatio >= 0 && g.ExceedRatio < 1, "exceed ratio %v: give 0 to less than 1", g.ExceedRatio)
	want(g.Width > 0 && g.Width < 1, "width %v: give more than 0, less than 1", g.Width)
	want(g.Width >= g.LossRatio,
		"width %v below the loss ratio %v: a goal that may lose more could be found to forward less (RFC 9971 section 5.7.2)", g.Width, g.LossRatio)
	want(g.Initial > 0 && g.Final >= g.Initial && g.Sum >= g.Final,
		"durations %s, %s and %s: give an initial one above 0, a final one as long or longer, and a sum of one final trial or more", g.Initial, g.Final, g.Sum)
	return errors.Join(errs...)
}

// Input is a Trial Input.
type Input struct {
	Load     float64       `json:"load"` // packets/s
	Duration time.Duration `json:"duration"`
}

// Output is a Trial Output. The Trial Forwarding Rate is Load * (1 - LossRatio).
type Output struct {
	LossRatio float64 `json:"loss_ratio"`
	// Effective is the time that the trial counts for; 0: its duration.
	Effective time.Duration `json:"effective_duration,omitempty"`
	// Reached is the load that the generator offered; 0: the load of the trial. A
	// trial whose generator fell short says nothing about the device at that load.
	Reached float64 `json:"reached,omitempty"`
}

// Trial is a Trial Result.
type Trial struct {
	Input
	Output
}

func (t Trial) effective() time.Duration { return cmp.Or(t.Effective, t.Duration) }

// fellShort says that the generator offered less than the trial's load.
func (t Trial) fellShort() bool { return t.Reached > 0 && t.Reached < t.Load*(1-shortfall) }

// shortfall is how much less than the load the generator may offer: less than any
// width that is searched to.
const shortfall = 0.005

// bound is how a load is classified.
type bound int

const (
	undecided bound = iota
	lower
	upper
)

// sums are the Trial Effective Durations at one load, in seconds.
type sums struct{ fullLow, fullHigh, shortLow, shortHigh float64 }

func (g Goal) sums(trials []Trial) (s sums) {
	for _, t := range trials {
		d := t.effective().Seconds()
		switch full, low := t.Duration >= g.Final, t.LossRatio <= g.LossRatio; {
		case full && low:
			s.fullLow += d
		case full:
			s.fullHigh += d
		case low:
			s.shortLow += d
		default:
			s.shortHigh += d
		}
	}
	return s
}

// classify is the Load Classification of the trials at one load (RFC 9971
// appendix A).
func (g Goal) classify(trials []Trial) bound {
	s := g.sums(trials)
	balancing := s.shortLow * g.ExceedRatio / (1 - g.ExceedRatio)
	effectiveHigh := s.fullHigh + max(0, s.shortHigh-balancing)
	whole := max(s.fullLow+effectiveHigh, g.Sum.Seconds())
	quantile := whole * g.ExceedRatio
	switch pessimisticHigh := whole - s.fullLow; {
	case pessimisticHigh <= quantile+rounding && effectiveHigh <= quantile+rounding:
		return lower
	case effectiveHigh > quantile+rounding:
		return upper
	}
	return undecided
}

// rounding is less than any trial lasts: sums of tenths of seconds are not exact.
const rounding = 1e-9

// throughput is the Conditional Throughput of a load (RFC 9971 appendix B): the
// forwarding rate of the worst trial that the goal does not excuse.
func (g Goal) throughput(load float64, trials []Trial) float64 {
	full := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Duration < g.Final })
	slices.SortStableFunc(full, func(a, b Trial) int { return cmp.Compare(a.LossRatio, b.LossRatio) })
	s := g.sums(full)
	remaining := max(g.Sum.Seconds(), s.fullLow+s.fullHigh) * (1 - g.ExceedRatio)
	loss := 1.0
	for _, t := range full {
		if remaining <= rounding {
			break
		}
		loss = t.LossRatio
		remaining -= t.effective().Seconds()
	}
	if remaining > rounding {
		loss = 1
	}
	return load * (1 - loss)
}
