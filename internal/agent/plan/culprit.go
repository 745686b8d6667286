package plan

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

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
	var named interface{ About() desired.Ref }
	switch e := err.(type) {
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
		if errors.As(err, &named) {
			return []desired.Ref{named.About()}
		}
		return refsIn(errors.Unwrap(err))
	}
	return out
}

// entriesOf are the observed entries that resources follow from.
func (g *Goal) entriesOf(refs []desired.Ref) map[observed.Entry]bool {
	out := map[observed.Entry]bool{}
	add := func(kind observed.EntryKind, key string) { out[observed.Entry{Kind: kind, Key: key}] = true }
	all := g.Derive(g.Self, nil, Scope{})
	policies := map[string]srpolicy.Policy{}
	for r := range all.All() {
		if p, ok := r.Value.(srpolicy.Policy); ok {
			policies[p.Name] = p
		}
	}
	for r := range all.All() {
		if !slices.Contains(refs, r.Ref) {
			continue
		}
		var p srpolicy.Policy
		switch v := r.Value.(type) {
		case srpolicy.Policy:
			p = v
		case srpolicy.CandidatePath:
			add(observed.EntryPath, v.Name)
			if r.Origin == desired.OriginOverlay {
				p = policies[v.Policy]
			}
		case srpolicy.Steering:
			add(observed.EntryReach, v.Prefix.String())
			p = policies[v.Policy]
		default:
			for _, part := range []string{"Node", "SIDs", "locator"} {
				add(observed.EntrySelf, part)
			}
		}
		if !p.Endpoint.IsValid() {
			continue
		}
		for name, o := range g.Observed.Paths {
			if o.Endpoint == p.Endpoint && o.Path.Color == p.Color {
				add(observed.EntryPath, name)
			}
		}
		for name, n := range g.Observed.Nodes {
			if n.Address == p.Endpoint {
				add(observed.EntryNode, name)
			}
		}
		for prefix, reach := range g.Observed.Reaches {
			if len(reach.Routes) > 0 && reach.Routes[0].Address == p.Endpoint {
				add(observed.EntryReach, prefix.String())
			}
		}
	}
	return out
}
