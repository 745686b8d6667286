package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

const clusterFile = `
overlay:
  mode: static
  node: node-1
  nodes:
    - {name: node-1, address: '2001:db8::1', locator: 'fc00:0:1::/48', prefixes: [10.244.1.0/24, 'fd00:1::/64']}
    - {name: node-2, address: '2001:db8::2', locator: 'fc00:0:2::/48', prefixes: [10.244.2.0/24, 'fd00:2::/64']}
`

// underlay is one with a link that the nodes are on.
func underlay() *netdev.Snapshot {
	s := links("eth0", "eth1")
	s.Addresses = []netdev.Address{{Ifindex: 1, Prefix: prefix("2001:db8::1/64")}}
	s.Routes = []netdev.Route{{Table: netdev.TableMain, Prefix: prefix("2001:db8::/64"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Ifindex: 1, Weight: 1}}}}
	for i := 2; i < 10; i++ {
		s.Neighbours = append(s.Neighbours, netdev.Neighbour{Ifindex: 1, Addr: addr(fmt.Sprintf("2001:db8::%d", i)), MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}, State: netdev.NUDReachable})
	}
	return s
}

// routed is the underlay once the kernel has the routes that the agent put.
func (d *daemon) routed() *netdev.Snapshot {
	s := underlay()
	d.kernel.mu.Lock()
	defer d.kernel.mu.Unlock()
	for _, r := range d.kernel.routes {
		s.Routes = append(s.Routes, netdev.Route{Table: netdev.TableMain, Prefix: r.Prefix, Type: netdev.RouteUnicast, Metric: netdev.Metric6, Protocol: netdev.OverlayProtocol,
			Hops: []netdev.Hop{{Gateway: r.Gateway, Ifindex: r.Ifindex, Weight: 1}}})
	}
	if d.kernel.addresses != nil {
		l := link(fakeEntry, netdev.EntryName)
		l.MTU, l.MAC = d.kernel.mtu, slices.Clone(d.kernel.mac[:])
		s.Links = append(s.Links, l)
	}
	return s
}

// kept is what the kernel holds, in few words.
func (h *fakeHost) kept() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for p, r := range h.routes {
		by := fmt.Sprint("dev ", r.Ifindex)
		switch {
		case r.Unreachable:
			by = "unreachable"
		case r.Gateway.IsValid():
			by = "via " + r.Gateway.String()
		}
		if r.Source.IsValid() {
			by += " src " + r.Source.String()
		}
		out = append(out, fmt.Sprintf("%s %s", p, by))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

const clusterRoutes = `10.244.1.0/24 unreachable
10.244.2.0/24 dev 900 src 10.244.1.1
fc00:0:2::/48 via 2001:db8::2
fd00:1::/64 unreachable
fd00:2::/64 dev 900 src fd00:1::1`

// What nobody would answer for is refused by the API, too, and changes nothing.
func TestSIDThatNoUplinkServes(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.holds(t, "the node is a member", func() bool { return len(d.dp.sids) == 3 })
	const crossConnect = "sids: [{sid: 'fd00:9::1/128', behavior: End.X, next_hop: '2001:db8::2', interface: eth0}]\n"
	_, err := d.Add(t.Context(), parse(t, crossConnect))
	if !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), "sids[0].behavior of sid fd00:9::1/128: End.X is not served on the overlay's uplinks") {
		t.Errorf("End.X: %v", err)
	}
	if len(d.dp.sids) != 3 {
		t.Errorf("SIDs %v", d.dp.sids)
	}
	if _, err := d.Add(t.Context(), parse(t, crossConnect+"interfaces: [{name: eth1, roles: [any]}]")); err != nil {
		t.Errorf("End.X for eth1: %v", err)
	}
	if _, err := d.Delete(t.Context(), []desired.Ref{{Kind: desired.KindInterface, Key: "eth1"}}); !errors.Is(err, desired.ErrInvalid) {
		t.Errorf("the interface that it comes in by can be deleted: %v", err)
	}
}

