package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// probing is the prober of segment lists, and what it has found. adjust and stop are called by
// one goroutine at a time.
type probing struct {
	log *slog.Logger
	// turn has packets leave the dead lists, and the slow ones. It is called by one goroutine
	// at a time.
	turn func(liveness.Found)

	of    plan.Liveness // what it was made of
	hole  func() error  // ends the blackhole at the SID
	end   context.CancelFunc
	ended sync.WaitGroup
	found chan liveness.Found // the latest

	mu     sync.Mutex
	prober *liveness.Prober // nil: nothing is probed
}

func newProbing(log *slog.Logger, turn func(liveness.Found)) *probing {
	return &probing{log: log, turn: turn, found: make(chan liveness.Found, 1)}
}

// adjust probes what a goal has, or nothing.
func (p *probing) adjust(g *plan.Goal) error {
	of, ok := g.Liveness()
	if p.prober != nil && (!ok || of != p.of) {
		p.stop()
		p.report(liveness.Found{}) // what is not probed is not dead
	}
	if !ok {
		return nil
	}
	if p.prober == nil {
		if err := p.start(of); err != nil {
			return fmt.Errorf("liveness: %w", err)
		}
	}
	var targets []liveness.Target
	for _, t := range g.Probes() {
		targets = append(targets, liveness.Target{Key: t.List.Key(), Path: t.Path})
	}
	var choices []liveness.Choice
	for _, c := range g.Choices() {
		choices = append(choices, liveness.Choice{Key: c.Key, Lists: c.Lists, Bound: time.Duration(c.DelayBound), Lowest: c.LowestDelay})
	}
	p.prober.Set(targets, choices)
	return nil
}

func (p *probing) start(of plan.Liveness) error {
	hole, err := netdev.Blackhole(of.SID)
	if err != nil {
		return err
	}
	prober, err := liveness.Open(liveness.Config{
		SID: of.SID, Source: of.Source, Interval: time.Duration(of.Interval) * time.Millisecond, Multiplier: int(of.Multiplier),
		Changed: p.report, Log: p.log,
	})
	if err != nil {
		return errors.Join(err, hole())
	}
	p.log.Info("probes segment lists", "event", logevent.LivenessStarted, "sid", of.SID, "interval_ms", of.Interval, "multiplier", of.Multiplier)
	ctx, end := context.WithCancel(context.Background())
	p.of, p.hole, p.end = of, hole, end
	p.mu.Lock()
	p.prober = prober
	p.mu.Unlock()
	p.ended.Go(func() { _ = prober.Run(ctx) })
	p.ended.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case found := <-p.found:
				p.turn(found)
			}
		}
	})
	return nil
}

// report hands over what was found last: what nobody has taken yet is old.
func (p *probing) report(found liveness.Found) {
	select {
	case <-p.found:
	default:
	}
	select {
	case p.found <- found:
	default:
	}
}

// stop ends the prober, if there is one. Lists stay as they are.
func (p *probing) stop() {
	if p.prober == nil {
		return
	}
	p.end()
	p.ended.Wait()
	if err := errors.Join(p.prober.Close(), p.hole()); err != nil {
		p.log.Error("cannot end the probes of segment lists", "event", logevent.LivenessFailed, "error", err)
	}
	p.mu.Lock()
	p.prober = nil
	p.mu.Unlock()
}

// delays are the round trips of lists that are probed, by SegmentList.Key.
func (p *probing) delays() map[string]liveness.Delay {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prober == nil {
		return nil
	}
	out := map[string]liveness.Delay{}
	for key, s := range p.prober.Status() {
		out[key] = s.Delay
	}
	return out
}

// turn has packets leave the lists that are dead, and take those again that are not: by one store
// for each policy, and then by a plan, which may choose another candidate path. It also leaves
// lists for their delay, and takes them again.
func (c *core) turn(found liveness.Found) {
	was, before := c.found()
	died, standings := !maps.Equal(was, found.Dead), standingsOf(found)
	if !died && maps.EqualFunc(before, standings, maps.Equal) {
		return
	}
	why := func(of map[string]string) func([]netip.Addr) string {
		return func(segments []netip.Addr) string { return of[srpolicy.SegmentList{Segments: segments}.Key()] }
	}
	if died {
		c.dp.TurnLists(why(was), why(found.Dead))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReady() != nil {
		return
	}
	next := *c.goal
	next.Dead, next.Standings = found.Dead, standings
	c.goal = &next
	scope := plan.Scope{}.WithKinds(nil) // no resource differs
	c.converge(plan.Compile(c.goal, c.goal.Config(scope), c.links, c.writer.Tables, scope), scope)
	c.sync()
}

func standingsOf(found liveness.Found) srpolicy.Standings {
	out := srpolicy.Standings{}
	for path, lists := range found.Standings {
		out[path] = map[string]srpolicy.Standing{}
		for list, s := range lists {
			out[path][list] = srpolicy.Standing(s)
		}
	}
	return out
}

// found is what the goal says of lists.
func (c *core) found() (dead map[string]string, standings srpolicy.Standings) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.goal.Dead, c.goal.Standings
}
