package agent

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// A change is narrow if all that differs are candidate paths, and segment lists of
// policies: nothing follows from it but the ways of these policies' packets. In a
// large cluster there are thousands of others, which are not to be looked at each
// time that one takes another way. What a narrow change comes to is what the whole
// way round would (TestNarrowIsWhole); what is not certainly one, or cannot be, takes
// that.

// mostTouched is how much a narrow change is about: more is quicker done the whole
// way round.
const mostTouched = 50

// proposal is a desired state that somebody asks for.
type proposal struct {
	to       *desired
	replaced *applied // as Agent.replaced
	// touched is all that may differ from the state before; nil: anything may.
	touched []Ref
	deleted []Ref // on purpose: nothing may refer to them
}

// narrowChange is what there is to do.
type narrowChange struct {
	to      *desired
	changes []Change
	// affected are the policies whose packets may take another way, as they are
	// asked for, with all of their candidate paths.
	affected config.Config
	names    map[string]bool // of the policies
	lists    int             // segment lists that there may be at most, of all policies
}

// narrow says whether a proposal is a narrow change, and which.
func (a *Agent) narrow(p proposal) (narrowChange, bool) {
	if len(p.touched) == 0 || len(p.touched) > mostTouched {
		return narrowChange{}, false
	}
	to := *p.to
	to.self, to.learned, to.wanted, to.named, to.problems = a.desired.self, a.desired.learned, a.desired.wanted, a.desired.named, a.desired.problems
	n := narrowChange{to: &to}
	if !to.relearn(a.desired, p.touched) {
		return n, false
	}
	var before config.Config
	if !n.compare(a.desired, p.touched) || a.desired.gather(n.names, &before, nil) != nil || to.gather(n.names, &n.affected, nil) != nil {
		return n, false
	}
	n.lists = a.tables.lists - before.MostLists() + n.affected.MostLists()
	return n, n.valid() == nil
}

// relearn is learn where the candidate paths named are all that others told
// otherwise. It says whether that is all that comes of it.
func (d *desired) relearn(from *desired, touched []Ref) bool {
	next := make(map[string]*resource, len(touched))
	for _, ref := range touched {
		old, had := from.told.paths[ref.Key]
		now, has := d.told.paths[ref.Key]
		for _, h := range []struct {
			heard
			there bool
		}{{old, had}, {now, has}} {
			if h.there && !d.onlyItsWay(from, h.color()) {
				return false
			}
		}
		if had || has {
			next[ref.Key] = nil
		}
		if has {
			r := now.resource(ref.Key, d.named[now.color()])
			next[ref.Key] = &r
		}
	}
	if len(next) == 0 {
		return true
	}
	d.learned = withPaths(from.learned, next)
	return true
}