// SIDs of routers on a node's paths are inside as long as a policy has them: pods do not reach
// them.
func TestSIDsOfPoliciesAreInside(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	router := overlay.Member{Prefix: prefix("fc09:f:e::/128"), SIDs: true}
	is := func() bool { return d.dp.members[router] }
	d.holds(t, "it is not inside before there is a policy", func() bool { return len(d.dp.members) > 0 && !is() })
	_, err := d.Add(t.Context(), parse(t, "policies: [{name: core, behavior: H.Encaps.Red, source: '2001:db8::1', segment_lists: [{segments: ['fc09:f:e::', 'fc00:0:2:6::']}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the router's SID is inside", is)
	if _, err := d.Delete(t.Context(), []desired.Ref{{Kind: desired.KindPolicy, Key: "core"}}); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "it is not any more", func() bool { return !is() })
}

func TestMember(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.holds(t, "the other node is reached", func() bool {
		return d.dp.steering["10.244.2.0/24"].Policy == "node-2:ipv4" && d.dp.steering["fd00:2::/64"].Policy == "node-2:ipv6" &&
			d.firstOf("node-2:ipv4") == "fc00:0:2:4::" && d.firstOf("node-2:ipv6") == "fc00:0:2:6::" &&
			d.dp.policies["node-2:ipv6"].Source == addr("2001:db8::1")
	})
	if len(d.dp.sids) != 3 || !d.dp.uplinks[1] || d.dp.uplinks[2] || d.dp.entry != fakeExit {
		t.Errorf("SIDs %v, uplinks %v, entry %d", d.dp.sids, d.dp.uplinks, d.dp.entry)
	}
	if !d.dp.guarded {
		t.Error("what the kernel forwards reaches SIDs")
	}
	for _, m := range []overlay.Member{
		{Prefix: prefix("2001:db8::1/128")}, {Prefix: prefix("2001:db8::2/128")},
		{Prefix: prefix("fc00:0:1::/48"), SIDs: true}, {Prefix: prefix("fc00:0:2::/48"), SIDs: true},
	} {
		if !d.dp.members[m] {
			t.Errorf("%s is not inside the SR domain, but %v", m, d.dp.members)
		}
	}
	if got := d.kernel.kept(); got != clusterRoutes {
		t.Errorf("the kernel's routes:\n%s\nwant\n%s", got, clusterRoutes)
	}
	if want := []netip.Addr{addr("10.244.1.1"), addr("fd00:1::1")}; !slices.Equal(d.kernel.addresses, want) || d.kernel.mtu != 1460 || !slices.Equal(d.kernel.ready, []string{"culvert0", "eth0"}) {
		t.Errorf("entry %v, MTU %d, forwarding %v", d.kernel.addresses, d.kernel.mtu, d.kernel.ready)
	}
	s, err := d.Status()
	if err != nil || s.Overlay == nil || s.Overlay.Mode != "static" || s.Overlay.Self.Name != "node-1" || s.Overlay.Nodes != 1 || s.Overlay.MTU != 1460 ||
		s.Overlay.NetworkPolicy != "not enforced" || len(s.Overlay.Problems) != 0 || !slices.Equal(s.Overlay.Uplinks, []string{"eth0"}) {
		t.Errorf("status %+v, %v", s.Overlay, err)
	}
	d.change(t, d.routed(), "the way is known once the kernel has the routes", func() bool { return d.core.writer.Tables.Verdicts["node-2:ipv4"][0].Valid })
	nodes, err := d.Nodes()
	if err != nil || len(nodes) != 1 || nodes[0].State != "ready" || nodes[0].Origin != "static" || !slices.Equal(nodes[0].Policies, []string{"node-2:ipv4", "node-2:ipv6"}) {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	if c := d.Running(); len(c.Policies)+len(c.Steering)+len(c.SIDs)+len(c.Locators) != 0 || len(c.Overlay.Nodes) != 2 {
		t.Errorf("what follows from the overlay is in the configuration: %+v", c)
	}

	// A third node comes, and goes; then the overlay.
	for _, step := range []struct{ yaml, want, gone string }{
		{clusterFile + "    - {name: node-3, address: '2001:db8::3', locator: 'fc00:0:3::/48', prefixes: [10.244.3.0/24]}\n", "10.244.3.0/24", "none"},
		{clusterFile, "10.244.2.0/24", "10.244.3.0/24"},
		{"log: {level: info}", "", "10.244.2.0/24"},
	} {
		if _, err := d.Apply(t.Context(), parse(t, step.yaml), false); err != nil {
			t.Fatal(err)
		}
		if got := d.kernel.kept(); !strings.Contains(got, step.want) || strings.Contains(got, step.gone) || d.dp.steering[step.want].Policy == "" && step.want != "" {
			t.Errorf("routes:\n%s", got)
		}
	}
	if d.dp.guarded || len(d.dp.policies)+len(d.dp.steering)+len(d.dp.sids)+len(d.dp.uplinks)+d.dp.entry != 0 || d.kernel.addresses != nil || d.kernel.kept() != "" {
		t.Errorf("left behind: %s; %s; %v", d.dp.content(), d.kernel.kept(), d.kernel.addresses)
	}
	if _, err := d.Nodes(); !errors.Is(err, pods.ErrNoCluster) {
		t.Errorf("nodes of no cluster: %v", err)
	}
}

// What somebody configured otherwise goes before what the overlay would make.
func TestMemberByHand(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile+`
policies:
  - {name: scenic, color: 6, endpoint: '2001:db8::2', source: '2001:db8::1', preference: 200, segment_lists: [{segments: ['2001:db8::7', '2001:db8::8', 'fc00:0:2:6::']}]}
steering:
  - {prefix: 10.244.2.0/24, policy: scenic}
`, newFake()).start(t, underlay())
	d.change(t, d.routed(), "the chosen way is taken", func() bool {
		return d.dp.steering["fd00:2::/64"].Policy == "scenic" && d.dp.steering["10.244.2.0/24"].Policy == "scenic" && d.firstOf("scenic") == "2001:db8::7"
	})
	s, err := d.Status()
	if err != nil || len(s.Overlay.Problems) != 1 || !strings.Contains(s.Overlay.Problems[0], "steering 10.244.2.0/24 is configured otherwise") {
		t.Errorf("problems %q, %v", s.Overlay.Problems, err)
	}
	if s.Overlay.MTU != 1460-8-2*16 {
		t.Errorf("MTU %d with three segments, of which two are in the header", s.Overlay.MTU)
	}
	paths, err := d.CandidatePaths()
	if err != nil || len(paths) != 1 || paths[0].Policy != "scenic" || paths[0].Origin != desired.OriginOverlay || paths[0].Verdict.Active {
		t.Errorf("candidate paths %+v, %v", paths, err)
	}
}

