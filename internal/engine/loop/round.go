package loop

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/demand"
)

// round is what is known in a round.
type round struct {
	now     time.Time
	in      Input
	network te.Network // with the demands and lists of headends
	found   headend.Installed
	silent  map[string]bool // headends that do not answer
	settles bool            // a link has returned a short while ago
	young   bool            // there are demands whose rates have never been known
	applied bool            // the plan is installed
	state   State
}

// measure reads the headends. One that does not answer has the lists that it had last.
func (e *Engine) measure(ctx context.Context, r *round) {
	if o := r.in.Settings; e.matrix == nil || e.every != o.Every {
		e.every, e.matrix = o.Every, demand.New(demand.Options{Period: o.Every})
	}
	e.matrix.Look(r.in.Settings.Horizon)
	r.silent = map[string]bool{}
	readings := headend.Read(ctx, r.in.Headends)
	for i, reading := range readings {
		if reading.Err != nil {
			r.silent[reading.Headend] = true
			r.state.Failed = append(r.state.Failed, fmt.Sprintf("%s: %v", reading.Headend, reading.Err))
			readings[i].Policies = e.last[reading.Headend].Policies
			continue
		}
		e.last[reading.Headend] = reading
	}
	r.found = headend.Find(r.in.Network.Topology, readings)
	for key, octets := range r.found.Octets {
		if !r.silent[key.Headend] {
			e.matrix.Read(key, e.last[key.Headend].At, octets)
		}
	}
	r.network = r.in.Network
	r.network.Routing = r.found.Routing
	r.network.Demands = joined(r.in.Network.Demands, e.demands(r))
	r.state.Demands = r.network.Demands
	for _, l := range slices.Concat(r.in.LeftOut, r.found.LeftOut) {
		r.state.LeftOut = append(r.state.LeftOut, l.String())
	}
}

// demands are those that are measured. One that is unknown now has the rate that it had last.
func (e *Engine) demands(r *round) []te.Demand {
	known, unknown := e.matrix.At(r.now)
	rates := map[te.Key]float64{}
	for _, key := range unknown {
		if rate, had := e.rates[key]; had {
			rates[key] = rate
			known = append(known, te.Demand{Key: key, Rate: rate})
		} else {
			r.young = true
		}
	}
	for _, d := range known {
		rates[d.Key] = d.Rate
	}
	e.rates, r.state.Unknown = rates, unknown
	return known
}

// joined are demands that are said, and those that are measured in their place.
func joined(said, measured []te.Demand) []te.Demand {
	keys := map[te.Key]bool{}
	for _, d := range measured {
		keys[d.Key] = true
	}
	return slices.Concat(measured, slices.DeleteFunc(slices.Clone(said), func(d te.Demand) bool { return keys[d.Key] }))
}

// pathName is of the engine's candidate path of a policy.
func (r *round) pathName(at string, p headend.Policy) string {
	return r.in.Headends[at].PathName(r.in.Settings.Name, p)
}

// path is the engine's candidate path of a policy, without lists.
func (r *round) path(key te.Key, p headend.Policy) srpolicy.CandidatePath {
	return srpolicy.CandidatePath{Name: r.pathName(key.Headend, p), Policy: p.Name, Preference: r.in.Settings.Preference, DelayConstraint: r.in.Network.Delays(key.Color)}
}

// mayChange says whether this engine may change headends, as far as other engines go.
func (e *Engine) mayChange() bool {
	if e.lease == nil {
		return true
	}
	_, held := e.lease.Held()
	return held
}

// follow does what watch does for an engine without the lease: the one that has it changes lists.
// Their hold times are known when this engine takes over.
func (e *Engine) follow(r *round) {
	clear(e.wrote)
	for key, lists := range r.found.Routing {
		if before, had := e.routing[key]; had && !r.silent[key.Headend] && !reflect.DeepEqual(before, lists) {
			e.changed[key] = r.now
		}
	}
}

// watch finds lists under the engine's name that it has not written: another engine has. Then
// this one changes nothing for six rounds.
func (e *Engine) watch(r *round) {
	defer func() { e.routing = r.found.Routing }()
	if !e.mayChange() {
		e.follow(r)
		return
	}
	for key, policies := range r.found.Policies {
		for _, p := range policies {
			at := written{key.Headend, p.Name}
			c, has := e.wrote[at]
			if has && p.Active().Path == c.Name && !p.Equal(c) {
				e.standBy = r.now.Add(6 * r.in.Settings.Every)
				delete(e.wrote, at)
			}
		}
	}
}

