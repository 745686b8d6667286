package agent

import (
	"context"
	"errors"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
)

// listen applies what others say until ctx ends.
func (c *core) listen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.queue.Ready():
			c.observe(c.queue.Take())
		}
	}
}

// observe applies updates: all at once if that holds together. If not, the error
// says which resources are at fault, and the updates that these follow from are
// applied one by one. An update that cannot be used is treated as withdrawn.
func (c *core) observe(updates []observed.Update) {
	for batches := [][]observed.Update{updates}; len(batches) > 0; {
		batch := batches[0]
		batches = batches[1:]
		next, err := c.observeAll(batch)
		switch {
		case err == nil:
		case len(batch) > 1:
			batches = append(plan.Split(batch, next, err), batches...)
		default:
			c.refuse(batch[0], err)
		}
	}
}

// refuse withdraws an update that cannot be used, and says why.
func (c *core) refuse(u observed.Update, why error) {
	c.log.Warn("update rejected; treating it as withdrawn", "update", u.Entry.String(), "error", why)
	if u.Refused != nil {
		u.Refused(why)
	}
	if u.Withdraw == nil {
		return
	}
	if _, err := c.observeAll([]observed.Update{{Entry: u.Entry, Apply: u.Withdraw}}); err != nil {
		c.log.Error("cannot withdraw", "update", u.Entry.String(), "error", err)
	}
}

// observeAll applies updates, or leaves everything as it is. next is the goal that
// it tried then.
func (c *core) observeAll(updates []observed.Update) (next *plan.Goal, err error) {
	_, err = c.change(context.Background(), false, func(now *plan.Goal) (proposal, error) {
		g := *now
		g.Observed = now.Observed.Edit()
		for _, u := range updates {
			u.Apply(&g.Observed)
		}
		next = &g
		return proposal{goal: next, replaced: c.replaced, touched: plan.TouchedPaths(now, next)}, nil
	})
	if errors.Is(err, ErrNotReady) { // the daemon is ending
		return next, nil
	}
	return next, err
}

// adjustSources has the control planes be those of the goal, and publish this node
// and what became of the paths. It is called by one goroutine at a time.
func (a *Agent) adjustSources(ctx context.Context) error {
	c := a.core
	c.mu.RLock()
	g := c.goal
	c.mu.RUnlock()
	p := &g.Desired.Process
	config := observed.Config{BGP: observed.BGPConfig(p.BGP, p.Overlay.Mode, g.Self), Overlay: p.Overlay}
	err := a.sources.Adjust(ctx, config, g.Self, &g.Observed)
	if k := a.sources.Kubernetes(); k != nil {
		c.mu.RLock()
		verdicts := k.Verdicts(&c.goal.Observed, c.writer.Tables.Verdicts)
		c.mu.RUnlock()
		k.SetVerdicts(verdicts)
	}
	return err
}

// adjustPause is how long changes are gathered before control planes hear of them.
const adjustPause = 100 * time.Millisecond

// runSources adjusts the control planes until ctx ends.
func (a *Agent) runSources(ctx context.Context) error {
	defer a.sources.Stop()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.core.adjust:
		case <-retry.C:
		}
		if err := a.adjustSources(ctx); err != nil {
			a.log.Error("a control plane differs from its configuration; will try again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(adjustPause):
		}
	}
}