// A node that lacks something is a member once it is there, and stays one when
// it is gone for a moment.
func TestMemberLater(t *testing.T) {
	yaml := strings.ReplaceAll(clusterFile, "node: node-1\n", "node: node-1\n  uplinks: [eth0]\n  locator: 'fc00:0:1::/48'\n  pod_prefixes: [10.244.1.0/24]\n")
	yaml = strings.Replace(yaml, "    - {name: node-1, address: '2001:db8::1', locator: 'fc00:0:1::/48', prefixes: [10.244.1.0/24, 'fd00:1::/64']}\n", "", 1)
	bare := underlay()
	bare.Addresses = nil
	d := prepare(t, t.TempDir(), yaml, newFake()).start(t, bare)
	if s, err := d.Status(); err != nil || !strings.Contains(s.Overlay.Problem, "it lacks an IPv6 address of an uplink") {
		t.Errorf("status %+v, %v", s.Overlay, err)
	}
	if r, err := d.PodReadiness(); err != nil || r.Ready || !strings.Contains(r.Reason, "it lacks an IPv6 address") {
		t.Errorf("pods: %+v, %v", r, err)
	}
	d.change(t, underlay(), "it has an address", func() bool { return d.dp.steering["10.244.2.0/24"].Policy != "" })
	if r, err := d.PodReadiness(); err != nil || !r.Ready {
		t.Errorf("pods: %+v, %v", r, err)
	}
	d.change(t, bare, "the snapshot came", func() bool { return len(d.core.links.Addresses) == 0 })
	if d.dp.steering["10.244.2.0/24"].Policy == "" {
		t.Error("an address that is gone for a moment ended the membership")
	}
}

