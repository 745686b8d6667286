package loop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
)

// lease is one that a test gives and takes.
type lease struct {
	held context.Context
	lose context.CancelFunc
	of   string // who has it, where this one has not
}

func (l *lease) take()  { l.held, l.lose = context.WithCancel(context.Background()) }
func (l *lease) leave() { l.lose() }

func (l *lease) Held() (context.Context, bool) { return l.held, l.held != nil && l.held.Err() == nil }

func (l *lease) State() LeaseState {
	_, held := l.Held()
	return LeaseState{Lease: "kube-system/te", Holder: l.of, Held: held}
}

// Of two engines the one with the lease changes lists. The other one measures, and takes over at
// once, without another change.
func TestLease(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first, second := &lease{of: "second"}, &lease{of: "first"}
		a, b := w.engine(), w.engine()
		a.Under(first)
		b.Under(second)
		first.take()
		w.round(6e8, 6e8, a, b)
		if s := w.round(6e8, 6e8, b, a); w.a.puts != 1 || s.Counts.Changes != 1 {
			t.Fatalf("the holder: %d changes, %+v", w.a.puts, s)
		}
		first.leave() // it is killed
		s := w.round(6e8, 6e8, b)
		if w.a.puts != 1 || !strings.Contains(s.Held[0].Why, "less than 1m0s ago") || s.Problem != "" {
			t.Errorf("the other one knows what has just changed: %+v", s)
		}
		for range 7 {
			s = w.round(3e8, 6e8, b)
		}
		if w.a.puts != 1 || s.Problem != "" {
			t.Errorf("nobody has the lease: %d changes, %+v", w.a.puts, s)
		}
		second.take()
		if s = w.round(3e8, 3e8, b); w.a.puts != 1 || s.Problem != "" || len(s.Unknown) > 0 {
			t.Errorf("it takes over what is good: %d changes, %+v", w.a.puts, s)
		}
		if s = b.State(); s.Lease == nil || !s.Lease.Held {
			t.Errorf("it says who has the lease: %+v", s.Lease)
		}
	})
}

// Without the lease nothing changes, and the state says who changes lists.
func TestWithoutLease(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		l := &lease{of: "another"}
		e := w.engine()
		e.Under(l)
		w.round(6e8, 6e8, e)
		if s := w.round(6e8, 6e8, e); w.a.puts != 0 || !strings.Contains(s.Word, "another holds lease kube-system/te") || len(s.Plan.Moves) != 1 {
			t.Errorf("%d changes, %+v", w.a.puts, s)
		}
		l.take() // its matrix is warm: it changes lists in the first round that it may
		if s := w.round(6e8, 6e8, e); w.a.puts != 1 || s.Counts.Changes != 1 {
			t.Errorf("%d changes, %+v", w.a.puts, s)
		}
	})
}

// slow is a headend that takes a path, and says so when it is asked after that.
type slow struct {
	*node
	after func()
}

func (s slow) Put(ctx context.Context, paths []headend.Path) error {
	err := s.node.Put(ctx, paths)
	s.after()
	return errors.Join(err, ctx.Err())
}

// An engine that loses the lease in a step does no other one, and does not take what the next one
// has changed for somebody else's when it has the lease again.
func TestLeaseIsLostInAStep(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first, second := &lease{of: "second"}, &lease{of: "first"}
		first.take()
		w.in.Headends["a"] = slow{w.a, func() { first.leave(); time.Sleep(time.Millisecond) }}
		a := w.engine()
		a.Under(first)
		w.round(6e8, 6e8, a)
		if s := w.round(6e8, 6e8, a); !strings.Contains(s.Problem, "step 1 of 1: the lease is lost") || s.Counts.Changes != 0 {
			t.Fatalf("%+v", s)
		}
		w.in.Headends["a"] = w.a
		b := w.engine()
		b.Under(second)
		second.take()
		for range 8 {
			w.round(6e8, 6e8, a, b)
		}
		if s := b.State(); w.a.puts != 1 || s.Problem != "" {
			t.Errorf("the next one adopts what is there: %d changes, %+v", w.a.puts, s)
		}
		for name, c := range w.a.paths {
			c.SegmentLists = c.SegmentLists[:1]
			c.SegmentLists[0].Segments = c.SegmentLists[0].Segments[1:] // the next one takes the path back
			w.a.paths[name] = c
		}
		w.round(3e8, 3e8, a, b)
		second.leave()
		first.take()
		if s := w.round(3e8, 3e8, a); s.Problem != "" {
			t.Errorf("the first one again: %+v", s)
		}
	})
}
