package isolation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/ipam"
	"github.com/culvert-net/culvert/internal/netpol"
)

// node is a node of fakes: its API, its pods and its data path.
type node struct {
	t    *testing.T
	mu   sync.Mutex
	k    *Keeper
	stop func()

	// The API's.
	state    netpol.State
	complete bool

	// The node's.
	list []pods.Status

	// The data path's. isolated has the pods that were put.
	enforced bool
	isolated map[int]netpol.Isolation
	peers    map[netpol.Peer]*netpol.Identity
	failure  error
	room     func(netpol.Desired) error
	applied  int
	calls    []string
}

func newNode(t *testing.T) *node {
	n := &node{t: t, isolated: map[int]netpol.Isolation{}}
	n.state.Namespaces = map[string]*netpol.Namespace{"shop": {Name: "shop"}}
	n.start()
	return n
}

// start starts the daemon, again.
func (n *node) start() {
	if n.stop != nil {
		n.stop()
	}
	n.k = New(Settings{Path: n, Source: n, Pods: n, Log: slog.New(slog.DiscardHandler), Patience: 50 * time.Millisecond, Pause: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.k.Run(ctx) })
	n.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	n.t.Cleanup(n.stop)
}

func (n *node) NetworkState() (netpol.State, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.state
	s.Pods, s.Policies = slices.Clone(s.Pods), slices.Clone(s.Policies)
	return s, n.complete
}

func (n *node) List() []pods.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

func (n *node) Identify(key pods.Attachment, namespace, name, uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf("identify %s: %s/%s %s", key, namespace, name, uid))
}

func (n *node) Enforce(enforce bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprint("enforce ", enforce))
	if n.failure != nil {
		return n.failure
	}
	n.enforced = enforce
	if !enforce {
		for i := range n.isolated {
			n.isolated[i] = netpol.Isolation{}
		}
	}
	return nil
}

func (n *node) Apply(d netpol.Desired) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, "apply")
	if n.failure != nil {
		return n.failure
	}
	if n.room != nil {
		if err := n.room(d); err != nil {
			return err
		}
	}
	n.applied++
	n.peers = d.Peers
	for i := range n.isolated {
		if isolation, named := d.Pods[i]; named {
			n.isolated[i] = isolation
		}
	}
	return nil
}

// change changes what there is; tells says it to the keeper.
func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) tells(f func()) {
	n.change(f)
	n.k.Changed()
}

// lease is a pod's addresses, before the data path has the pod.
func (n *node) lease(index int, name, uid, address string) {
	n.change(func() {
		s := pods.Status{Attachment: ipam.Key{ContainerID: uid, Interface: "eth0"}, Pod: pods.Pod{Network: "culvert", Name: name, UID: uid, HostIfindex: index}, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
		if name != "" {
			s.Namespace = "shop"
		}
		n.list = append(n.list, s)
	})
}

// put puts a pod as the data path does: closed where policies are enforced.
func (n *node) put(index int) {
	n.change(func() {
		i := netpol.Isolation{}
		if n.enforced {
			i = netpol.Isolation{Ingress: netpol.Nothing(), Egress: netpol.Nothing()}
		}
		n.isolated[index] = i
	})
}

// report has the API know a pod.
func (n *node) report(name, uid, labels string) {
	n.tells(func() {
		p := &netpol.Pod{Namespace: "shop", Name: name, UID: uid, Labels: map[string]string{"app": labels}}
		n.state.Pods = append(slices.DeleteFunc(slices.Clone(n.state.Pods), func(o *netpol.Pod) bool { return o.Name == name }), p)
	})
}

// is says how a pod is in the data path: open, closed or isolated.
func (n *node) is(index int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch i := n.isolated[index]; {
	case i.Ingress == nil && i.Egress == nil:
		return "open"
	case i.Ingress != nil && i.Egress != nil && i.Ingress.Key() == netpol.Nothing().Key():
		return "closed"
	}
	return "isolated"
}

func (n *node) waits(what string, f func() bool) {
	n.t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func (n *node) enforce(enforce bool) {
	n.t.Helper()
	if err := n.k.Enforce(enforce); err != nil {
		n.t.Fatal(err)
	}
}

var fromDB = netpol.NewPolicy("shop", "web", []byte(`{"podSelector":{"matchLabels":{"app":"web"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"db"}}}]}]}`))

// A pod is never open before its policy is there, however late anything comes.
func TestAddWaitsForItsPolicy(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.change(func() { n.state.Policies, n.complete = []*netpol.Policy{fromDB}, true })
	n.k.patience = 20 * time.Second // no more than a guard
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	added := make(chan error)
	go func() { added <- n.k.Wait(nil, 1, "u1") }()
	n.waits("a round", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.applied > 0 })
	select {
	case err := <-added:
		t.Fatalf("the pod was added before the API knew it: %v", err)
	default:
	}
	if got := n.is(1); got != "closed" {
		t.Errorf("the pod is %s", got)
	}
	n.report("web", "another", "web") // that had its name before
	n.waits("another round", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.applied > 1 })
	if got := n.is(1); got != "closed" {
		t.Errorf("the pod is %s by another's labels", got)
	}
	n.report("web", "u1", "web")
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	if got := n.is(1); got != "isolated" {
		t.Errorf("the pod is %s", got)
	}
}