// What the kernel would not take is tried again.
func TestMemberTriesAgain(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake())
	refused := errors.New("no buffer space")
	d.kernel.failOn = func(call string) error {
		if call == "route 10.244.2.0/24" {
			return refused
		}
		return nil
	}
	d.start(t, underlay())
	if got := d.kernel.kept(); strings.Contains(got, "10.244.2.0/24") || !strings.Contains(got, "fd00:2::/64") {
		t.Errorf("routes:\n%s", got)
	}
	d.kernel.mu.Lock()
	d.kernel.failOn = nil
	d.kernel.mu.Unlock()
	d.core.retry()
	if got := d.kernel.kept(); got != clusterRoutes {
		t.Errorf("routes:\n%s", got)
	}
}

const kubeFile = `
overlay:
  mode: kube
  node: node-1
  uplinks: [eth0]
  locator_pool: 'fc00::/32'
  kube: {kubeconfig: /nowhere}
`

// byKube is an agent that observes the cluster through the test alone.
func byKube(t *testing.T, dir string, dp *fakeDataPath) (*daemon, *observed.Kubernetes) {
	t.Helper()
	d := prepare(t, dir, strings.ReplaceAll(kubeFile, "/nowhere", kubeconfig(t)), dp).start(t, underlay())
	return d, d.sources.Kubernetes()
}

func nodeOf(i int) overlay.Node {
	return overlay.Complete(overlay.Node{Name: fmt.Sprintf("node-%d", i), Address: addr(fmt.Sprintf("2001:db8::%d", i)),
		Locator: prefix(fmt.Sprintf("fc00:0:%d::/48", i)), Prefixes: []netip.Prefix{prefix(fmt.Sprintf("10.244.%d.0/24", i))}}, false)
}

// Why a node is no member, where that is the API server's silence.
func TestKubernetesDoesNotAnswer(t *testing.T) {
	d, _ := byKube(t, t.TempDir(), newFake())
	d.holds(t, "the request failed", func() bool { return strings.Contains(d.sources.Problem(), "refused") })
	want := regexp.MustCompile(`^the Kubernetes API does not answer: .*connection refused.*; this node is no member of its cluster yet: it lacks prefixes for pods`)
	if s, err := d.Status(); err != nil || !want.MatchString(s.Overlay.Problem) {
		t.Errorf("%+v, %v", s.Overlay, err)
	}
	if r, err := d.PodReadiness(); err != nil || r.Ready || !want.MatchString(r.Reason) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestToldByKubernetes(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d, k := byKube(t, dir, dp)
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	k.PutNode(nodeOf(2))
	d.holds(t, "a node came", func() bool { return dp.steering["10.244.2.0/24"].Policy == "node-2:ipv4" })

	thief := nodeOf(3)
	thief.Prefixes = nodeOf(2).Prefixes
	k.PutNode(thief)
	d.holds(t, "its prefix stays its own", func() bool {
		return len(d.core.goal.Wanted.Peers) == 2 && dp.steering["10.244.2.0/24"].Policy == "node-2:ipv4"
	})
	nodes, err := d.Nodes()
	if err != nil || len(nodes) != 2 || nodes[0].Origin != "kube" || !slices.Equal(nodes[1].Problems, []string{"prefix 10.244.2.0/24 is already claimed by node-2"}) {
		t.Errorf("nodes %+v, %v", nodes, err)
	}

	path := kube.Path{Name: "srv6-policies-node-1/scenic", Origin: "configmap srv6-policies-node-1", Advertised: srpolicy.Advertised{
		Color: overlay.ColorIPv4, Endpoint: addr("2001:db8::2"), Preference: 200,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{addr("2001:db8::7"), addr("fc00:0:2:4::")}}}}}
	k.PutPath(path)
	d.holds(t, "a path came", func() bool { return d.firstOf("node-2:ipv4") == "2001:db8::7" })
	if v := d.kubeVerdicts(); len(v) != 1 || v[0].Path != path.Name || !v[0].Active {
		t.Errorf("verdicts %+v", v)
	}

	// Nothing of it goes with a restart, which the API server is not asked for.
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.log()
	d, k = byKube(t, dir, dp)
	if dp.steering["10.244.2.0/24"].Policy != "node-2:ipv4" || d.firstOf("node-2:ipv4") != "2001:db8::7" {
		t.Errorf("after the restart: %s", dp.content())
	}
	for _, call := range dp.log() {
		if strings.HasPrefix(call, "delete") {
			t.Errorf("the restart made a call %q", call)
		}
	}
	k.WithdrawPath(path.Name)
	d.holds(t, "the path is gone", func() bool { return d.firstOf("node-2:ipv4") == "fc00:0:2:4::" })
	k.DeleteNode("node-2")
	d.holds(t, "the other one's claim stands now", func() bool { return dp.steering["10.244.2.0/24"].Policy == "node-3:ipv4" })
	k.SetLocalSIDs(kube.LocalSIDs{DT4: addr("fcdd::44")})
	d.holds(t, "a SID that somebody chose", func() bool { _, there := dp.sids[prefix("fcdd::44/128")]; return there })
	bad := nodeOf(4)
	bad.IPv4 = []netip.Addr{addr("ff02::1")}
	k.PutNode(bad)
	k.PutNode(nodeOf(5))
	d.holds(t, "an update that is refused does not hold up the others", func() bool { return dp.steering["10.244.5.0/24"].Policy == "node-5:ipv4" })
	if _, there := dp.policies["node-4:ipv4"]; there {
		t.Error("a node with a SID that is none was taken")
	}
}

