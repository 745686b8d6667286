package apitest

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/netpol"
)

// ExplainPolicy knows the pods default/web and default/db, and that web takes port 80 of db only.
func (a *Agent) ExplainPolicy(q isolation.Ask) ([]netpol.Verdict, error) {
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
