package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
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

// longestWait returns how long somebody else had to wait for the data path's lock at most while f ran.
func (r *rig) longestWait(f func()) time.Duration {
	var ended atomic.Bool
	longest := make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for !ended.Load() {
			begun := time.Now()
			r.d.Pods.List()
			most = max(most, time.Since(begun))
			time.Sleep(time.Millisecond)
		}
		longest <- most
	}()
	f()
	ended.Store(true)
	return <-longest
}

// TestLargePolicies: a NetworkPolicy as large as the API server takes one does not keep pods' ADD and
// all other work waiting, neither when it comes nor when it changes or goes. It means what a small
// one means.
func TestLargePolicies(t *testing.T) {
	const n, most = 32000, 300 * time.Millisecond
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		c := netpol.NewCompiler("")
		least := map[string]time.Duration{} // that others waited for, of several tries: the machine may be busy
		apply := func(what string, spec []byte) {
			t.Helper()
			state := netpol.State{
				Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Pods: []*netpol.Pod{{Namespace: "x", Name: "peer", UID: "peer", Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}},
				Local: []netpol.Local{{Ifindex: rowPeer, Namespace: "x", Name: "peer", UID: "peer", Addresses: []netpol.Address{{Addr: addr("10.1.1.1")}}}},
			}
			if spec != nil {
				state.Policies = []*netpol.Policy{netpol.NewPolicy("x", "p", spec)}
			}
			begun, desired := time.Now(), c.Compile(state)
			compiled := time.Now()
			waited := r.longestWait(func() { must(t, r.d.NetworkPolicies.Apply(desired)) })
			c.Applied()
			t.Logf("%s: compiled in %v, applied in %v, others waited for %v at most", what, compiled.Sub(begun), time.Since(compiled), waited)
			if before, tried := least[what]; !tried || waited < before {
				least[what] = waited
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
		isFast := func() bool {
			for _, waited := range least {
				if waited > most {
					return false
				}
			}
			return len(least) > 0
		}
		for try := 0; try < 4 && !isFast(); try++ {
			apply("addresses", blocks(t, n, 0))
			from("10.2.2.2", "policy_ingress")
			apply("one more", blocks(t, n+1, 0))
			apply("exceptions", blocks(t, 1, n))
			from("10.2.2.2", "forwarded")
			apply("nothing", nil)
		}
		if !isFast() {
			t.Errorf("others waited for the lock for %v, want no more than %v", least, most)
		}
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
