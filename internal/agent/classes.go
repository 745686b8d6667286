package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Classes are the traffic classes, with what they carried.
func (a *Agent) Classes() ([]ClassStatus, error) {
	return each(a.core, func(r desired.Resource, v class.Class) (ClassStatus, error) {
		s := classStatus(a.core.writer.Tables, v)
		s.Origin = r.Origin
		var err error
		s.Counter, err = a.core.dp.Counters.Class(v.Name)
		return s, err
	})
}

// classStatus says where the packets of a class have policies.
func classStatus(t *plan.Tables, v class.Class) ClassStatus {
	s := ClassStatus{Class: v, Policies: []string{}, Without: []netip.Addr{}}
	valid := map[netip.Addr]string{}
	for _, name := range slices.Sorted(maps.Keys(t.Policies)) {
		p := t.Policies[name]
		if p.Color != v.Color || p.L2() {
			continue
		}
		s.Policies = append(s.Policies, name)
		if len(t.Verdicts[name]) > 0 && t.Verdicts[name][0].Valid {
			valid[p.Endpoint] = name
		}
	}
	without, lost := map[netip.Addr]bool{}, map[string]string{}
	for key, to := range destinationsOf(t, &v) {
		if !to.best.Endpoint.IsValid() {
			lost[key] = fmt.Sprintf("policy %s has no endpoint", to.best.Name)
			continue
		}
		name, leads := valid[to.best.Endpoint]
		if !leads {
			without[to.best.Endpoint] = true
			continue
		}
		by := t.Policies[name]
		if why := to.lost(&by); why != "" {
			lost[key] = fmt.Sprintf("policy %s: %s", name, why)
		}
	}
	s.Without = append(s.Without, slices.SortedFunc(maps.Keys(without), netip.Addr.Compare)...)
	what := "its packets take best effort"
	if v.Strict {
		what = "its packets are dropped"
	}
	switch {
	case len(s.Policies) == 0:
		s.Problem = fmt.Sprintf("no policy has color %d: %s", v.Color, what)
	case len(s.Without) > 0:
		s.Problem = fmt.Sprintf("no valid policy of color %d leads to %d of its endpoints: there %s", v.Color, len(s.Without), what)
	case len(lost) > 0:
		first := slices.Min(slices.Collect(maps.Keys(lost)))
		others := ""
		if n := len(lost) - 1; n > 0 {
			others = " and " + plural.Of(n, "other destination")
		}
		s.Problem = fmt.Sprintf("%s: to %s%s %s", lost[first], first, others, what)
	}
	return s
}

// destination is where packets of a class may go.
type destination struct {
	best srpolicy.Policy // theirs without the class
	// lost says why they must not take another policy to the same endpoint; empty: they may.
	lost func(by *srpolicy.Policy) string
}

// destinationsOf lists where packets of a class may go: by the names of steering entries, or of
// slices and their policies.
func destinationsOf(t *plan.Tables, v *class.Class) map[string]destination {
	out := map[string]destination{}
	for flow, way := range t.SessionWays {
		if way.Class == v.Name {
			best := t.Policies[flow.Policy]
			out[fmt.Sprintf("slice %s by %s", flow.Slice, flow.Policy)] = destination{best, func(by *srpolicy.Policy) string { return class.LostSession(by, &best) }}
		}
	}
	for key, e := range t.Steering {
		if v.Match.Kind() != class.SourceSession && e.Policy != "" && v.Match.To(e.Prefix) {
			best := t.Policies[e.Policy]
			out[key] = destination{best, func(by *srpolicy.Policy) string { return class.Lost(by, &best, e.Steering, t.Ends().Lost) }}
		}
	}
	return out
}

// classVerdicts are those on the observed traffic classes. mu is held.
func (c *core) classVerdicts() (out []kube.Verdict) {
	for name, v := range c.goal.Observed.Classes {
		if why, refused := c.goal.Refused[name]; refused {
			out = append(out, kube.Verdict{Path: name, Why: why})
			continue
		}
		s := classStatus(c.writer.Tables, v.Class)
		if r, refused := c.refused[observed.KubeClasses]; refused {
			s.Problem = "it is as it was before: " + r.Why.Error()
		}
		out = append(out, kube.Verdict{Path: name, Valid: len(s.Policies) > 0, Active: true, Why: s.Problem})
	}
	return out
}
