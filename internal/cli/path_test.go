package cli

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// cluster is what a node knows of itself and of two others.
func cluster() known {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	node2 := overlay.Complete(overlay.Node{Name: "node-2", Address: addr("2001:db8::2"), Locator: prefix("fc00:0:2::/48"),
		Prefixes: []netip.Prefix{prefix("10.244.2.0/24"), prefix("fd00:10:244:2::/64")}}, false)
	return known{
		pods: []pods.Status{
			{Pod: pods.Pod{Namespace: "default", Name: "a"}, Addresses: []netip.Addr{addr("10.244.1.2"), addr("fd00:10:244:1::2")}},
			{Pod: pods.Pod{Namespace: "default", Name: "b"}, Addresses: []netip.Addr{addr("10.244.1.3")}},
		},
		nodes: []agent.NodeStatus{{Node: node2}},
		steering: []agent.SteeringStatus{
			{Steering: srpolicy.Steering{Prefix: prefix("10.0.0.0/8"), Policy: "wide"}},
			{Steering: srpolicy.Steering{Prefix: prefix("10.244.2.0/24"), Policy: "narrow"}},
		},
		policies: []agent.PolicyStatus{{
			Policy: srpolicy.Policy{Name: "narrow", SegmentLists: []srpolicy.SegmentList{
				{Weight: 3, Segments: []netip.Addr{addr("fc00:0:f:e::"), addr("fc00:0:2:4::")}}, {Weight: 1, Segments: []netip.Addr{addr("fc00:0:2:4::")}}}},
			Lists: []agent.Counter{{Packets: 30}, {Packets: 10}},
			Paths: []srpolicy.Verdict{{Path: "told", Preference: 200, Active: true, Why: "preference 200"}, {Preference: 100}},
		}},
		adjacencies: []agent.AdjacencyStatus{{Key: "fc00:0:f:e::", Interface: "eth0"}},
	}
}

// A tenant's pods meet the tenant's own, and others nothing of it.
func TestPathOfTenant(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	c := cluster()
	c.pods = append(c.pods, pods.Status{Pod: pods.Pod{Namespace: "default", Name: "a", Tenant: "red"}, TenantID: 7, Addresses: []netip.Addr{addr("10.244.1.2")}})
	c.steering = append(c.steering, agent.SteeringStatus{Steering: srpolicy.Steering{Prefix: prefix("10.244.2.0/25"), Tenant: 7, Policy: "narrow"}})
	for _, tt := range []struct{ tenant, to, way, prefix string }{
		{"", "10.244.2.9", "policy", "10.244.2.0/24"},
		{"red", "10.244.2.9", "policy", "10.244.2.0/25"},
		{"red", "10.244.2.200", "drop", "invalid Prefix"},
		{"", "192.0.2.1", "kernel", "invalid Prefix"},
		{"red", "10.244.1.3", "drop", "invalid Prefix"}, // a pod of the cluster's
		{"", "10.244.1.3", "pod", "invalid Prefix"},
	} {
		k, err := c.of(tt.tenant)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.between("default/a", tt.to)
		if err != nil || len(got) != 1 || got[0].Way != tt.way || got[0].Prefix.String() != tt.prefix {
			t.Errorf("%q to %s: %+v, %v, want %s by %s", tt.tenant, tt.to, got, err, tt.way, tt.prefix)
		}
	}
	if _, err := c.of("blue"); err == nil || !strings.Contains(err.Error(), "see culvert pod") {
		t.Errorf("a tenant without pods: %v", err)
	}
}

// Packets of a list that is down go to the others.
func TestPathOfPolicyWithAListDown(t *testing.T) {
	c := cluster()
	c.policies[0].Down = []string{"no route to fc00:0:f:e::", ""}
	got, err := c.between("default/a", "10.244.2.9")
	if err != nil {
		t.Fatal(err)
	}
	if l := got[0].Lists; l[0].Share != 0 || l[0].Down == "" || l[1].Share != 100 || l[1].Down != "" {
		t.Errorf("%+v", l)
	}
}

