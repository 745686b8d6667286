package kube

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func (c *cluster) engine() *Engine { return &Engine{api: c.connection()} }

func (c *cluster) pathsOf(name string) EnginePaths {
	c.t.Helper()
	p, err := c.engine().Paths(name)
	c.must(err)
	return p
}

// A node that publishes nothing, or what cannot be read, or what is another one's, is no member.
func TestEngineNodes(t *testing.T) {
	c := newCluster(t)
	member := func(n int, change func(*overlay.Node)) {
		name := "node-" + string(rune('0'+n))
		at := func(s string) string { return strings.ReplaceAll(s, "N", string(rune('0'+n))) }
		m := overlay.Node{Name: name, Address: netip.MustParseAddr(at("2001:db8::N")), Locator: prefix(at("fc00:0:N::/48")),
			Prefixes: []netip.Prefix{prefix(at("10.244.N.0/24"))}}
		if m = overlay.Complete(m, false); change != nil {
			change(&m)
		}
		c.says(m)
	}
	member(2, nil)
	member(3, nil)
	member(4, func(m *overlay.Node) { m.Address = netip.MustParseAddr("2001:db8::2") })
	member(5, func(m *overlay.Node) { m.Locator = prefix("fc00:0:3::/64") })
	member(6, func(m *overlay.Node) { m.IPv4 = []netip.Addr{netip.MustParseAddr("fc00:0:2:4::")} })
	member(7, func(m *overlay.Node) { m.Locator = prefix("2001:db8::/32") })
	c.node("node-8", map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: "{"}}})
	members, absent, err := c.engine().Nodes(t.Context())
	if err != nil || len(members) != 2 || members[0].Name != "node-2" || members[1].End() != netip.MustParseAddr("fc00:0:3:1::") {
		t.Errorf("members %+v, %v", members, err)
	}
	want := map[string]string{
		me: "has published nothing", "node-4": "address 2001:db8::2 is that of node-2", "node-5": "locator fc00:0:3::/64 is that of node-3",
		"node-6": "SID fc00:0:2:4:: is that of node-2", "node-7": "its locator has the address of node-2", "node-8": "cannot be used",
	}
	for _, a := range absent {
		if why := want[a.Node]; why == "" || !strings.Contains(a.Why, why) {
			t.Errorf("%s: %s, want %q", a.Node, a.Why, why)
		}
	}
	if len(absent) != len(want) {
		t.Errorf("absent %+v", absent)
	}
}

func enginePath(color uint32, segments ...string) EnginePath {
	a := EnginePath{Advertised: srpolicy.Advertised{Color: color, Endpoint: netip.MustParseAddr("2001:db8::2"), Preference: 150}}
	for _, s := range segments {
		a.SegmentLists = append(a.SegmentLists, srpolicy.SegmentList{Segments: []netip.Addr{netip.MustParseAddr(s)}})
	}
	return a
}

func (c *cluster) object(name string) *unstructured.Unstructured {
	c.t.Helper()
	u, err := c.objects.Resource(policyResource).Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(err)
	return u
}

func (c *cluster) writes() (n int) {
	for _, a := range c.objects.Actions() {
		if a.GetResource() == policyResource && a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetVerb() != "watch" {
			n++
		}
	}
	return n
}

// A path is an object that agents read as they read others', and an engine writes it only where
// it differs.
func TestEnginePaths(t *testing.T) {
	c := newCluster(t)
	p := c.pathsOf("te")
	const v4, voice = "node-1.te-4-2001-db8--2", "node-1.te-100-2001-db8--2"
	for range 2 { // the second one changes nothing
		c.must(p.Put(t.Context(), me, []EnginePath{enginePath(4, "fc00:0:2:4::"), enginePath(100, "fc00:0:3:1::", "fc00:0:2:4::")}))
	}
	if n := c.writes(); n != 2 {
		t.Errorf("%d writes, want 2", n)
	}
	for name, color := range map[string]uint32{v4: 4, voice: 100} {
		u := c.object(name)
		e, err := readPolicy(u, me)
		if err != nil || e.path.Color != color || e.egress != "2001:db8::2" || e.path.Preference != 150 || e.path.Name != p.PathName(me, color, netip.MustParseAddr("2001:db8::2")) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if u.GetLabels()[EngineLabel] != "te" || u.GetLabels()[managerLabel] != engineManager {
			t.Errorf("labels %v", u.GetLabels())
		}
	}
	c.must(p.Put(t.Context(), me, []EnginePath{enginePath(4, "fc00:0:2:4::"), enginePath(100, "fc00:0:2:4::")}))
	if n := c.writes(); n != 3 {
		t.Errorf("%d writes, want one more", n)
	}
	if e, err := readPolicy(c.object(voice), me); err != nil || len(e.path.SegmentLists) != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	bounded := enginePath(100, "fc00:0:2:4::")
	bounded.DelayConstraint = srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(15 * time.Millisecond), LowestDelay: true}
	for range 2 {
		c.must(p.Put(t.Context(), me, []EnginePath{bounded}))
	}
	if e, err := readPolicy(c.object(voice), me); err != nil || e.path.DelayConstraint != bounded.DelayConstraint || c.writes() != 4 {
		t.Errorf("with delays: %+v, %v, %d writes", e, err, c.writes())
	}
}

// What others have written stays: objects without the engine's label, those of another engine, and
// what changes at the same time.
func TestEngineLeavesOthers(t *testing.T) {
	c := newCluster(t)
	c.policy("node-1.te-4-2001-db8--2", 1, `{node: node-1, egressNode: node-2, traffic: IPv4, segmentLists: [{segments: ["fc00::1"]}]}`)
	c.must(c.pathsOf("TE").Put(t.Context(), me, []EnginePath{enginePath(6, "fc00:0:2:6::")}))
	before := c.writes()
	p := c.pathsOf("te")
	for _, color := range []uint32{4, 6} {
		if err := p.Put(t.Context(), me, []EnginePath{enginePath(color, "fc00:0:2:9::")}); !errors.Is(err, ErrForeign) {
			t.Errorf("color %d: %v", color, err)
		}
	}
	if removed, err := p.Withdraw(t.Context()); err != nil || len(removed) != 0 || c.writes() != before {
		t.Errorf("removed %v, %v, %d writes", removed, err, c.writes()-before)
	}
	mine := enginePath(100, "fc00:0:2:4::")
	c.must(p.Put(t.Context(), me, []EnginePath{mine}))
	const name = "node-1.te-100-2001-db8--2"
	once := true
	c.objects.PrependReactor("update", policyResource.Resource, func(ktesting.Action) (bool, runtime.Object, error) {
		if once {
			once = false
			o, err := c.objects.Tracker().Get(policyResource, "", name)
			c.must(err)
			u := o.(*unstructured.Unstructured).DeepCopy()
			u.SetResourceVersion("7")
			c.put(policyResource, u)
		}
		return false, nil, nil
	})
	if err := p.Put(t.Context(), me, []EnginePath{enginePath(100, "fc00:0:2:6::")}); err == nil || c.object(name).GetResourceVersion() != "7" {
		t.Errorf("it overwrote what had changed: %v", err)
	}
	if removed, err := p.Withdraw(t.Context()); err != nil || len(removed) != 1 || removed[0] != name {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := c.engine().Paths("a b"); err == nil || !strings.Contains(err.Error(), "engine.name") {
		t.Errorf("%v", err)
	}
}
