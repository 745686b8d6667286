package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	dpnetpol "github.com/culvert-net/culvert/internal/dataplane/netpol"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/packet"
)

// blocks are a NetworkPolicy's peers: n prefixes of 10.64.0.0/10, besides `except` exceptions of one. They
// may send to some UDP ports, or to all.
func blocks(t testing.TB, n, except int, ports ...int) []byte {
	t.Helper()
	type block struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except,omitempty"`
	}
	host := func(i int) string { return fmt.Sprintf("10.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255) }
	var from []map[string]block
	for i := range n {
		from = append(from, map[string]block{"ipBlock": {CIDR: host(i)}})
	}
	if except > 0 {
		b := block{CIDR: "10.0.0.0/8"}
		for i := range except {
			b.Except = append(b.Except, host(i))
		}
		from = append(from, map[string]block{"ipBlock": b})
	}
	rule := map[string]any{"from": from}
	if len(ports) > 0 {
		var list []any
		for _, p := range ports {
			list = append(list, map[string]any{"protocol": "UDP", "port": p})
		}
		rule["ports"] = list
	}
	text, err := json.Marshal(map[string]any{"podSelector": map[string]any{}, "policyTypes": []string{"Ingress"}, "ingress": []any{rule}})
	must(t, err)
	return text
}

// shared is the data path's lock. It counts how often somebody takes it, and how many entries of policies
// appear or go while they hold it, at most.
type shared struct {
	sync.Locker
	entries func() int
	held    int // entries, when it was taken
	taken   int
	most    int
}

func (s *shared) Lock() {
	s.Locker.Lock()
	s.taken++
	s.held = s.entries()
}

func (s *shared) Unlock() {
	more := s.entries() - s.held
	s.most = max(s.most, more, -more)
	s.Locker.Unlock()
}

// TestLargePolicies: a NetworkPolicy as large as the API server takes one does not keep pods' ADD and
// all other work waiting, neither when it comes nor when it changes or goes: they get the data path's lock
// between some hundreds of steps. It means what a small one does.
func TestLargePolicies(t *testing.T) {
	const n, most = 32000, 256
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		lock := &shared{Locker: &r.d.mu, entries: func() int {
			return r.d.tables.Netpol.Peers.Usage().Used + r.d.tables.Netpol.Rules.Usage().Used
		}}
		policies := dpnetpol.Open(lock, r.d.tables.Netpol, r.d.Pods, r.d.netfilter, r.d.grace)
		must(t, policies.Enforce(true))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		c := netpol.NewCompiler("")
		apply := func(what string, spec []byte, steps int) {
			t.Helper()
			state := netpol.State{
				Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Pods: []*netpol.Pod{{Namespace: "x", Name: "peer", UID: "peer", Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}},
				Local: []netpol.Local{{Ifindex: rowPeer, Namespace: "x", Name: "peer", UID: "peer", Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}},
			}
			if spec != nil {
				state.Policies = []*netpol.Policy{netpol.NewPolicy("x", "p", spec)}
			}
			desired := c.Compile(state)
			lock.taken, lock.most = 0, 0
			must(t, policies.Apply(desired))
			c.Applied()
			t.Logf("%s: others can have the lock %d times, between %d entries at most", what, lock.taken, lock.most)
			if lock.most > most || lock.most == 0 {
				t.Errorf("%s: %d entries are written or removed at once, want 1 to %d", what, lock.most, most)
			}
			if lock.taken < steps/most {
				t.Errorf("%s: others can have the lock %d times in %d steps, want it after each %d", what, lock.taken, steps, most)
			}
		}
		from := func(source, end string) {
			t.Helper()
			before := r.counters(t)
			runOn(t, program, frameAt(t, rowPod, of(ip4(source, "10.1.1.1"), packet.UDP{Sport: 1, Dport: 2})), rowPod)
			if got := since(before, r.counters(t)); got["outcome "+end].Packets != 1 {
				t.Errorf("from %s: %v, want %s", source, got, end)
			}
		}
		// Each prefix is read, planned, looked for, written as a rule and as a peer, and compared at the end.
		apply("addresses", blocks(t, n, 0), 6*n)
		from("10.2.2.2", "policy_ingress")
		apply("one more", blocks(t, n+1, 0), 6*n)
		apply("exceptions", blocks(t, 1, n), 6*n)
		from("10.2.2.2", "forwarded")
		apply("nothing", nil, 2*n)
	})
}