// What was applied before a pod was put does not count, even where the round knew the pod.
func TestWaitWantsARoundAfterPut(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.change(func() { n.complete = true })
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.k.Changed()
	n.waits("a round that knows the pod", func() bool { return n.k.Status().Open == 1 })
	n.put(1)
	if got := n.is(1); got != "closed" {
		t.Fatalf("the pod is %s", got)
	}
	n.k.patience = 20 * time.Second
	if err := n.k.Wait(nil, 1, "u1"); err != nil {
		t.Fatal(err)
	}
	if got := n.is(1); got != "open" {
		t.Errorf("the pod is %s", got)
	}
}

func TestWaitEnds(t *testing.T) {
	n := newNode(t)
	if err := n.k.Wait(nil, 1, "u1"); err != nil {
		t.Errorf("where nothing is enforced: %v", err)
	}
	n.enforce(true)
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	n.waits("a round", func() bool { return n.k.Status().Problem != "" })
	if err := n.k.Wait(nil, 1, "u1"); err == nil || !strings.Contains(err.Error(), "has not sent all") {
		t.Errorf("while the API is away: %v", err)
	}
	n.tells(func() { n.complete = true })
	n.waits("a round", func() bool { return n.k.Status().Closed == 1 })
	if err := n.k.Wait(nil, 1, "u1"); err == nil || !strings.Contains(err.Error(), "has not reported the pod") {
		t.Errorf("while the API does not know the pod: %v", err)
	}
	if got := n.is(1); got != "closed" {
		t.Errorf("the pod is %s", got)
	}
	n.k.patience = time.Hour
	end := make(chan struct{})
	close(end)
	if err := n.k.Wait(end, 1, "u1"); err == nil || !strings.Contains(err.Error(), "ending") {
		t.Errorf("at the daemon's end: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- n.k.Wait(nil, 1, "u1") }()
	n.enforce(false)
	if err := <-ended; err != nil {
		t.Errorf("when nothing is enforced any more: %v", err)
	}
	if got := n.is(1); got != "open" {
		t.Errorf("the pod is %s", got)
	}
}

// A container that is no pod of Kubernetes is open once a round knows it.
func TestContainers(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.k.patience = 20 * time.Second
	n.change(func() { n.complete = true })
	n.lease(1, "", "", "10.0.0.1")
	n.put(1)
	if err := n.k.Wait(nil, 1, ""); err != nil {
		t.Fatal(err)
	}
	if got := n.is(1); got != "open" {
		t.Errorf("it is %s", got)
	}
}

// After a start pods stay as they are until the API has sent everything.
func TestRestart(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.k.patience = 20 * time.Second
	n.change(func() { n.state.Policies, n.complete = []*netpol.Policy{fromDB}, true })
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	if err := n.k.Wait(nil, 1, "u1"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.change(func() { // the API is away, and what it sent is lost
		n.complete, n.state.Policies, n.state.Pods, n.calls = false, nil, nil, nil
	})
	n.start()
	n.enforce(true)
	n.waits("a round", func() bool { return n.k.Status().Problem != "" })
	if got := n.is(1); got != "isolated" {
		t.Errorf("the pod is %s", got)
	}
	n.lease(2, "db", "u2", "10.0.0.2")
	n.put(2)
	if err := n.k.Wait(nil, 2, "u2"); err == nil {
		t.Error("a new pod is known, though the API is away")
	}
	n.mu.Lock()
	calls := slices.Clone(n.calls)
	n.mu.Unlock()
	if slices.Contains(calls, "apply") {
		t.Errorf("the data path was changed: %s", calls)
	}
	if got := n.is(2); got != "closed" {
		t.Errorf("the new pod is %s", got)
	}
	n.change(func() {
		n.complete, n.state.Policies = true, []*netpol.Policy{fromDB}
	})
	n.report("web", "u1", "web")
	n.report("db", "u2", "db")
	n.waits("the new pod is open", func() bool { return n.is(2) == "open" })
	if got := n.is(1); got != "isolated" {
		t.Errorf("the pod is %s", got)
	}
}

// A pod of which the state file was lost is closed until the API knows a pod with its address. Then that
// one's policies are its own.
func TestRecovered(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.change(func() { n.complete, n.state.Policies = true, []*netpol.Policy{fromDB} })
	n.lease(1, "", "", "10.0.0.1")
	n.change(func() { n.list[0].Network = "" })
	n.change(func() { n.state.Node = "node-1" })
	n.put(1)
	address := []netpol.Address{{Addr: netip.MustParseAddr("10.0.0.1")}}
	n.tells(func() {
		n.state.Pods = []*netpol.Pod{{Namespace: "shop", Name: "thief", UID: "u2", Node: "node-2", Addresses: address}}
	})
	n.waits("a round", func() bool { return n.k.Status().Closed == 1 })
	if got := n.is(1); got != "closed" {
		t.Errorf("the pod is %s, and nobody knows which it is", got)
	}
	n.tells(func() {
		n.state.Pods = append(n.state.Pods,
			&netpol.Pod{Namespace: "shop", Name: "gone", UID: "u0", Node: "node-1", Finished: true, Addresses: address},
			&netpol.Pod{Namespace: "shop", Name: "web", UID: "u1", Node: "node-1", Labels: map[string]string{"app": "web"}, Addresses: address},
		)
	})
	n.waits("the pod is isolated", func() bool { return n.is(1) == "isolated" })
	n.mu.Lock()
	defer n.mu.Unlock()
	if calls := fmt.Sprint(n.calls); !strings.Contains(calls, "identify /eth0: shop/web u1") || strings.Contains(calls, "thief") {
		t.Errorf("the pod is told who it is: %s", calls)
	}
}

// The API that goes away later leaves what there was, and new pods closed.
func TestLostAPI(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.change(func() { n.complete = true })
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	n.k.Changed()
	n.waits("the pod is open", func() bool { return n.is(1) == "open" })
	n.tells(func() { n.complete = false })
	n.lease(2, "db", "u2", "10.0.0.2")
	n.put(2)
	if err := n.k.Wait(nil, 2, "u2"); err == nil {
		t.Error("a new pod is known")
	}
	if a, b := n.is(1), n.is(2); a != "open" || b != "closed" {
		t.Errorf("the pods are %s and %s", a, b)
	}
}

// What the data path refuses is tried again, and pods stay as they are.
func TestFailure(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.change(func() { n.complete, n.failure = true, errors.New("it is full") })
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	n.k.Changed()
	n.waits("a round", func() bool { return n.k.Status().Failures > 0 })
	if err := n.k.Wait(nil, 1, "u1"); err == nil || !strings.Contains(err.Error(), "it is full") {
		t.Errorf("it waits for %v", err)
	}
	if s := n.k.Status(); s.Problem != "it is full" || s.Failures == 0 || !s.Applied.IsZero() {
		t.Errorf("status %+v", s)
	}
	if err := n.k.Enforce(false); err == nil {
		t.Error("the data path's failure to stop is not reported")
	}
	if got := n.is(1); got != "closed" {
		t.Errorf("the pod is %s", got)
	}
	n.change(func() { n.failure = nil })
	n.waits("the pod is open", func() bool { return n.is(1) == "open" })
	if s := n.k.Status(); s.Problem != "" || s.Applied.IsZero() || s.Open != 1 {
		t.Errorf("status %+v", s)
	}
}

// ofBlocks is a policy of a namespace that takes packets from n addresses.
func ofBlocks(namespace string, n int) *netpol.Policy {
	var from []string
	for i := range n {
		from = append(from, fmt.Sprintf(`{"ipBlock":{"cidr":"10.%d.%d.%d/32"}}`, i>>16, i>>8&255, i&255))
	}
	return netpol.NewPolicy(namespace, "blocks", []byte(`{"podSelector":{},"policyTypes":["Ingress","Egress"],"ingress":[{"from":[`+strings.Join(from, ",")+`]}]}`))
}

// One namespace's policies need more than there is room for: its pods are closed, and those of others go
// on as if they did not exist. It recovers when they need less, or when there is room again.
func TestExceeded(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	n.k.patience = 20 * time.Second
	tight := func(d netpol.Desired) error {
		if need := d.Prefixes["big"]; need > 10 {
			return fmt.Errorf("NetworkPolicies: %w", &netpol.ExceededError{Namespace: "big", What: netpol.Prefixes, Need: need, Limit: 1000, Full: true})
		}
		return nil
	}
	n.change(func() {
		n.complete, n.room = true, tight
		n.state.Namespaces["big"] = &netpol.Namespace{Name: "big"}
		n.state.Policies = []*netpol.Policy{fromDB, ofBlocks("big", 11)}
		n.state.Pods = append(n.state.Pods, &netpol.Pod{Namespace: "big", Name: "hog", UID: "h"})
	})
	n.lease(9, "hog", "h", "10.0.0.9")
	n.change(func() { n.list[0].Namespace = "big" })
	n.put(9)
	add := func(index int, name, uid string) {
		t.Helper()
		n.lease(index, name, uid, fmt.Sprintf("10.0.0.%d", index))
		n.put(index)
		n.report(name, uid, "web")
		if err := n.k.Wait(nil, index, uid); err != nil {
			t.Fatal(err)
		}
		if got := n.is(index); got != "isolated" {
			t.Errorf("pod %s of another namespace is %s", name, got)
		}
	}
	add(1, "web", "u1")
	is := func(what, want, says string) {
		t.Helper()
		n.waits(what, func() bool { return n.is(9) == want && strings.Join(n.k.Status().Exceeded, "; ") == says })
		if s := n.k.Status(); s.Problem != "" || s.Failures != 0 {
			t.Errorf("%s: status %+v", what, s)
		}
	}
	const full = "NetworkPolicies of namespace big need 11 prefixes on this node, more than others, and the table is full (1000): its isolated pods here are closed"
	is("it is closed", "closed", full)
	add(2, "web2", "u2")
	n.change(func() {
		if _, peers := n.peers[netpol.Peer{Prefix: netip.MustParsePrefix("10.0.0.10/32")}]; peers {
			t.Error("the data path has its prefixes")
		}
	})
	n.tells(func() { n.state.Policies = []*netpol.Policy{fromDB, ofBlocks("big", 10)} })
	is("it needs less", "isolated", "")
	n.tells(func() { n.state.Policies = []*netpol.Policy{fromDB, ofBlocks("big", 11)} })
	is("it needs more again", "closed", full)
	n.change(func() { n.room = nil }) // nobody says so
	is("there is room again", "isolated", "")
	n.tells(func() { n.state.Policies = []*netpol.Policy{fromDB, ofBlocks("big", netpol.MaxPrefixes+1)} })
	is("it needs more than any namespace may", "closed", "NetworkPolicies of namespace big need 65537 prefixes on this node, a namespace may have 65536: its isolated pods here are closed")
	add(3, "web3", "u3")
	if v, err := n.k.Explain(Ask{From: "10.0.0.1", To: "big/hog"}, nil); err != nil || v[0].Allowed || !strings.Contains(v[0].Ingress.Why, "no room for the policies of namespace big") {
		t.Errorf("%+v, %v", v, err)
	}
	n.tells(func() { n.state.Policies = []*netpol.Policy{fromDB} })
	is("it has no policies", "open", "")
}

func TestOff(t *testing.T) {
	n := newNode(t)
	n.change(func() { n.complete, n.state.Policies = true, []*netpol.Policy{fromDB} })
	n.enforce(false)
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.put(1)
	if _, err := n.k.Explain(Ask{From: "web", To: "web"}, nil); !errors.Is(err, ErrOff) {
		t.Error(err)
	}
	n.enforce(true)
	n.waits("the pod is isolated", func() bool { return n.is(1) == "isolated" })
	n.enforce(true)
	n.enforce(false)
	n.enforce(false)
	if got := n.is(1); got != "open" {
		t.Errorf("the pod is %s", got)
	}
	calls := slices.DeleteFunc(slices.Clone(n.calls), func(s string) bool { return s == "apply" })
	if !slices.Equal(calls, []string{"enforce false", "enforce true", "enforce false"}) {
		t.Errorf("it calls %q", calls)
	}
}

func TestStatus(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	odd := netpol.NewPolicy("shop", "odd", []byte(`{"podSelector":{},"ingress":[{"from":[{}]}]}`))
	n.change(func() { n.complete, n.state.Policies = true, []*netpol.Policy{odd, fromDB} })
	n.report("web", "u1", "web")
	n.lease(1, "web", "u1", "10.0.0.1")
	n.lease(2, "new", "u2", "10.0.0.2")
	n.lease(3, "", "", "10.0.0.3")
	n.waits("a round", func() bool { return n.k.Status().Closed == 1 })
	s := n.k.Status()
	if s.Isolated != 1 || s.Open != 1 || s.Policies != 2 || s.Peers != 1 || s.Identities != 1 {
		t.Errorf("status %+v", s)
	}
	if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "NetworkPolicy shop/odd: spec.ingress[0]") {
		t.Errorf("problems %q", s.Problems)
	}
}

func TestExplainOfKeeper(t *testing.T) {
	n := newNode(t)
	n.enforce(true)
	if _, err := n.k.Explain(Ask{From: "web", To: "web"}, nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	n.change(func() { n.complete, n.state.Policies = true, []*netpol.Policy{fromDB} })
	n.lease(1, "web", "u1", "10.0.0.1")
	n.lease(2, "db", "u2", "10.0.0.2")
	n.report("web", "u1", "web")
	n.report("db", "u2", "db")
	n.waits("both", func() bool { s := n.k.Status(); return s.Isolated == 1 && s.Open == 1 })
	for _, row := range []struct {
		ask  Ask
		want string
	}{
		{Ask{From: "shop/db", To: "web", Port: "80"}, "true TCP 80"},
		{Ask{From: "db", To: "web"}, "true any 0"},
		{Ask{From: "db", To: "web", Protocol: "icmp"}, "true ICMP 0"},
		{Ask{From: "192.0.2.1", To: "web", Protocol: "udp", Port: "53"}, "false UDP 53"},
		{Ask{From: "192.0.2.9", To: "web", Protocol: "udp", Port: "53"}, "true UDP 53"}, // its own node
		{Ask{From: "db", To: "web", Protocol: "udp"}, "needs a port"},
		{Ask{From: "db", To: "web", Port: "0"}, "not within"},
		{Ask{From: "db", To: "web", Port: "65536"}, "not within"},
		{Ask{From: "db", To: "web", Port: "http"}, "no container of shop/web"},
		{Ask{From: "db", To: "web", Protocol: "icmp", Port: "8"}, "no ports"},
		{Ask{From: "db", To: "web", Protocol: "gre"}, `no such protocol: "gre" is none of TCP`},
		{Ask{From: "db", To: "nowhere"}, "no pod nowhere"},
		{Ask{From: "shop/nobody", To: "web"}, "no pod shop/nobody"},
	} {
		n.state.Pods[0].Node = "n1"
		v, err := n.k.Explain(row.ask, map[netip.Addr]string{netip.MustParseAddr("192.0.2.9"): "n1"})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(v[0].Allowed, v[0].Protocol, " ", v[0].Port)
			got = strings.Replace(got, v[0].Protocol, " "+v[0].Protocol, 1)
			got = strings.Join(strings.Fields(got), " ")
		}
		if !strings.Contains(got, row.want) {
			t.Errorf("%+v: %q, want %q", row.ask, got, row.want)
		}
	}
}
