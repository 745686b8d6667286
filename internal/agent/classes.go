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
	valid := map[netip.Addr]bool{}
	for _, name := range slices.Sorted(maps.Keys(t.Policies)) {
		p := t.Policies[name]
		if p.Color != v.Color || p.L2() {
			continue
		}
		s.Policies = append(s.Policies, name)
		valid[p.Endpoint] = valid[p.Endpoint] || len(t.Verdicts[name]) > 0 && t.Verdicts[name][0].Valid
	}
	without := map[netip.Addr]bool{}
	for _, e := range t.Steering {
		if to := t.Policies[e.Policy].Endpoint; e.Policy != "" && v.Match.To(e.Prefix) && !valid[to] {
			without[to] = true
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
