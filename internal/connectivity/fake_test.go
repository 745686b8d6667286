package connectivity

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/culvert-net/culvert/internal/overlay"
)

// fake is a cluster in which every packet arrives unless a test breaks it.
type fake struct {
	nodes []Node
	ports Ports
	// broken changes an answer.
	broken func(from Pod, p Probe, a *Answer)
	// startless are nodes whose pods do not start; deaf are policies that no node
	// hears of, blind ones are used by none though it says so.
	startless map[string]string
	deaf      bool
	blind     bool
	sticks    bool   // a withdrawn policy is still used
	there     bool   // somebody's pods
	agentGone string // a node whose agent does not answer any more

	mu       sync.Mutex
	made     *Deployment
	policies map[string]Policy
	steered  map[Family]uint64
	passed   map[string]uint64 // packets at a node's SID
	drops    uint64
	cleaned  int
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func newFake(nodes int) *fake {
	f := &fake{policies: map[string]Policy{}, steered: map[Family]uint64{}, passed: map[string]uint64{}, startless: map[string]string{}}
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("node-%d", i)
		o := overlay.Complete(overlay.Node{
			Name: name, Address: addr(fmt.Sprintf("2001:db8::%d", i)), Locator: netip.MustParsePrefix(fmt.Sprintf("fc00:0:%d::/48", i)),
			Prefixes: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", i))},
		}, false)
		f.nodes = append(f.nodes, Node{Name: name, Addresses: []netip.Addr{addr(fmt.Sprintf("10.0.0.%d", i))}, Agent: Container{"kube-system", name, "agent"}, Overlay: &o})
	}
	return f
}

func (f *fake) Nodes(context.Context) ([]Node, error) { return f.nodes, nil }

func (f *fake) Start(_ context.Context, d Deployment) error {
	if f.there {
		return ErrThere
	}
	f.made, f.ports = &d, d.Ports
	return nil
}

func (f *fake) Pods(context.Context) (out []Pod, err error) {
	for i, n := range f.made.Nodes {
		for k, role := range Roles() {
			p := Pod{
				Container: Container{"test", role + "-" + n, "culvert"}, Role: role, Node: n, Ready: true,
				Addresses: []netip.Addr{addr(fmt.Sprintf("10.244.%d.%d", i+1, k+2)), addr(fmt.Sprintf("fd00:%d::%d", i+1, k+2))},
			}
			if role == Host {
				p.Addresses = f.nodes[i].Addresses
			}
			if why := f.startless[n]; why != "" {
				p.Ready, p.Problem, p.Fatal = false, why, true
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func (f *fake) Service(context.Context) (Service, error) {
	return Service{Addresses: []netip.Addr{addr("10.96.0.10"), addr("fd00:10:96::10")}, Port: 80, NodePort: 30080}, nil
}

func (f *fake) Exec(ctx context.Context, in Container, stdin io.Reader, command ...string) ([]byte, error) {
	if in.Name == "agent" {
		return f.agent(in, command[1])
	}
	pods, err := f.Pods(ctx)
	if err != nil {
		return nil, err
	}
	from := pods[slices.IndexFunc(pods, func(p Pod) bool { return p.Container == in })]
	r := bufio.NewReader(stdin)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	var probes []Probe
	if err := json.Unmarshal(line, &probes); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(probes))
	for i, p := range probes {
		answers[i] = f.answer(from, p)
	}
	if probes[0].Endless {
		if _, err := r.ReadByte(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(answers)
}

func (f *fake) answer(from Pod, p Probe) Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := Answer{Sent: p.Count, Received: p.Count, MTU: 1460}
	switch {
	case p.Kind == TCP:
		a.Sent, a.Received, a.Seconds = int(2*p.Bytes>>10), int(2*p.Bytes>>10), 1
		a.Servers = slices.Clone(f.made.Nodes)
	case p.Beyond > 0:
		a.Sent, a.Received, a.TooLong = 0, 0, p.Count
	}
	family := IPv6
	if p.To.Is4() {
		family = IPv4
	}
	if from.Node == "node-1" && strings.HasPrefix(p.To.String(), map[Family]string{IPv4: "10.244.2.", IPv6: "fd00:2::"}[family]) {
		f.steered[family] += uint64(p.Count)
		for _, policy := range f.policies {
			if policy.Family == family && !f.blind {
				f.passed[policy.Segments[0].String()] += uint64(p.Count)
			}
		}
	}
	if f.broken != nil {
		f.broken(from, p, &a)
		if a.Received < a.Sent {
			f.drops += uint64(a.Sent - a.Received)
		}
	}
	return a
}

// agent answers what `culvert COMMAND -o json` does, of node-1 also about policies.
func (f *fake) agent(in Container, command string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.Pod == f.agentGone {
		return nil, errors.New("container not found")
	}
	switch command {
	case "drops":
		return fmt.Appendf(nil, `[{"text": "no reason", "packets": %d}]`, f.drops), nil
	case "sid":
		end := f.nodes[slices.IndexFunc(f.nodes, func(n Node) bool { return n.Name == in.Pod })].Overlay.End()
		return fmt.Appendf(nil, `[{"sid": "%s/64", "counter": {"packets": %d}}]`, end, f.passed[end.String()]), nil
	}
	// Packets flow as long as they are looked at.
	var views []string
	for family, color := range map[Family]int{IPv4: 4, IPv6: 6} {
		f.steered[family]++
		path := ""
		for name, p := range f.policies {
			if p.Family == family {
				path = "srv6policy:" + name
				if !f.blind {
					f.passed[p.Segments[0].String()]++
				}
			}
		}
		if f.sticks && path == "" && f.cleaned == 0 {
			path = "srv6policy:culvert-connectivity-" + strings.ToLower(string(family))
		}
		views = append(views, fmt.Sprintf(`{"color": %d, "endpoint": "2001:db8::2", "counter": {"packets": %d}, "paths": [{"path": %q, "active": true, "why": "because"}]}`,
			color, f.steered[family], path))
	}
	return []byte("[" + strings.Join(views, ",") + "]"), nil
}

func (f *fake) PutPolicy(_ context.Context, p Policy) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policies[p.Name] = p
	return nil
}

func (f *fake) PolicyState(context.Context, Policy) (string, string, error) {
	if f.deaf {
		return "Refused", "spec.segmentLists: too many", nil
	}
	return "Active", "the highest preference", nil
}

func (f *fake) DeletePolicy(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.policies, name)
	return nil
}

func (f *fake) Clean(ctx context.Context) ([]string, error) {
	f.cleaned++
	return nil, ctx.Err()
}