// withPaths replaces candidate paths by their names; nil: it goes.
func withPaths(list []resource, next map[string]*resource) []resource {
	out := make([]resource, 0, len(list)+len(next))
	for _, r := range list {
		replacement, touched := (*resource)(nil), false
		if r.Kind == KindCandidatePath {
			replacement, touched = next[r.Key]
		}
		switch {
		case !touched:
			out = append(out, r)
		case replacement != nil:
			out = append(out, *replacement)
			delete(next, r.Key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if next[name] != nil {
			out = append(out, *next[name])
		}
	}
	return out
}

// onlyItsWay says that of what was told of a policy before and is now nothing
// follows for others: not that there is one, nor its name and binding SID, nor
// which SIDs lead to its endpoint.
func (d *desired) onlyItsWay(from *desired, color overlay.Color) bool {
	if d.named[color] == "" || len(d.told.former) > 0 {
		return false
	}
	was, is := from.told.of(color), d.told.of(color)
	before, now := was.known(), is.known()
	if before.BindingSID != now.BindingSID || len(d.told.reaches) > 0 && !before.Same(now) {
		return false
	}
	if !d.madeByPaths(color) {
		return true
	}
	return len(was) > 0 && len(is) > 0 && was[0].name == is[0].name && was[0].EffectivePreference() == is[0].EffectivePreference() &&
		was[0].PolicyName == is[0].PolicyName && was[0].BindingSID == is[0].BindingSID
}

// madeByPaths says that a policy is there because of what was told of it.
func (d *desired) madeByPaths(color overlay.Color) bool {
	return slices.ContainsFunc(d.learned, func(r resource) bool {
		return r.Kind == KindPolicy && r.Key == d.named[color] && r.origin != OriginOverlay
	})
}

// compare finds what changes, and the policies that it is about. It says whether
// these stay what others know of them.
func (n *narrowChange) compare(from *desired, touched []Ref) bool {
	was, once := from.find(touched)
	is, onceNow := n.to.find(touched)
	if !once || !onceNow {
		return false
	}
	n.names = map[string]bool{}
	for _, ref := range touched {
		old, had := was[ref]
		now, has := is[ref]
		for _, r := range []resource{old, now} {
			switch v := r.value.(type) {
			case srpolicy.CandidatePath:
				n.names[v.Policy] = true
			case srpolicy.Policy:
				n.names[v.Name] = true
			}
		}
		if ref.Kind == KindPolicy && !(had && has && old.origin == now.origin && sameFace(old.value, now.value)) {
			return false
		}
		if c := changeOf(ref, old, had, now, has); c.Op != "" {
			n.changes = append(n.changes, c)
		}
	}
	return true
}

// changeOf is how one resource differs; without Op: it does not.
func changeOf(ref Ref, old resource, had bool, now resource, has bool) Change {
	switch {
	case !has && !had:
		return Change{}
	case !had:
		return Change{OpAdd, ref.Kind, ref.Key, summary(now.value)}
	case !has:
		return Change{OpDelete, ref.Kind, ref.Key, ""}
	case !same(old.value, now.value):
		return Change{OpUpdate, ref.Kind, ref.Key, difference(old.value, now.value)}
	}
	return Change{}
}

// find are the resources with these names. once is false where one is there twice.
func (d *desired) find(refs []Ref) (found map[Ref]resource, once bool) {
	wanted := make(map[Ref]bool, len(refs))
	for _, ref := range refs {
		if ref.Kind != KindPolicy && ref.Kind != KindCandidatePath {
			return nil, false
		}
		wanted[ref] = true
	}
	found = make(map[Ref]resource, len(refs))
	for r := range d.all() {
		if r.Kind != KindPolicy && r.Kind != KindCandidatePath || !wanted[r.Ref] {
			continue
		}
		if _, twice := found[r.Ref]; twice {
			return nil, false
		}
		found[r.Ref] = r
	}
	return found, true
}

// sameFace says that of two policies only the ways differ.
func sameFace(a, b any) bool {
	p, isPolicy := a.(srpolicy.Policy)
	q, _ := b.(srpolicy.Policy)
	p.SegmentLists, q.SegmentLists, p.Preference, q.Preference = nil, nil, 0, 0
	return isPolicy && same(p, q)
}

var errNotThere = errors.New("a policy is not there")

// gather puts policies and all their candidate paths into c, of the origins that
// from holds for; nil: of all.
func (d *desired) gather(names map[string]bool, c *config.Config, from func(Origin) bool) error {
	c.BGP, c.Limits = d.process.BGP, d.process.Limits
	for r := range d.all() {
		if from != nil && !from(r.origin) {
			continue
		}
		switch v := r.value.(type) {
		case config.Encapsulation:
			c.Encapsulation = v
		case srpolicy.Policy:
			if names[v.Name] {
				c.Policies = append(c.Policies, v)
			}
		case srpolicy.CandidatePath:
			if names[v.Policy] {
				c.CandidatePaths = append(c.CandidatePaths, v)
			}
		}
	}
	c.SetDefaults()
	if from == nil && len(c.Policies) != len(names) {
		return errNotThere
	}
	return nil
}

// valid does what changeTo does to a whole state.
func (n *narrowChange) valid() error {
	if n.lists >= int(n.affected.Limits.SegmentLists) {
		return ErrInvalid
	}
	var asked config.Config
	errs := n.to.gather(n.names, &asked, func(o Origin) bool { return o == OriginFile || o == OriginAPI })
	return errors.Join(errs, n.affected.ValidatePolicies(), asked.ValidatePolicies())
}

// recompiled are the tables with the ways of the affected policies chosen again.
func (n *narrowChange) recompiled(former *tables, links *netdev.Snapshot) *tables {
	next := *former
	next.only = n.names
	next.policies, next.verdicts = maps.Clone(former.policies), maps.Clone(former.verdicts)
	next.lists = n.lists
	others := n.to.candidates(n.affected.CandidatePaths)
	for _, p := range n.affected.Policies {
		next.choose(p, &n.affected, others[p.Name], links, former)
	}
	return &next
}

// toldPath is a candidate path with its name here.
type toldPath struct {
	name string
	heard
}

// toldPaths are those of one policy, the preferred one first.
type toldPaths []toldPath

// of are the paths of a policy.
func (t told) of(color overlay.Color) toldPaths {
	var out toldPaths
	for name, h := range t.paths {
		if h.Color == color.Color && h.Endpoint == color.Endpoint {
			out = append(out, toldPath{name, h})
		}
	}
	slices.SortFunc(out, func(a, b toldPath) int {
		return comparePreference(a.name, b.name, a.EffectivePreference(), b.EffectivePreference())
	})
	return out
}

// known is what others see of these paths.
func (list toldPaths) known() (k overlay.Known) {
	for _, p := range list {
		k = p.addTo(k)
	}
	return k
}

func (h heard) color() overlay.Color { return overlay.Color{Color: h.Color, Endpoint: h.Endpoint} }

// addTo notes what others see of a path.
func (h heard) addTo(k overlay.Known) overlay.Known {
	if !k.BindingSID.IsValid() {
		k.BindingSID = h.BindingSID
	}
	for _, list := range h.SegmentLists {
		last := list.Segments[len(list.Segments)-1]
		k.Ends = append(k.Ends, last)
		if len(list.Segments) == 1 {
			k.Direct = append(k.Direct, last)
		}
	}
	return k
}

// resource is what a path is learned as.
func (h heard) resource(name, policy string) resource {
	origin := OriginBGP
	if h.Kube != "" {
		origin = OriginKube
	}
	return resource{Ref{KindCandidatePath, name}, origin, srpolicy.CandidatePath{
		Name: name, Policy: policy, Preference: h.EffectivePreference(), SegmentLists: h.SegmentLists,
	}}
}

// unreachableBy says of links why no route leads to a first segment.
func unreachableBy(links *netdev.Snapshot) func(netip.Addr) error {
	return func(first netip.Addr) error { return unreachable(links, first) }
}