// What will be too long for a path is answered before packets take the path.
func TestMTUBeforeALongerPath(t *testing.T) {
	d, k := byKube(t, t.TempDir(), newFake())
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	k.PutNode(nodeOf(2))
	d.holds(t, "a node came", func() bool { return d.dp.steering["10.244.2.0/24"].Policy == "node-2:ipv4" })
	d.change(t, d.routed(), "the way is known", func() bool {
		return d.core.writer.Tables.Verdicts["node-2:ipv4"][0].Valid && d.core.overlay.MTU() == 1460
	})
	var at []int // the MTU when the policy changed
	d.dp.mu.Lock()
	d.dp.failOn = func(call string) error {
		if strings.HasPrefix(call, "policy node-2:ipv4") {
			d.kernel.mu.Lock()
			defer d.kernel.mu.Unlock()
			at = append(at, d.kernel.mtu)
		}
		return nil
	}
	d.dp.mu.Unlock()
	k.PutPath(kube.Path{Name: "x", Origin: "configmap x", Advertised: srpolicy.Advertised{Color: 4, Endpoint: addr("2001:db8::2"), Preference: 200,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{addr("2001:db8::7"), addr("2001:db8::8"), addr("fc00:0:2:4::")}}}}})
	d.holds(t, "a longer path is taken", func() bool { return d.firstOf("node-2:ipv4") == "2001:db8::7" && d.core.overlay.MTU() == 1420 })
	k.WithdrawPath("x")
	d.holds(t, "and the shorter one", func() bool { return d.firstOf("node-2:ipv4") == "fc00:0:2:4::" && d.core.overlay.MTU() == 1460 })
	d.dp.mu.Lock()
	defer d.dp.mu.Unlock()
	if !slices.Equal(at, []int{1420, 1420}) {
		t.Errorf("the MTU was %v when the paths changed: want the smaller one", at)
	}
}

// A change of the network that makes another path active is reported at once to
// the source of the paths.
func TestVerdictsAfterTheNetwork(t *testing.T) {
	d, _ := byKube(t, t.TempDir(), newFake())
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	select { // what the start left, which nobody takes any more
	case <-d.core.adjust:
	default:
	}
	d.core.update(underlay())
	if len(d.core.adjust) == 0 {
		t.Error("the control planes are not adjusted")
	}
}

