package traffic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// Together runs a trial on each of two pairs at once. The second pair was opened
// with the first (Options.With). One generator sends both trials' packets in turns, so
// that durations are the same, and the first rate a whole number of times the second. CPU
// is in the first outcome.
func Together(ctx context.Context, pairs [2]*Pair, trials [2]Trial) (outcomes [2]Outcome, err error) {
	a, b := pairs[0], pairs[1]
	if b.options.With != a || a.method != Live || b.method != Live {
		return outcomes, errors.New("two pairs together: the second is opened with the first, and both send live frames")
	}
	times, err := sharesOf(trials)
	if err != nil {
		return outcomes, err
	}
	if err := ctx.Err(); err != nil {
		return outcomes, err
	}
	jobs, err := prepareBoth(a, b, trials, times)
	if err != nil {
		return outcomes, err
	}
	verifiers := [2]*verifier{newVerifier(jobs[0]), newVerifier(jobs[1])}
	before, err := now(a.options.Watch)
	if err != nil {
		return outcomes, err
	}
	sent, err := a.send(ctx, jobs[0], verifiers[0])
	if err != nil {
		return outcomes, err
	}
	for i, p := range pairs {
		// Waits for what is late. The pair has its own packets, and the first pair's pace.
		s, err := p.state()
		if err != nil {
			return outcomes, err
		}
		if err := p.settle(verifiers[i], s.Sent); err != nil {
			return outcomes, err
		}
		sent.packets = s.Sent
		if outcomes[i], err = p.outcome(trials[i], sent, verifiers[i]); err != nil {
			return outcomes, err
		}
	}
	after, err := now(a.options.Watch)
	outcomes[0].CPU = after.since(before)
	return outcomes, errors.Join(err, ctx.Err())
}

// sharesOf is how many packets the first trial has for each of the second.
func sharesOf(trials [2]Trial) (times int, err error) {
	a, b := trials[0], trials[1]
	if a.Rate == b.Rate { // both may be as fast as possible
		times = 1
	} else {
		times = int(math.Round(a.Rate / b.Rate))
	}
	if times < 1 || math.Abs(a.Rate-float64(times)*b.Rate) > 1e-6*a.Rate || a.Duration != b.Duration || a.Later+b.Later > 0 {
		return 0, fmt.Errorf("two pairs together: rates %v and %v, durations %v and %v: want a rate that is a whole number of times the second for as long, and stays",
			a.Rate, b.Rate, a.Duration, b.Duration)
	}
	return times, nil
}

// prepareBoth makes the jobs: the first has the pace, the second is called.
func prepareBoth(a, b *Pair, trials [2]Trial, times int) (jobs [2]trafficrun.Job, err error) {
	a.trial = max(a.trial, b.trial) // no number is of both
	if jobs[0], err = a.prepare(trials[0]); err != nil {
		return jobs, err
	}
	b.trial = a.trial
	if jobs[1], err = b.prepare(trials[1]); err != nil {
		return jobs, err
	}
	jobs[0].Rate, jobs[0].Turns = trials[0].Rate+trials[1].Rate, times+1
	if trials[0].Rate > 0 {
		jobs[0].CatchUp = min(jobs[0].CatchUp, time.Duration(burst/jobs[0].Rate*1e9))
	}
	jobs[1].Rate, jobs[1].Duration = 0, longest // the first ends it
	if err := a.engine.TakeTurns(b.engine); err != nil {
		return jobs, err
	}
	return jobs, errors.Join(a.engine.Prepare(jobs[0]), b.engine.Prepare(jobs[1]))
}
