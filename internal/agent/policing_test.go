package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

// policedMember is a node whose API server answered once, and is away.
func policedMember(t *testing.T, dir string, dp *fakeDataPath) *daemon {
	t.Helper()
	d := prepare(t, dir, strings.ReplaceAll(kubeFile, "/nowhere", kubeconfig(t)), dp)
	d.policing.patience = 50 * time.Millisecond
	s := underlay()
	s.Links = append(s.Links, podLinks(1).Links...)
	d.start(t, s)
	d.sources.Kubernetes().SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	d.holds(t, "it is a member", func() bool { return d.core.goal.Self.Name != "" })
	return d
}

// Pods are put after the data path knows that new ones are closed, and an ADD goes on though
// the API server is away.
func TestPodsWithoutAPIAreClosed(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := policedMember(t, dir, dp)
	mustAdd(t, d, 0)
	calls := dp.log()
	if enforce, put := slices.Index(calls, "enforce true"), slices.Index(calls, "pod 2"); enforce < 0 || put < enforce {
		t.Errorf("calls %q", calls)
	}
	if slices.Contains(calls, "isolate") {
		t.Errorf("NetworkPolicies were applied, which nobody knows: %q", calls)
	}
	s, err := d.Status()
	if err != nil || s.Overlay.NetworkPolicy != "enforced as before a restart" || !slices.ContainsFunc(s.Overlay.Problems, func(p string) bool { return strings.Contains(p, "has not sent all") }) {
		t.Errorf("status %+v, %v", s.Overlay, err)
	}
	usesIPVS := func() bool {
		s, err := d.Status()
		return err == nil && slices.ContainsFunc(s.Overlay.Problems, func(p string) bool { return strings.Contains(p, "kube-proxy uses IPVS") })
	}
	if usesIPVS() {
		t.Error("kube-proxy uses IPVS")
	}
	links := underlay()
	links.Links = append(links.Links, link(70, netdev.IPVSName))
	d.core.mu.Lock()
	d.core.links = links
	d.core.mu.Unlock()
	if !usesIPVS() {
		t.Error("nobody hears that what IPVS translates passes no policy")
	}
	if _, err := d.PodTraffic().ExplainPolicy(isolation.Ask{From: "a", To: "b"}); !errors.Is(err, isolation.ErrUnknown) {
		t.Errorf("explained: %v", err)
	}
	own := d.core.pods.List()[0]
	dp.policed = map[int]pod.PolicyCounts{own.HostIfindex: {IngressDropped: 3, EgressFlows: 2}, 99: {IngressDropped: 7}}
	got := scraped(t, d.Agent)
	for _, want := range []string{
		"culvert_network_policy_applied_timestamp_seconds 0\n",
		fmt.Sprintf("culvert_network_policy_dropped_packets_total{direction=\"ingress\",namespace=%q,pod=%q} 3\n", own.Namespace, own.Name),
		fmt.Sprintf("culvert_network_policy_flows_total{direction=\"egress\",namespace=%q,pod=%q} 2\n", own.Namespace, own.Name),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no metric %s", want)
		}
	}
	if n := strings.Count(got, "culvert_network_policy_dropped_packets_total{"); n != 2 {
		t.Errorf("%d metrics of dropped packets, want two of one pod", n)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.log()
	d = policedMember(t, dir, dp)
	calls = dp.log()
	if enforce, put := slices.Index(calls, "enforce true"), slices.Index(calls, "pod 2"); enforce < 0 || put < enforce {
		t.Errorf("after the restart: %q", calls)
	}
	if err := d.DeletePod(first(nthPod(0))); err != nil {
		t.Error(err)
	}
}

func first[A, B any](a A, _ B) A { return a }

// A node that does not ask Kubernetes isolates nobody, not even whom an earlier one did.
func TestPoliciesOff(t *testing.T) {
	dp := newFake()
	dp.enforced = true
	d := startMember(t, t.TempDir(), dp, 1)
	mustAdd(t, d, 0)
	if dp.enforced || slices.Contains(dp.log(), "isolate") {
		t.Error("NetworkPolicies are enforced")
	}
	if _, err := d.PodTraffic().ExplainPolicy(isolation.Ask{From: "a", To: "b"}); !errors.Is(err, isolation.ErrOff) {
		t.Errorf("explained: %v", err)
	}
	if s, err := d.Status(); err != nil || s.Overlay.NetworkPolicy != "not enforced" {
		t.Errorf("status %+v, %v", s.Overlay, err)
	}
	if strings.Contains(scraped(t, d.Agent), "culvert_network_policy") {
		t.Error("there are metrics of NetworkPolicies")
	}
}

// A node sends to other nodes' pods from the first address of its prefix: verdicts know it, and say
// it where somebody asks about the node's InternalIP.
func TestSendersOfNodes(t *testing.T) {
	nodes := nodeNames{names: map[netip.Addr]string{}, senders: map[string][]netip.Addr{}}
	two := overlay.Node{Name: "node-2", Address: addr("2001:db8::2"), Addresses: []netip.Addr{addr("192.0.2.2")}, Prefixes: []netip.Prefix{prefix("10.244.2.0/24"), prefix("fd00:2::/64")}}
	nodes.add(two, true)
	nodes.add(overlay.Node{Name: "thief", Address: addr("2001:db8::9"), Prefixes: []netip.Prefix{prefix("10.244.9.0/24")}}, false)
	pod := func(name, node, address string) *netpol.Pod {
		return &netpol.Pod{Namespace: "shop", Name: name, Node: node, Addresses: []netpol.Address{{Addr: addr(address)}}}
	}
	policy := netpol.NewPolicy("shop", "db", []byte(`{"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "192.0.2.2/32"}}]}]}`))
	s := netpol.State{Policies: []*netpol.Policy{policy}, Pods: []*netpol.Pod{pod("db", "node-1", "10.244.1.5"), pod("near", "node-2", "10.244.2.5")}, Nodes: nodes.names}
	const hint = "; but node node-2 sends to pods of other nodes from 10.244.2.1: ask about that address"
	for _, row := range []struct {
		from, to, node string
		allowed, hint  bool
	}{
		{"192.0.2.2", "shop/db", "node-2", true, true},
		{"10.244.2.1", "shop/db", "node-2", false, false},
		{"192.0.2.2", "shop/near", "node-2", true, false}, // its own node
		{"10.244.2.1", "shop/near", "node-2", true, false},
		{"10.244.9.1", "shop/db", "", false, false}, // of a node that is not used
		{"192.0.2.7", "shop/db", "", false, false},
	} {
		v, err := isolation.Explain(&s, isolation.Ask{From: row.from, To: row.to})
		if err != nil {
			t.Fatal(err)
		}
		nodes.hint(v)
		if len(v) != 1 || v[0].From.Node != row.node || v[0].Allowed != row.allowed || strings.HasSuffix(v[0].Ingress.Why, hint) != row.hint {
			t.Errorf("%s to %s: %+v", row.from, row.to, v)
		}
	}
}
