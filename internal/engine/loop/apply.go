package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/te/change"
)

// grace is how long the steps that have begun may take when the engine is told to end.
const grace = 10 * time.Second

// errLost says that another engine may take over.
var errLost = errors.New("the lease is lost")

// apply does the steps of the plan, one after the other. A step has ended when its headends say
// that packets take the new lists. It stops at once when the lease is lost: whoever has it then
// goes on from what is installed.
func (e *Engine) apply(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for i, step := range r.state.Plan.By {
		if err := e.underLease(ctx, func(ctx context.Context) error { return e.step(ctx, r, step) }); err != nil {
			return fmt.Errorf("step %d of %d: %w", i+1, len(r.state.Plan.By), err)
		}
	}
	for _, m := range r.state.Plan.Moves {
		e.log.Info("demand changed", "event", logevent.TEDemandChanged, "headend", m.Headend, "endpoint", m.Endpoint, "color", m.Color, "from", m.Now, "to", m.Then, "step", m.Step)
	}
	e.count.Changes += uint64(len(r.state.Plan.Moves))
	return nil
}

// step changes all headends of a step at the same time.
func (e *Engine) step(ctx context.Context, r *round, step change.Step) error {
	paths := map[string][]headend.Path{}
	for key, lists := range step.Lists {
		for _, p := range r.found.Policies[key] {
			c, err := p.Path(r.in.Network.Topology, r.path(key, p), lists)
			if err != nil {
				return fmt.Errorf("policy %s of %s: %w", p.Name, key.Headend, err)
			}
			paths[key.Headend] = append(paths[key.Headend], c)
		}
		e.changed[key] = r.now
	}
	return e.write(ctx, r, paths)
}

// write writes paths to headends, at the same time, and waits until packets take them.
func (e *Engine) write(ctx context.Context, r *round, paths map[string][]headend.Path) error {
	names := slices.Sorted(maps.Keys(paths))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = put(ctx, r.in.Headends[name], paths[name]) })
	}
	all.Wait()
	for i, name := range names {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", name, errs[i])
		}
		for _, c := range paths[name] {
			if e.wrote[written{name, c.Policy}] = c.CandidatePath; errs[i] != nil {
				delete(e.wrote, written{name, c.Policy}) // nobody knows what it has
			}
		}
	}
	return errors.Join(errs...)
}

// underLease does something until it has ended, or the lease is lost.
func (e *Engine) underLease(ctx context.Context, do func(context.Context) error) error {
	if e.lease == nil {
		return do(ctx)
	}
	held, has := e.lease.Held()
	if !has {
		return errLost
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(held, cancel)()
	err := do(ctx)
	if held.Err() != nil {
		return errors.Join(errLost, err)
	}
	return err
}

// How long a headend may take until packets take a path that was written, and the longest time
// between two looks.
const (
	settle = 4 * time.Second
	look   = 250 * time.Millisecond
)

// put writes paths to a headend, and waits until packets take them.
func put(ctx context.Context, h headend.Headend, paths []headend.Path) error {
	if err := h.Put(ctx, paths); err != nil {
		return err
	}
	end := time.Now().Add(settle)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, look) {
		policies, err := h.Policies(ctx)
		if err != nil {
			return err
		}
		late := missing(policies, paths)
		if late == "" {
			return nil
		}
		if time.Now().After(end) {
			return errors.New(late)
		}
		select {
		case <-ctx.Done():
			return errors.New(late)
		case <-time.After(wait):
		}
	}
}

// missing says which path packets do not take; empty: they take all.
func missing(policies []headend.Policy, paths []headend.Path) string {
	of := map[string]headend.Policy{}
	for _, p := range policies {
		of[p.Name] = p
	}
	for _, c := range paths {
		p := of[c.Policy]
		if p.Active().Path == c.Name && p.Equal(c.CandidatePath) {
			continue
		}
		for _, v := range p.Paths {
			if v.Path == c.Name {
				return fmt.Sprintf("packets do not take candidate path %s: %s", c.Name, v.Why)
			}
		}
		return fmt.Sprintf("candidate path %s is not there", c.Name)
	}
	return ""
}