// A thousand nodes, and a path that changes: it is in the tables in a moment.
func TestAThousandNodes(t *testing.T) {
	d, k := byKube(t, t.TempDir(), newFake())
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.0.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	for i := 2; i < 1002; i++ {
		k.PutNode(overlay.Complete(overlay.Node{Name: fmt.Sprintf("node-%d", i), Address: addr(fmt.Sprintf("2001:db8::%x", i)),
			Locator:  prefix(fmt.Sprintf("fc00:0:%x::/48", i)),
			Prefixes: []netip.Prefix{prefix(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)), prefix(fmt.Sprintf("fd00:%x::/64", i))}}, false))
	}
	d.holds(t, "all are there", func() bool { return len(d.dp.steering) == 3000 }) // pods of both families, and the node
	d.change(t, d.routed(), "the ways are known", func() bool { return d.core.writer.Tables.Verdicts["node-1001:ipv6"][0].Valid })
	var slowest time.Duration
	for i := range 20 {
		first := addr(fmt.Sprintf("2001:db8::f%03d", i))
		begun := time.Now()
		k.PutPath(kube.Path{Name: "x", Origin: "configmap x", Advertised: srpolicy.Advertised{Color: 4, Endpoint: addr("2001:db8::77"), Preference: 200,
			SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{first, addr("fc00:0:77:4::")}}}}})
		d.holds(t, "the path is taken", func() bool { return d.firstOf("node-119:ipv4") == first.String() })
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("slowest change: %s", slowest)
	if slowest > 2*time.Second { // on a machine that does other things, too
		t.Errorf("a change took %s", slowest)
	}
}

// kubeVerdicts are those on the paths of Kubernetes.
func (d *daemon) kubeVerdicts() []kube.Verdict {
	d.core.mu.RLock()
	defer d.core.mu.RUnlock()
	return d.core.goal.Observed.Verdicts(d.core.writer.Tables.Verdicts, d.core.refused, nil)
}

// bgp is a speaker that the test feeds with updates.
func (d *daemon) bgp(t *testing.T) *observed.BGP {
	t.Helper()
	h, err := observed.NewBGP(observed.Config{}, &observed.State{}, d.core.queue, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// kubeconfig is one of an API server that nobody runs.
func kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	const text = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const byBGPFile = `
overlay:
  mode: bgp
  node: node-1
  address: '2001:db8::1'
  uplinks: [eth0]
  locator: 'fc00:0:1::/48'
  pod_prefixes: [10.244.1.0/24]
bgp:
  asn: 65001
  router_id: 10.0.0.5
  listen: [127.95.0.15]
  port: 1180
  peers: [{address: 127.95.0.19, asn: 65001, passive: true, source: 127.95.0.15}]
`

// The mode changes while the daemon runs: BGP begins to be spoken, nodes come by
// it, and both end with it.
func TestModesComeAndGo(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	if _, err := d.BGPPeers(); !errors.Is(err, ErrNotBGP) {
		t.Errorf("peers of a node that speaks no BGP: %v", err)
	}
	other, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: addr("10.0.0.19"), Log: slog.New(slog.DiscardHandler),
		Cluster: &bgp.Cluster{Handler: deaf{}},
		Peers:   []bgp.Peer{{Address: addr("127.95.0.15"), Port: 1180, ASN: 65001, Local: addr("127.95.0.19")}}}, deaf{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Stop)
	d.dp.log()
	if _, err := d.Apply(t.Context(), parse(t, byBGPFile), false); err != nil {
		t.Fatal(err)
	}
	n := nodeOf(2)
	n.Prefixes = append(n.Prefixes, prefix("fd00:2::/64"))
	if err := other.SetNode(overlay.Complete(n, false)); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "a node came by BGP", func() bool {
		return d.dp.steering["10.244.2.0/24"].Policy == "c4:2001:db8::2" && d.firstOf("c4:2001:db8::2") == "fc00:0:2:4::"
	})
	for _, call := range d.dp.log() {
		if strings.HasPrefix(call, "delete steering") {
			t.Errorf("what leads to the other node's pods went for a moment: %s", call)
		}
	}
	if got := d.kernel.kept(); !strings.Contains(got, "fc00:0:2:4::/128 via 2001:db8::2") {
		t.Errorf("the kernel's routes:\n%s", got)
	}
	nodes, err := d.Nodes()
	if err != nil || len(nodes) != 1 || nodes[0].Origin != "bgp" || !slices.Equal(nodes[0].Policies, []string{"c4:2001:db8::2", "c6:2001:db8::2"}) {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
	rival := nodeOf(2)
	rival.Prefixes = append(rival.Prefixes, prefix("10.244.1.0/24"))
	if err := other.SetNode(rival); err != nil {
		t.Fatal(err)
	}
	const claimed = "prefix 10.244.1.0/24 is used as that of this node, which claims it too: the prefix is of this node"
	d.holds(t, "another node claims this one's prefix", func() bool {
		return len(d.core.goal.Wanted.Peers) == 1 && slices.Contains(d.core.goal.Wanted.Peers[0].Problems, claimed) &&
			slices.Contains(d.core.overlayStatus("").Problems, "node-2: "+claimed)
	})
	if _, err := d.Apply(t.Context(), parse(t, clusterFile), false); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the file's nodes are back, and BGP's are gone", func() bool {
		_, there := d.dp.policies["c4:2001:db8::2"]
		return !there && d.dp.steering["10.244.2.0/24"].Policy == "node-2:ipv4" && d.sources.BGP() == nil
	})
}

