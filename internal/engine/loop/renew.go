package loop

import (
	"context"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/logevent"
)

// renew writes the engine's paths again whose class has another constraint of delays than
// headends have of them: the file of the network has changed. Lists stay.
func (e *Engine) renew(ctx context.Context, r *round) error {
	if !r.in.Settings.Apply || !e.mayChange() || r.now.Before(e.standBy) {
		return nil
	}
	paths := map[string][]headend.Path{}
	for key, policies := range r.found.Policies {
		if r.silent[key.Headend] {
			continue
		}
		for _, p := range policies {
			c, v := r.path(key, p), p.Active()
			if v.Path != c.Name || v.DelayConstraint == c.DelayConstraint.Or(p.Delays) {
				continue
			}
			c.SegmentLists = p.Lists
			paths[key.Headend] = append(paths[key.Headend], headend.Path{CandidatePath: c, Of: p})
			e.log.Info("candidate path gets the delays of its class", "event", logevent.TEDelaysChanged, "headend", key.Headend, "path", c.Name,
				"delay_bound", c.DelayBound, "lowest_delay", c.LowestDelay)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return e.underLease(ctx, func(ctx context.Context) error { return e.write(ctx, r, paths) })
}