// plan computes what should change.
func (e *Engine) plan(ctx context.Context, r *round) error {
	o := engine.Options{Target: r.in.Settings.Target, Most: r.in.Settings.Changes, Held: e.held(r)}
	why := e.links.see(r.in.Network.Topology, r.in.Settings.Hold, r.now)
	r.settles = why != ""
	if r.young && why == "" {
		why = fmt.Sprintf("the rates of %s are not known yet", plural.Of(len(r.state.Unknown), "demand"))
	}
	o.OnlyBroken = why != ""
	p, err := engine.Compute(ctx, r.network, o)
	if err != nil {
		return err
	}
	r.state.Plan, r.state.Word = p, p.Why
	if why != "" && len(p.Moves) == 0 {
		r.state.Word = "only broken lists change, because " + why
	}
	for _, key := range slices.SortedFunc(maps.Keys(o.Held), func(a, b te.Key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		r.state.Held = append(r.state.Held, Held{key, o.Held[key]})
	}
	return nil
}

// held are the demands that keep their lists, and why.
func (e *Engine) held(r *round) map[te.Key]string {
	hold := r.in.Settings.Hold
	maps.DeleteFunc(e.changed, func(_ te.Key, at time.Time) bool { return r.now.Sub(at) >= hold })
	held := map[te.Key]string{}
	for _, d := range r.network.Demands {
		policies := r.found.Policies[d.Key]
		_, changed := e.changed[d.Key]
		switch {
		case r.silent[d.Headend]:
			held[d.Key] = "its headend does not answer"
		case r.found.Odd[d.Key] != "":
			held[d.Key] = r.found.Odd[d.Key]
		case len(policies) == 0:
			held[d.Key] = "its headend has no policy for it"
		case changed:
			held[d.Key] = fmt.Sprintf("it has changed less than %s ago", hold)
		default:
			if why := cmp.Or(r.others(d.Headend, policies), r.late(d.Key, policies)); why != "" {
				held[d.Key] = why
			}
		}
	}
	return held
}

// others says which candidate path of somebody else is preferred.
func (r *round) others(at string, policies []headend.Policy) string {
	o := r.in.Settings
	for _, p := range policies {
		v := p.Active()
		if v.Path == r.pathName(at, p) || v.Preference < o.Preference {
			continue
		}
		what := "candidate path " + v.Path
		if v.Path == "" {
			what = "the own path"
		}
		return fmt.Sprintf("%s of policy %s has preference %d, and the engine's %d", what, p.Name, v.Preference, o.Preference)
	}
	return ""
}

// late says which of the engine's paths packets do not take for its delay alone: other lists would
// have to be measured first, and packets would go to and fro.
func (r *round) late(key te.Key, policies []headend.Policy) string {
	for _, p := range policies {
		c := r.path(key, p)
		if v := p.Named(c.Name); v.Late && !v.Active && v.DelayConstraint == c.DelayConstraint.Or(p.Delays) {
			return fmt.Sprintf("candidate path %s is not in use: %s", v.Path, v.Why)
		}
	}
	return ""
}

// changes says whether headends change now, and in the state why not.
func (e *Engine) changes(r *round) bool {
	n := len(r.state.Plan.Moves)
	switch {
	case n == 0:
		return false
	case !r.in.Settings.Apply:
		r.state.Word = fmt.Sprintf("%s, by other lists for %s; nothing is changed: engine.apply is false", r.state.Word, plural.Of(n, "demand"))
		return false
	case !e.mayChange():
		r.state.Word = fmt.Sprintf("%s, by other lists for %s; nothing is changed: %s", r.state.Word, plural.Of(n, "demand"), e.lease.State().Whose())
		return false
	case r.now.Before(e.standBy):
		r.state.Word = "nothing changes, because this engine stands by"
		r.state.Problem = fmt.Sprintf("another engine writes candidate paths whose names begin with %s: run one only, or give this one another engine.name; it stands by until %s",
			r.in.Settings.Name, e.standBy.Format(time.TimeOnly))
		return false
	}
	r.state.Word = fmt.Sprintf("%s, by other lists for %s in %s", r.state.Word, plural.Of(n, "demand"), plural.Of(r.state.Plan.Steps, "step"))
	return true
}