// TestExceededRules: the policies of a namespace that need more rules than one may have are refused by
// its name, and nothing has changed. With the namespace closed others' are applied, and its own when they
// need less.
func TestExceededRules(t *testing.T) {
	ports := []int{2, 5, 8, 11, 14, 17, 20, 23, 26}
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		state := netpol.State{Namespaces: map[string]*netpol.Namespace{"big": {Name: "big"}, "small": {Name: "small"}}}
		for name, ifindex := range map[string]int{"big": rowPod, "small": rowPeer} {
			state.Pods = append(state.Pods, &netpol.Pod{Namespace: name, Name: "p", UID: name})
			own := map[string]string{"big": "10.2.2.2", "small": "10.1.1.1"}[name]
			state.Local = append(state.Local, netpol.Local{Ifindex: ifindex, Namespace: name, Name: "p", UID: name, Addresses: []netpol.Address{{Addr: addr(own)}}})
		}
		policies := func(n, small int) {
			state.Policies = []*netpol.Policy{
				netpol.NewPolicy("big", "p", blocks(t, n, 0, ports...)),
				netpol.NewPolicy("small", "p", fmt.Appendf(nil, `{"podSelector":{},"ingress":[{"ports":[{"protocol":"UDP","port":%d}]}]}`, small)),
			}
		}
		sends := func(port int, end string) {
			t.Helper()
			before := r.counters(t)
			runOn(t, program, frameAt(t, rowPod, of(ip4("10.2.2.2", "10.1.1.1"), packet.UDP{Sport: 1, Dport: uint16(port)})), rowPod)
			if got := since(before, r.counters(t)); got["outcome "+end].Packets != 1 {
				t.Errorf("to port %d: %v, want %s", port, got, end)
			}
		}
		policies(10, 7)
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		peers, rules := r.d.NetworkPolicies.Usage()
		sends(7, "forwarded")
		policies(32000, 9)
		var e *netpol.ExceededError
		if err := r.d.NetworkPolicies.Apply(netpol.Compile(state)); !errors.As(err, &e) || e.Namespace != "big" || e.What != netpol.Rules || e.Need <= e.Limit || e.Limit != netpol.MaxRules {
			t.Fatalf("%v", err)
		}
		if p, n := r.d.NetworkPolicies.Usage(); p != peers || n != rules {
			t.Errorf("what was refused has left %v and %v, before %v and %v", p, n, peers, rules)
		}
		sends(7, "forwarded")
		state.Closed = map[string]bool{"big": true}
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		sends(8, "policy_ingress")
		sends(9, "forwarded")
		policies(10, 8)
		state.Closed = nil
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		sends(8, "forwarded")
		if p, n := r.d.NetworkPolicies.Usage(); p != peers || n != rules {
			t.Errorf("the same as at first takes %v and %v, before %v and %v", p, n, peers, rules)
		}
	})
}

// TestRulesOfFormerPods: what a namespace's policies need is counted down when the pods go that its rules
// are for, however many come and go.
func TestRulesOfFormerPods(t *testing.T) {
	var ports []string
	for p := range 1000 {
		ports = append(ports, fmt.Sprintf(`{"port":%d}`, 3*p+2))
	}
	spec := `{"podSelector":{"matchLabels":{"app":"own"}},"ingress":[{"from":[{"podSelector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}],"ports":[` + strings.Join(ports, ",") + `]}]}`
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		c := netpol.NewCompiler("")
		state := netpol.State{
			Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Policies: []*netpol.Policy{netpol.NewPolicy("x", "p", []byte(spec))},
			Local: []netpol.Local{{Ifindex: rowPeer, Namespace: "x", Name: "own", UID: "own", Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}},
		}
		for round := range 5 {
			state.Pods = []*netpol.Pod{{Namespace: "x", Name: "own", UID: "own", Labels: map[string]string{"app": "own"}, Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}}
			for i := range 90 {
				name := fmt.Sprintf("p%d-%d", round, i)
				state.Pods = append(state.Pods, &netpol.Pod{Namespace: "x", Name: name, UID: name, Labels: map[string]string{"app": name}, Addresses: []netpol.Address{{Addr: addr(fmt.Sprintf("10.3.%d.%d", round, i))}}})
			}
			if err := r.d.NetworkPolicies.Apply(c.Compile(state)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			c.Applied()
			if _, rules := r.d.NetworkPolicies.Usage(); rules.Used != 91000 {
				t.Errorf("round %d: %d rules, want 91000", round, rules.Used)
			}
		}
	})
}