// So do those of a list that is slow, which is shown with its round trip.
func TestPathOfPolicyWithASlowList(t *testing.T) {
	c := cluster()
	p := &c.policies[0]
	p.Slow, p.Delays = []string{"its round trip is above delay_bound 15ms", ""}, []agent.Delay{{Mean: 21000}, {Mean: 4000}}
	p.Protection = []agent.ProtectionList{{SegmentList: p.SegmentLists[1], Slow: "another list has a lower delay"}}
	got, err := c.between("default/a", "10.244.2.9")
	if err != nil {
		t.Fatal(err)
	}
	l := got[0].Lists
	if l[0].Share != 0 || l[0].Down != "" || l[0].Slow == "" || l[1].Share != 100 || l[1].Slow != "" || !l[2].Protects || l[2].Slow == "" {
		t.Errorf("%+v", l)
	}
	var out strings.Builder
	if err := printer.WriteTable(&out, func(g *printer.Grid) { pathRows(g, got) }); err != nil || strings.Count(out.String(), "not in use: ") != 2 {
		t.Errorf("%v: %s", err, &out)
	}
	const want = "3: fc00:0:f:e::,fc00:0:2:4:: (not in use: its round trip is above delay_bound 15ms; 21ms there and back); " +
		"1: fc00:0:2:4:: (4ms there and back); protection 1: fc00:0:2:4:: (not in use: another list has a lower delay)"
	if text := listStates(*p); text != want {
		t.Errorf("%s, want\n%s", text, want)
	}
}

