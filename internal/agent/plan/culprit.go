package plan

import (
	"errors"
	"maps"
	"net/netip"
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
	for prefix, r := range g.Observed.Reaches {
		out[observed.Entry{Kind: observed.EntryReach, Key: prefix.String()}] = names[prefix.String()] || len(r.Routes) > 0 && to[r.Routes[0].Address]
	}
	for _, part := range []string{"Node", "SIDs", "locator"} {
		out[observed.Entry{Kind: observed.EntrySelf, Key: part}] = self
	}
	return out
}
