package apitest

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netpol"
)

// PodTraffic is the agent's own.
func (a *Agent) PodTraffic() agent.PodTraffic { return podTraffic{a} }

type podTraffic struct{ *Agent }

// Flows sends the flows that the test set and the filter means.
func (t podTraffic) Flows(ctx context.Context, filter flow.Filter, f func(flow.Flow) error) error {
	if t.Err != nil {
		return t.Err
	}
	if t.PodFlows == nil {
		return agent.ErrNoFlows
	}
	for i := range t.PodFlows {
		if !filter.Matches(&t.PodFlows[i]) {
			continue
		}
		if err := f(t.PodFlows[i]); err != nil {
			return err
		}
	}
	if filter.Follow {
		<-ctx.Done()
	}
	return nil
}

// ExplainPolicy knows the pods default/web and default/db, and that web takes port 80 of db only.
func (a podTraffic) ExplainPolicy(q isolation.Ask) ([]netpol.Verdict, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.Err != nil:
		return nil, a.Err
	case !a.state.Process.Overlay.IsSet():
		return nil, isolation.ErrOff
	}
	pod := func(name string, addresses ...string) *netpol.Pod {
		p := &netpol.Pod{Namespace: "default", Name: name, UID: name, Labels: map[string]string{"app": name}}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, netpol.Address{Addr: netip.MustParseAddr(a)})
		}
		return p
	}
	return isolation.Explain(&netpol.State{
		Namespaces: map[string]*netpol.Namespace{"default": {Name: "default"}},
		Pods:       []*netpol.Pod{pod("web", "10.244.1.2", "fd00:10:244:1::2"), pod("db", "10.244.2.2", "fd00:10:244:2::2")},
		Policies: []*netpol.Policy{netpol.NewPolicy("default", "web", []byte(
			`{"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"db"}}}],"ports":[{"port":80}]}]}`))},
	}, q)
}
