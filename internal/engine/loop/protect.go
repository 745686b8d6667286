package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/repair"
)

// repairs are what a headend is to hold ready.
type repairs struct {
	put, remove []headend.Path
}

// protect has headends hold repair lists ready, each behind the path that packets take. Demands that
// have changed in this round get theirs in the next one.
func (e *Engine) protect(ctx context.Context, r *round) {
	if !r.in.Settings.Apply || !e.mayChange() || r.now.Before(e.standBy) {
		return
	}
	var g *graph.Graph // nil: repair lists that are there go
	if r.in.Settings.Repair {
		g = graph.New(r.in.Network.Topology, graph.Without{})
	}
	moved := map[te.Key]bool{}
	for _, m := range r.state.Plan.Moves {
		moved[m.Key] = r.applied
	}
	all := map[string]repairs{}
	for key, policies := range r.found.Policies {
		if moved[key] || r.silent[key.Headend] {
			continue
		}
		list, why := r.repair(g, key)
		if why != "" {
			r.state.Unprotected = append(r.state.Unprotected, Held{key, why})
		}
		for _, p := range policies {
			all[key.Headend] = e.ready(r, key, p, list, all[key.Headend])
		}
	}
	slices.SortFunc(r.state.Unprotected, func(a, b Held) int { return strings.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)) })
	for name, want := range all {
		if len(want.put)+len(want.remove) == 0 {
			continue
		}
		h := r.in.Headends[name]
		err := e.underLease(ctx, func(ctx context.Context) error {
			return errors.Join(h.Put(ctx, want.put), h.Remove(ctx, want.remove))
		})
		if err != nil {
			e.count.Failed++
			r.state.Problem = fmt.Sprintf("repair lists of %s: %v", name, err)
			continue
		}
		for _, c := range want.put {
			e.repairs[written{name, c.Policy}] = c.CandidatePath
		}
		e.log.Info("repair lists changed", "event", logevent.TERepairs, "headend", name, "written", len(want.put), "removed", len(want.remove))
	}
}

// repair is the repair list of a demand; nil: it needs none, or has none, and why says so.
func (r *round) repair(g *graph.Graph, key te.Key) (list []te.List, why string) {
	if g == nil {
		return nil, ""
	}
	found, needed := repair.Of(g, key, r.found.Routing[key])
	switch {
	case !needed:
		return nil, ""
	case found.Why != "":
		return nil, fmt.Sprintf("without %s: %s", r.in.Network.Topology.Links[found.Link].Direction(), found.Why)
	}
	return []te.List{found.List}, ""
}

// same says whether two paths have the same lists, at the same preference.
func same(a, b srpolicy.CandidatePath) bool {
	return a.Preference == b.Preference && slices.EqualFunc(a.SegmentLists, b.SegmentLists, func(a, b srpolicy.SegmentList) bool { return a.Key() == b.Key() })
}

// ready adds what a policy needs to what its headend is to hold ready. While packets take the repair
// list, and behind paths of others, the engine leaves it.
func (e *Engine) ready(r *round, key te.Key, p headend.Policy, list []te.List, want repairs) repairs {
	name, now := r.in.Headends[key.Headend].RepairName(r.in.Settings.Name, p), p.Active()
	had := p.Named(name)
	if now.Path == name {
		return want
	}
	ours := now.Path == r.pathName(key.Headend, p) || now.Preference < r.in.Settings.Preference
	if c, err := p.Path(r.in.Network.Topology, srpolicy.CandidatePath{Name: name, Preference: now.Preference - 1}, list); err == nil && len(list) > 0 && ours && now.Preference > 1 {
		if had.Path == "" || had.Preference != c.Preference || !same(e.repairs[written{key.Headend, p.Name}], c.CandidatePath) {
			c.Repair = true
			want.put = append(want.put, c)
		}
		return want
	}
	if had.Path != "" {
		want.remove = append(want.remove, headend.Path{CandidatePath: srpolicy.CandidatePath{Name: name, Policy: p.Name}, Of: p, Repair: true})
	}
	return want
}