func TestPathOfPolicy(t *testing.T) {
	addr := netip.MustParseAddr
	got, err := cluster().between("default/a", "10.244.2.9")
	if err != nil {
		t.Fatal(err)
	}
	dt4 := pathStep{SID: addr("fc00:0:2:4::"), Node: "node-2", Does: "End.DT4"}
	want := []podPath{{
		From: addr("10.244.1.2"), To: addr("10.244.2.9"), Way: "policy", Prefix: netip.MustParsePrefix("10.244.2.0/24"), Policy: "narrow",
		Path: "told", Preference: 200, Why: "preference 200",
		Lists: []pathList{
			{Share: 75, Packets: 30, Interface: "eth0", Segments: []pathStep{{SID: addr("fc00:0:f:e::")}, dt4}},
			{Share: 25, Packets: 10, Segments: []pathStep{dt4}},
		},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// A node that BGP told of is known by its address only: where a list ends is where
// its policy does.
func TestPathEndsAtTheEndpoint(t *testing.T) {
	k := cluster()
	k.nodes = []agent.NodeStatus{{Node: overlay.Node{Address: netip.MustParseAddr("2001:db8::2")}}}
	k.policies[0].Endpoint = k.nodes[0].Address
	got, err := k.between("default/a", "10.244.2.9")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range got[0].Lists {
		if end := l.Segments[len(l.Segments)-1]; end.Node != "2001:db8::2" {
			t.Errorf("the last segment is %+v", end)
		}
	}
	if first := got[0].Lists[0].Segments[0]; first.Node != "" {
		t.Errorf("the first segment is %+v", first)
	}
}

// A list that ends where its packets are not taken is shown to.
func TestPathEndsWrong(t *testing.T) {
	for last, want := range map[string]string{
		"fc00:0:2:4::":  "fc00:0:2:4:: End.DT4 of node-2",
		"fc00:0:2:6::":  "fc00:0:2:6:: End.DT6 of node-2: it takes no IPv4",
		"fc00:0:2:1::":  "fc00:0:2:1:: End of node-2: it takes no IPv4",
		"fc00:0:2:d6::": "fc00:0:2:d6:: of node-2: it reports no such SID",
		"fc00:0:9::":    "fc00:0:9::",
	} {
		k := cluster()
		k.policies[0].SegmentLists = []srpolicy.SegmentList{{Segments: []netip.Addr{netip.MustParseAddr(last)}}}
		got, err := k.between("default/a", "10.244.2.9")
		if err != nil {
			t.Fatal(err)
		}
		if text := got[0].Lists[0].Segments[0].String(); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

func TestPathWithoutPolicy(t *testing.T) {
	for to, way := range map[string]string{"default/b": "pod", "192.0.2.1": "kernel", "fd00:10:244:1::2": "pod", "2001:db8::9": "kernel"} {
		got, err := cluster().between("default/a", to)
		if err != nil || len(got) != 1 || got[0].Way != way {
			t.Errorf("%s: %+v, %v: want %s", to, got, err, way)
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"default/c", "192.0.2.1", "neither an address nor a pod"},
		{"default/b", "2001:db8::9", "no address family"},
		{"10.244.2.9", "10.244.1.2", "is not a pod of this node"},
	} {
		if _, err := cluster().between(c.from, c.to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %s", c.from, c.to, err, c.want)
		}
	}
}

// Packets take the policy of their class where one is valid; what is shown says which, and
// why not.
func TestPathOfClass(t *testing.T) {
	end := netip.MustParseAddr("2001:db8::2")
	k := cluster()
	k.interfaces = []agent.InterfaceStatus{{Interface: config.Interface{Name: "eth1"}}}
	k.policies[0].Endpoint = end
	fast := k.policies[0]
	fast.Name, fast.Color, fast.Paths = "fast", 100, []srpolicy.Verdict{{Active: true, Valid: true}}
	k.policies = append(k.policies, fast)
	k.steering = append(k.steering, agent.SteeringStatus{Steering: srpolicy.Steering{Prefix: netip.MustParsePrefix("10.244.0.0/16"), Interface: "eth1", Policy: "fast"}})
	k.classes = []agent.ClassStatus{
		{Class: class.Class{Name: "voice", Color: 100, Priority: 1, Match: class.Match{DSCP: []uint16{46}, Namespaces: []string{"default"}}}},
		{Class: class.Class{Name: "sealed", Color: 200, Strict: true, Match: class.Match{DSCP: []uint16{10}}}},
		{Class: class.Class{Name: "own", Color: 100, Priority: -1, Match: class.Match{Host: true}}},
		{Class: class.Class{Name: "bulk", Color: 300, Match: class.Match{DSCP: []uint16{8}}}},
		{Class: class.Class{Name: "web", Color: 100, Match: class.Match{DSCP: []uint16{34}, PodLabels: map[string]string{"app": "web"}}}},
	}
	k.pods[0].Labels = map[string]string{"app": "web", "tier": "front"}
	k.pods[1].Labels = map[string]string{"app": "db"}
	for _, tt := range []struct {
		from     string
		dscp     uint8
		want     podPath
		policies int
	}{
		{"default/a", 0, podPath{Way: "policy", Policy: "narrow"}, 2},
		{"default/a", 46, podPath{Way: "policy", Policy: "fast", Class: "voice", Color: 100}, 2},
		{"default/a", 10, podPath{Way: "drop", Class: "sealed", Color: 200, Fallback: true}, 0},
		{"default/a", 8, podPath{Way: "policy", Policy: "narrow", Class: "bulk", Color: 300, Fallback: true}, 2},
		{"default/a", 34, podPath{Way: "policy", Policy: "fast", Class: "web", Color: 100}, 2},
		{"default/b", 34, podPath{Way: "policy", Policy: "narrow"}, 2},
		{"host", 0, podPath{Way: "policy", Policy: "fast", Class: "own", Color: 100}, 2},
		{"host", 46, podPath{Way: "policy", Policy: "fast", Class: "own", Color: 100}, 2},
		{"host", 10, podPath{Way: "drop", Class: "sealed", Color: 200, Fallback: true}, 0},
		{"eth1", 46, podPath{Way: "policy", Policy: "fast"}, 2}, // its own table, and no pod
	} {
		k.packets.dscp = tt.dscp
		got, err := k.between(tt.from, "10.244.2.9")
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		p := got[0]
		if p.Way != tt.want.Way || p.Policy != tt.want.Policy || p.Class != tt.want.Class || p.Color != tt.want.Color || p.Fallback != tt.want.Fallback || len(p.Lists) != tt.policies {
			t.Errorf("%s, DSCP %d: %+v", tt.from, tt.dscp, p)
		}
		var out strings.Builder
		if err := printer.WriteTable(&out, func(g *printer.Grid) { pathRows(g, got) }); err != nil || !strings.Contains(out.String(), tt.want.Class) {
			t.Errorf("%s, DSCP %d prints %s", tt.from, tt.dscp, out.String())
		}
	}
}

// Packets that would be lost where the policy of their class ends take best effort, and the reason is
// shown.
func TestPathWhereClassIsLost(t *testing.T) {
	k := cluster()
	k.policies[0].Endpoint = netip.MustParseAddr("2001:db8::2")
	fast := k.policies[0]
	fast.Name, fast.Color, fast.Paths = "fast", 100, []srpolicy.Verdict{{Active: true, Valid: true}}
	fast.Protection = []agent.ProtectionList{{SegmentList: srpolicy.SegmentList{Segments: []netip.Addr{netip.MustParseAddr("fc00:0:2:6::")}}}}
	k.policies = append(k.policies, fast)
	k.classes = []agent.ClassStatus{{Class: class.Class{Name: "voice", Color: 100}}}
	got, err := k.between("default/a", "10.244.2.9")
	if err != nil || len(got) != 1 || got[0].Policy != "narrow" || !got[0].Fallback || got[0].Class != "voice" {
		t.Fatalf("%+v, %v", got, err)
	}
	var out strings.Builder
	const want = "policy fast: it ends at fc00:0:2:6::, where node-2 takes IPv6 only: best effort"
	if err := printer.WriteTable(&out, func(g *printer.Grid) { pathRows(g, got) }); err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("it prints %s", out.String())
	}
}

// Of what arrives by an interface, VLAN and source decide, too.
func TestPathOfVLANAndSource(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	k := cluster()
	k.interfaces = []agent.InterfaceStatus{{Interface: config.Interface{Name: "eth1"}}}
	k.policies[0].Endpoint = addr("2001:db8::2")
	fast := k.policies[0]
	fast.Name, fast.Color, fast.Paths = "fast", 100, []srpolicy.Verdict{{Active: true, Valid: true}}
	k.policies = append(k.policies, fast)
	k.steering = append(k.steering,
		agent.SteeringStatus{Steering: srpolicy.Steering{Prefix: prefix("10.244.2.0/24"), Interface: "eth1", Policy: "own"}},
		agent.SteeringStatus{Steering: srpolicy.Steering{Interface: "eth1", VLANs: []uint16{100}, Policy: "narrow"}})
	k.classes = []agent.ClassStatus{
		{Class: class.Class{Name: "blue", Color: 100, Priority: 1, Match: class.Match{Interfaces: []string{"eth1"}, VLANs: []uint16{100}}}},
		{Class: class.Class{Name: "branch", Color: 100, Match: class.Match{Sources: []netip.Prefix{prefix("10.1.0.0/16")}}}},
	}
	for _, tt := range []struct {
		vlan         uint16
		source       netip.Addr
		to           string
		class, entry string
	}{
		{100, netip.Addr{}, "10.244.2.9", "blue", "fast"},
		{101, netip.Addr{}, "10.244.2.9", "", "narrow"},
		{101, addr("10.1.2.3"), "10.244.2.9", "branch", "fast"},
		{101, addr("10.2.2.3"), "10.244.2.9", "", "narrow"},
		{0, netip.Addr{}, "10.244.2.9", "", "own"},
		{100, netip.Addr{}, "192.0.2.1", "blue", "fast"},
		{101, netip.Addr{}, "192.0.2.1", "", ""},
	} {
		k.packets = asked{vlan: tt.vlan, source: tt.source}
		got, err := k.between("eth1", tt.to)
		if err != nil || len(got) != 1 || got[0].Class != tt.class || got[0].Policy != tt.entry {
			t.Errorf("VLAN %d from %s to %s: %+v, %v, want class %q, policy %q", tt.vlan, tt.source, tt.to, got, err, tt.class, tt.entry)
		}
	}
	if _, err := k.between("default/a", "10.244.2.9"); err == nil || !strings.Contains(err.Error(), "is not an interface") {
		t.Errorf("a VLAN of a pod: %v", err)
	}
	for _, q := range []asked{{dscp: 64}, {vlan: 4095}, {vlan: 5, byName: true}, {tenant: "red", byName: true}} {
		if q.check() == nil {
			t.Errorf("%+v is allowed", q)
		}
	}
}

func TestStepOfNode(t *testing.T) {
	for sid, want := range map[string]pathStep{
		"fc00:0:2:6::":  {Node: "node-2", Does: "End.DT6"},
		"fc00:0:2:99::": {Node: "node-2", Problem: "it reports no such SID"},
		"2001:db8::2":   {Node: "node-2", Does: "End"},
		"fc00:0:9::":    {},
	} {
		want.SID = netip.MustParseAddr(sid)
		if got := cluster().step(want.SID); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestPathCommand(t *testing.T) {
	f := start(t, "overlay.yaml")
	if _, err := f.AddPod(pods.Attachment{ContainerID: "c", Interface: "eth0"}, pods.Pod{Namespace: "default", Name: "a"}); err != nil {
		t.Fatal(err)
	}
	out := f.ok(t, "path", "default/a", "192.0.2.1")
	if !strings.Contains(out, "10.244.1.2") || !strings.Contains(out, "192.0.2.1") || !strings.Contains(out, "kernel") {
		t.Errorf("%s", out)
	}
	if r := f.run(t, "path", "default/a"); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, "where packets come from") {
		t.Errorf("one pod: exit %d, %s", r.code, r.stderr)
	}
}
