package plan

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Scope is what a change can be about; the zero value: everything. Each function
// of this package has the same result for every Scope that holds the change. A
// smaller one saves time: in a large cluster there are thousands of policies, and
// mostly one of them changes its path.
type Scope struct {
	// Kinds are the kinds of the resources that differ; nil: any.
	Kinds map[desired.Kind]bool
	// Policies are the names of the policies of which segment lists and candidate
	// paths differ, and nothing else does; nil: anything may.
	Policies map[string]bool
}

// mostTouched bounds the resources of a small scope: for more it saves no time.
const mostTouched = 50

// WithKinds is s with the kinds of the changes that Diff found.
func (s Scope) WithKinds(changes []desired.Change) Scope {
	s.Kinds = map[desired.Kind]bool{}
	for _, c := range changes {
		s.Kinds[c.Kind] = true
	}
	if s.Policies != nil { // the provenance of a path may differ, which is no Change
		s.Kinds[desired.KindPolicy] = true
	}
	return s
}

// has says whether resources of one of the kinds may differ.
func (s Scope) has(kinds ...desired.Kind) bool {
	return s.Kinds == nil || slices.ContainsFunc(kinds, func(k desired.Kind) bool { return s.Kinds[k] })
}

// holds says whether a resource is in the scope, or decides about one that is.
func (s Scope) holds(r desired.Resource) bool {
	switch r.Kind {
	case desired.KindPolicy:
		return s.Policies == nil || s.Policies[r.Key]
	case desired.KindCandidatePath:
		return s.Policies == nil || s.Policies[r.Value.(srpolicy.CandidatePath).Policy]
	case desired.KindSettings:
		return s.Policies == nil || r.Key == desired.KeyEncapsulation
	}
	return s.Policies == nil
}

// within are the entries of a map by policy that are in the scope.
func within[V any](m map[string]V, s Scope) iter.Seq2[string, V] {
	if s.Policies == nil {
		return maps.All(m)
	}
	return func(yield func(string, V) bool) {
		for name := range s.Policies {
			if v, ok := m[name]; ok && !yield(name, v) {
				return
			}
		}
	}
}

// ScopeOf is the scope of a change in which no resources but the touched ones,
// and no observed paths but the touched ones, differ; touched is nil: any may. to
// is not derived yet. It is a small scope if nothing follows from the change but
// the segment lists that these policies' packets get.
func ScopeOf(from, to *Goal, touched []desired.Ref) Scope {
	if len(touched) == 0 || len(touched) > mostTouched {
		return Scope{}
	}
	for _, ref := range touched {
		if ref.Kind != desired.KindPolicy && ref.Kind != desired.KindCandidatePath {
			return Scope{}
		}
	}
	s := Scope{Policies: map[string]bool{}}
	was, is := from.find(touched), to.find(touched)
	for _, ref := range touched {
		if len(was[ref]) > 1 || len(is[ref]) > 1 || ref.Kind == desired.KindPolicy && !onlyLists(was[ref], is[ref]) {
			return Scope{}
		}
		for _, r := range slices.Concat(was[ref], is[ref]) {
			if p, ok := r.Value.(srpolicy.CandidatePath); ok {
				s.Policies[p.Policy] = true
			} else {
				s.Policies[ref.Key] = true
			}
		}
		for _, g := range []*Goal{from, to} {
			p, there := g.Observed.Paths[ref.Key]
			if ref.Kind == desired.KindPolicy || !there {
				continue
			}
			name, named := from.Named[p.Color()]
			if !named || !to.onlyPaths(from, p.Color()) {
				return Scope{}
			}
			s.Policies[name] = true
		}
	}
	return s
}

// find are the resources with these names.
func (g *Goal) find(refs []desired.Ref) map[desired.Ref][]desired.Resource {
	out := make(map[desired.Ref][]desired.Resource, len(refs))
	for _, ref := range refs {
		out[ref] = nil
	}
	for r := range g.All() {
		if r.Kind != desired.KindPolicy && r.Kind != desired.KindCandidatePath {
			continue
		}
		if list, ok := out[r.Ref]; ok {
			out[r.Ref] = append(list, r)
		}
	}
	return out
}

// onlyLists says whether a policy differs in nothing but its segment lists and
// their preference.
func onlyLists(was, is []desired.Resource) bool {
	if len(was) != 1 || len(is) != 1 || was[0].Origin != is[0].Origin {
		return false
	}
	p, q := was[0].Value.(srpolicy.Policy), is[0].Value.(srpolicy.Policy)
	p.SegmentLists, q.SegmentLists, p.Preference, q.Preference = nil, nil, 0, 0
	return desired.Same(p, q)
}

