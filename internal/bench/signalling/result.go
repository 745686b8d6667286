package signalling

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what became of the requests of a run.
type Result struct {
	Sent     int // requests, each counted once
	Accepted int // of them, by an answer with the Cause "Request accepted"
	Refused  int // by an answer with another Cause
	// Unanswered were not answered within T1, and Lost not within T1 after they were sent
	// again either.
	Unanswered, Lost int
	// Wrong are messages that are no answer to a modification, have no Cause, or name
	// another session. Strange are answers to what is not under way: second ones too.
	// Foreign did not come from the UPF.
	Wrong, Strange, Foreign int
	// Skipped are requests that were due, and that no session was free for.
	Skipped int
	// Elapsed is how long requests were sent. PerSecond are those accepted meanwhile.
	Elapsed   time.Duration
	PerSecond float64
	// Time from sending a request until it was accepted.
	P50, P99, Max time.Duration
	// LongestGap is the longest time between two accepted requests while requests were sent.
	LongestGap time.Duration
	// CPU time of the thread that sent and received. AtLimit: it had none left, so that
	// the UPF may be quicker than PerSecond.
	CPU     time.Duration
	AtLimit bool
}

// ErrUnanswered says that the UPF did not answer some requests within T1.
var ErrUnanswered = errors.New("not answered within T1")

// Err is nil where each request was accepted in time, and nothing else came.
func (r *Result) Err() error {
	switch {
	case r.Refused+r.Wrong+r.Foreign > 0:
		return fmt.Errorf("signalling: of %d requests %d were refused; %d answers were wrong, %d from others", r.Sent, r.Refused, r.Wrong, r.Foreign)
	case r.Unanswered > 0:
		return fmt.Errorf("signalling: of %d requests %d were %w, %d not at all", r.Sent, r.Unanswered, ErrUnanswered, r.Lost)
	}
	return nil
}

// longest time that is told from longer ones.
const longest = 100 * time.Second

// tally counts answers as they come.
type tally struct {
	Result
	times   *hdrhistogram.Histogram
	last    time.Duration // when a request was accepted
	inside  int           // accepted while requests were sent
	stopped bool
}

func newTally() *tally {
	return &tally{times: hdrhistogram.New(1000, longest.Nanoseconds(), 3)}
}

// take counts an answer with a Cause.
func (t *tally) take(cause uint8, sent, now time.Duration) {
	if cause != RequestAccepted {
		t.Refused++
		return
	}
	t.Accepted++
	_ = t.times.RecordValue(min(now-sent, longest).Nanoseconds()) // within its range
	t.quiet(now)
}

// quiet ends a time without an accepted request.
func (t *tally) quiet(now time.Duration) {
	if !t.stopped {
		t.LongestGap = max(t.LongestGap, now-t.last)
		t.last = now
	}
}

// stop is the end of sending.
func (t *tally) stop(now time.Duration) {
	t.quiet(now)
	t.Elapsed, t.inside, t.stopped = now, t.Accepted, true
}

// result is what was counted.
func (t *tally) result() Result {
	r := t.Result
	r.PerSecond = float64(t.inside) / cmp.Or(r.Elapsed.Seconds(), 1)
	r.AtLimit = r.CPU > r.Elapsed-r.Elapsed/16
	if r.Accepted > 0 {
		r.P50, r.P99 = time.Duration(t.times.ValueAtQuantile(50)), time.Duration(t.times.ValueAtQuantile(99))
		r.Max = time.Duration(t.times.Max())
	}
	return r
}
