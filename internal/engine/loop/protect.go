package loop

import (
	"cmp"
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
	"github.com/culvert-net/culvert/internal/te/optimize"
	"github.com/culvert-net/culvert/internal/te/repair"
)

// repairs are what a headend is to hold ready.
type repairs struct {
	put, remove []headend.Path
}

// protect has headends hold lists ready, each behind the path that packets take: a standby where the
// class asks for it, and else a repair list. Demands that have changed in this round get theirs in the
// next one.
func (e *Engine) protect(ctx context.Context, r *round) {
	if !r.in.Settings.Apply || !e.mayChange() || r.now.Before(e.standBy) {
		return
	}
	var g *graph.Graph // nil: what is held ready goes
	if r.in.Settings.Repair || slices.ContainsFunc(r.in.Network.Classes, func(c te.Class) bool { return c.Standby != "" }) {
		g = graph.New(r.in.Network.Topology, graph.Without{})
	}
	standbys := optimize.NewStandbys(g, r.in.Network.Classes)
	moved := map[te.Key]bool{}
	for _, m := range r.state.Plan.Moves {
		moved[m.Key] = r.applied
	}
	all := map[string]repairs{}
	for key, policies := range r.found.Policies {
		if moved[key] || r.silent[key.Headend] {
			continue
		}
		list, why := r.spare(g, standbys, key)
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

// spare is the list that a headend holds ready for a demand; nil: none. why says what it lacks.
func (r *round) spare(g *graph.Graph, standbys *optimize.Standbys, key te.Key) (list []te.List, why string) {
	s, asked := standbys.Of(key, r.found.Routing[key])
	if asked && len(s.Common) > 0 {
		whose := "its standby shares"
		if s.None {
			whose = "it has no standby: all lists share"
		}
		why = fmt.Sprintf("%s %s", whose, strings.Join(s.Common, ", "))
	}
	switch {
	case asked && !s.None:
		return []te.List{s.List}, why
	case !r.in.Settings.Repair:
		return nil, why
	}
	list, lacks := r.repair(g, key)
	return list, cmp.Or(why, lacks)
}

// repair is the repair list of a demand; nil: it needs none, or has none, and why says so.
func (r *round) repair(g *graph.Graph, key te.Key) (list []te.List, why string) {
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
// list, and behind paths of others, the engine leaves it. While the network settles what can be used
// stays, and nothing comes: a link that comes and goes would be in it and out of it each time.
func (e *Engine) ready(r *round, key te.Key, p headend.Policy, list []te.List, want repairs) repairs {
	name, now := r.in.Headends[key.Headend].RepairName(r.in.Settings.Name, p), p.Active()
	had := p.Named(name)
	if now.Path == name {
		return want
	}
	ours := now.Path == r.pathName(key.Headend, p) || now.Preference < r.in.Settings.Preference
	if c, err := p.Path(r.in.Network.Topology, srpolicy.CandidatePath{Name: name, Preference: now.Preference - 1}, list); err == nil && len(list) > 0 && ours && now.Preference > 1 {
		if r.settles && (had.Path == "" || had.Valid) {
			return want
		}
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