// A node whose prefixes and locator are configured asks nothing of Kubernetes.
func TestBGPWithoutKubernetes(t *testing.T) {
	d := prepare(t, t.TempDir(), byBGPFile, newFake()).start(t, underlay())
	if d.sources.Kubernetes() != nil || d.sources.BGP() == nil {
		t.Errorf("Kubernetes %v, BGP %v", d.sources.Kubernetes(), d.sources.BGP())
	}
}

// Nodes that another control plane reported stay until the present one has reported
// them, or their time is over.
func TestFormerNodes(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	if _, err := d.Apply(t.Context(), parse(t, byBGPFile), false); err != nil {
		t.Fatal(err)
	}
	there := func() bool { return d.dp.steering["10.244.2.0/24"].Policy != "" }
	if !there() {
		t.Fatal("nobody has reported the other node yet, and it is gone")
	}
	p := prefix("10.244.2.0/24")
	d.bgp(t).PutReach(overlay.Destination{Prefix: p}, []bgp.Route{{Reach: overlay.Reach{Prefix: p, Address: addr("2001:db8::2")}, Best: true}})
	d.holds(t, "the prefix is observed", func() bool { return len(d.core.goal.Observed.Reaches) == 1 })
	if !there() || len(d.core.goal.Observed.Remaining()) != 1 {
		t.Error("no path is observed yet")
	}
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.DropReach(overlay.Destination{Prefix: p}); s.Former = nil }}) // its time is over
	d.holds(t, "it is gone", func() bool { return !there() })
}

// What pods send to any address of a node is not masqueraded.
func TestMasqueradeKnowsNodes(t *testing.T) {
	yaml := strings.Replace(clusterFile, "address: '2001:db8::2',", "address: '2001:db8::2', addresses: [192.0.2.2],", 1)
	d := prepare(t, t.TempDir(), strings.Replace(yaml, "mode: static\n", "mode: static\n  masquerade: true\n", 1), newFake()).start(t, underlay())
	for _, want := range []string{"192.0.2.2/32", "2001:db8::2/128", "10.244.2.0/24", "2001:db8::1/128"} {
		if !slices.Contains(d.kernel.masked[1], prefix(want)) {
			t.Errorf("%s is not among %s", want, d.kernel.masked[1])
		}
	}
	links := underlay()
	self := plan.SelfOf(&parse(t, strings.ReplaceAll(kubeFile, "/nowhere", "/x")).Overlay, observed.Self{Self: kube.Self{
		PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}}}, links, netip.Addr{})
	if !slices.Equal(self.Node().Addresses, []netip.Addr{addr("192.0.2.1")}) {
		t.Errorf("this node announces %s", self.Node().Addresses)
	}
}

// deaf is a node that ignores all updates.
type deaf struct{}

func (deaf) Put(bgp.Path)                              {}
func (deaf) Withdraw(srpolicy.Advertised)              {}
func (deaf) Complete(netip.Addr)                       {}
func (deaf) Speaks(netip.Addr, []string)               {}
func (deaf) PutReach(overlay.Destination, []bgp.Route) {}
func (deaf) WithdrawReach(overlay.Destination)         {}