// onlyPaths says whether the observed paths of a policy, which differ from those
// in from, leave alone what others know of the policy: that it exists, its name
// and binding SID, and which SIDs lead to its endpoint.
func (g *Goal) onlyPaths(from *Goal, color overlay.Color) bool {
	if len(g.Observed.Former) > 0 {
		return false
	}
	was, is := from.Observed.PathsOf(color), g.Observed.PathsOf(color)
	before, now := was.Known(), is.Known()
	if before.BindingSID != now.BindingSID || len(g.Observed.Reaches) > 0 && !before.Same(now) {
		return false
	}
	name := from.Named[color]
	madeByPaths := slices.ContainsFunc(from.Derived, func(r desired.Resource) bool {
		return r.Kind == desired.KindPolicy && r.Key == name && r.Origin != desired.OriginOverlay
	})
	return !madeByPaths || len(was) > 0 && len(is) > 0 && was[0].Name == is[0].Name && was[0].EffectivePreference() == is[0].EffectivePreference() &&
		was[0].PolicyName == is[0].PolicyName && was[0].BindingSID == is[0].BindingSID
}

// TouchedPaths are the candidate paths that an edited observed state has changed;
// nil: more than paths differs.
func TouchedPaths(from, to *Goal) []desired.Ref {
	if !to.Observed.OnlyPaths(&from.Observed) {
		return nil
	}
	var out []desired.Ref
	for _, name := range slices.Sorted(maps.Keys(to.Observed.Touched)) {
		out = append(out, desired.Ref{Kind: desired.KindCandidatePath, Key: name})
	}
	return out
}

// Split splits updates that came to a goal which err refuses: the updates at fault
// stand alone, and those between them together, in their order. If err names none
// of them, each stands alone.
func Split(updates []observed.Update, g *Goal, err error) [][]observed.Update {
	suspects := g.entriesOf(refsIn(err))
	named := slices.ContainsFunc(updates, func(u observed.Update) bool { return suspects[u.Entry] })
	var out [][]observed.Update
	together := false // the last batch takes more
	for i, u := range updates {
		alone := !named || suspects[u.Entry]
		if together && !alone {
			out[len(out)-1] = append(out[len(out)-1], u)
			continue
		}
		out, together = append(out, updates[i:i+1:i+1]), !alone
	}
	return out
}

// refsIn are the resources that an error names.
func refsIn(err error) (out []desired.Ref) {
	switch e := any(err).(type) { // it walks the tree of errors itself
	case nil:
	case config.Errors:
		for _, one := range e {
			for _, r := range []string{one.Resource, one.Rival} {
				if kind, key, ok := strings.Cut(r, " "); ok {
					out = append(out, desired.Ref{Kind: desired.Kind(kind), Key: key})
				}
			}
		}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			out = append(out, refsIn(one)...)
		}
	default:
		if named, ok := errors.AsType[desired.RefError](err); ok {
			return []desired.Ref{named.Ref}
		}
		return refsIn(errors.Unwrap(err))
	}
	return out
}

// entriesOf are the observed entries that resources follow from: those of the
// endpoints that they lead to, and of their names.
func (g *Goal) entriesOf(refs []desired.Ref) map[observed.Entry]bool {
	all := g.Derive(g.Self, nil, Scope{})
	endpoints, names, self := map[string]netip.Addr{}, map[string]bool{}, false // by policy
	to := map[netip.Addr]bool{}
	for r := range all.All() {
		if p, ok := r.Value.(srpolicy.Policy); ok {
			endpoints[p.Name] = p.Endpoint
		}
	}
	for r := range all.All() {
		if !slices.Contains(refs, r.Ref) {
			continue
		}
		names[r.Key] = true
		switch v := r.Value.(type) {
		case srpolicy.Policy:
			to[v.Endpoint] = true
		case srpolicy.CandidatePath:
			to[endpoints[v.Policy]] = r.Origin == desired.OriginOverlay
		case srpolicy.Steering:
			to[endpoints[v.Policy]] = true
		default:
			self = true
		}
	}
	out := map[observed.Entry]bool{}
	for name, p := range g.Observed.Paths {
		out[observed.Entry{Kind: observed.EntryPath, Key: name}] = names[name] || to[p.Endpoint]
	}
	for name, n := range g.Observed.Nodes {
		out[observed.Entry{Kind: observed.EntryNode, Key: name}] = to[n.Address]
	}
	for destination, r := range g.Observed.Reaches {
		key := destination.String()
		out[observed.Entry{Kind: observed.EntryReach, Key: key}] = names[key] || len(r.Routes) > 0 && to[r.Routes[0].Address]
	}
	for _, part := range []string{"Node", "SIDs", "locator"} {
		out[observed.Entry{Kind: observed.EntrySelf, Key: part}] = self
	}
	return out
}
