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
	for _, key := range slices.Sorted(maps.Keys(t.Steering)) {
		e := t.Steering[key]
		best := t.Policies[e.Policy]
		if e.Policy == "" || !v.Match.To(e.Prefix) {
			continue
		}
		name, leads := valid[best.Endpoint]
		if !leads {
			without[best.Endpoint] = true
			continue
		}
		by := t.Policies[name]
		if why := class.Lost(&by, &best, e.Steering, t.Ends().Lost); why != "" {
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
