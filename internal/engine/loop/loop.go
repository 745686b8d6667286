// Package loop keeps the segment lists of headends as a network needs them: again and again it
// reads the network and the counters of policies, plans, and changes lists step by step.
//
// The engine remembers nothing that a headend knows. What is installed is read from the
// headends in each round, so that an engine which starts again goes on where the last one
// ended. It writes candidate paths of its own, and never those of others; where somebody else's
// path is preferred, it plans around that. Lists that it has written stay when it ends.
package loop

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/picture"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/demand"
)

// Settings say what an engine may do.
type Settings struct {
	// Apply has it change headends; else it says what it would change.
	Apply bool
	// Every is the time from one round to the next.
	Every time.Duration
	// Hold is how long a demand that has changed keeps its lists, and for how long after the
	// return of a link only broken lists change; then twice as long each time, up to 16 times.
	Hold time.Duration
	// Horizon is how far ahead rising demands are forecast; 0: they are not.
	Horizon time.Duration
	// Target is the utilisation up to which nothing has to change: 0.8 is 80 %.
	Target float64
	// Changes is how many demands change in a round at most.
	Changes int
	// Preference is of the engine's candidate paths.
	Preference uint32
	// Name is in the names of its candidate paths.
	Name string
	// Repair has headends hold repair lists ready.
	Repair bool
}

// Input is what a round begins with.
type Input struct {
	// Network has the topology, the classes, and demands that no headend measures.
	Network te.Network
	LeftOut []te.LeftOut
	// Headends are measured, and changed.
	Headends map[string]headend.Headend
	Settings Settings
}

// Source reads the network anew.
type Source func(context.Context) (Input, error)

// Lease has one of several engines change headends. Its methods may be called at any time.
type Lease interface {
	// Held returns a context that ends when the lease is lost, and whether this engine has it.
	Held() (context.Context, bool)
	State() LeaseState
}

// Engine is a loop. Run it once; State may be called at any time.
type Engine struct {
	source Source
	log    *slog.Logger
	lease  Lease // nil: this engine needs none to change headends
	state  atomic.Pointer[State]
	// History is what the last rounds found and did, for a picture.
	History picture.History

	matrix  *demand.Matrix
	every   time.Duration              // of the matrix
	last    map[string]headend.Reading // the latest that succeeded, by headend
	rates   map[te.Key]float64         // that were known last
	wrote   map[written]srpolicy.CandidatePath
	repairs map[written]srpolicy.CandidatePath // that it has written
	changed map[te.Key]time.Time
	routing te.Routing // of the last round
	links   returns
	standBy time.Time
	count   Counts
	problem string // of the last round
}

// written names a policy at its headend.
type written struct{ headend, policy string }

// New makes an engine.
func New(source Source, log *slog.Logger) *Engine {
	e := &Engine{source: source, log: log, last: map[string]headend.Reading{}, rates: map[te.Key]float64{}, wrote: map[written]srpolicy.CandidatePath{}, repairs: map[written]srpolicy.CandidatePath{}, changed: map[te.Key]time.Time{}}
	e.state.Store(&State{Word: "the first round has not ended"})
	return e
}

// Under has it change headends only while it has a lease. Without it the engine measures and
// plans, so that it can take over at once. Call it before Run.
func (e *Engine) Under(l Lease) { e.lease = l }

// State is what the last round found and did, and who has the lease now.
func (e *Engine) State() State {
	s := *e.state.Load()
	if e.lease != nil {
		lease := e.lease.State()
		s.Lease = &lease
	}
	return s
}

// Run does rounds until ctx ends, which is no error. A round that changes headends ends first.
func (e *Engine) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		before := e.state.Load()
		s := e.Round(ctx, time.Now())
		if ctx.Err() != nil {
			break
		}
		e.state.Store(&s)
		if s.Word != before.Word || s.Problem != before.Problem {
			e.say(s)
		}
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(s.every, time.Second*10)):
		}
	}
	return nil
}

func (e *Engine) say(s State) {
	if s.Problem != "" {
		e.log.Warn(s.Word, "event", logevent.TEProblem, "problem", s.Problem)
		return
	}
	e.log.Info(s.Word, "event", logevent.TERound)
}

// Round does one round.
func (e *Engine) Round(ctx context.Context, now time.Time) State {
	e.count.Rounds++
	r := &round{now: now, state: State{At: now}}
	e.do(ctx, r)
	r.state.Took, r.state.Counts = time.Since(now), e.count
	e.History.Add(e.seen(r))
	return r.state
}

// do does a round, and says in its state what became of it.
func (e *Engine) do(ctx context.Context, r *round) {
	failed := func(word string, err error) {
		e.count.Failed++
		r.state.Word, r.state.Problem = word, err.Error()
	}
	var err error
	if r.in, err = e.source(ctx); err != nil {
		failed("nothing changes, because the network is unknown", err)
		return
	}
	r.state.every, r.state.Apply = r.in.Settings.Every, r.in.Settings.Apply
	e.measure(ctx, r)
	e.watch(r)
	if err := e.renew(ctx, r); err != nil {
		e.count.Failed++
		r.state.Problem = fmt.Sprintf("candidate paths did not get the delays of their classes: %v", err)
	}
	if err := e.plan(ctx, r); err != nil {
		failed("nothing changes, because there is no plan", err)
		return
	}
	if e.changes(r) {
		if err := e.apply(ctx, r); err != nil {
			failed("a change has stopped; the next round goes on from what is installed", err)
			return
		}
		r.applied = true
	}
	e.protect(ctx, r)
}
