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
	// turn has packets leave the dead lists. It is called by one goroutine at a time.
	turn func(dead map[string]string)

	of    plan.Liveness // what it was made of
	hole  func() error  // ends the blackhole at the SID
	end   context.CancelFunc
	ended sync.WaitGroup
	found chan map[string]string // the latest

	mu     sync.Mutex
	prober *liveness.Prober // nil: nothing is probed
}

func newProbing(log *slog.Logger, turn func(map[string]string)) *probing {
	return &probing{log: log, turn: turn, found: make(chan map[string]string, 1)}
}

// adjust probes what a goal has, or nothing.
func (p *probing) adjust(g *plan.Goal) error {
	of, ok := g.Liveness()
	if p.prober != nil && (!ok || of != p.of) {
		p.stop()
		p.report(nil) // what is not probed is not dead
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
	p.prober.Set(targets, nil)
	return nil
}

func (p *probing) start(of plan.Liveness) error {
	hole, err := netdev.Blackhole(of.SID)
	if err != nil {
		return err
	}
	prober, err := liveness.Open(liveness.Config{
		SID: of.SID, Source: of.Source, Interval: time.Duration(of.Interval) * time.Millisecond, Multiplier: int(of.Multiplier),
		Changed: func(found liveness.Found) { p.report(found.Dead) }, Log: p.log,
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
			case dead := <-p.found:
				p.turn(dead)
			}
		}
	})
	return nil
}

// report hands over what was found last: what nobody has taken yet is old.
func (p *probing) report(dead map[string]string) {
	select {
	case <-p.found:
	default:
	}
	select {
	case p.found <- dead:
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
// for each policy, and then by a plan, which may choose another candidate path.
func (c *core) turn(dead map[string]string) {
	was := c.deadLists()
	if maps.Equal(was, dead) {
		return
	}
	why := func(of map[string]string) func([]netip.Addr) string {
		return func(segments []netip.Addr) string { return of[srpolicy.SegmentList{Segments: segments}.Key()] }
	}
	c.dp.TurnLists(why(was), why(dead))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReady() != nil {
		return
	}
	next := *c.goal
	next.Dead = dead
	c.goal = &next
	scope := plan.Scope{}.WithKinds(nil) // no resource differs
	c.converge(plan.Compile(c.goal, c.goal.Config(scope), c.links, c.writer.Tables, scope), scope)
	c.sync()
}

func (c *core) deadLists() map[string]string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.goal.Dead
}
