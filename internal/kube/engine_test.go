package kube

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// An engine uses of nodes what agents use: nothing that the cluster does not vouch for.
func TestEngineNodes(t *testing.T) {
	c := newCluster(t)
	for _, n := range []string{"2", "3", "5", "6", "7"} {
		c.put(configMapResource, claimOf("node-"+n, "fc00:0:"+n+"::/48"))
	}
	c.earlier(map[string]any{"node-9": "fc00:0:9::/48"})
	c.member("2", "30", nil)
	c.member("3", "30", nil)
	c.member("4", "10", nil)
	c.member("5", "10", func(n *overlay.Node) { n.Address = addr("2001:db8::2") }) // older than node-2
	c.member("6", "10", func(n *overlay.Node) { n.IPv4 = []netip.Addr{addr("fc00:0:2:4::")} })
	c.member("7", "40", func(n *overlay.Node) { n.Prefixes = append(n.Prefixes, prefix("10.244.2.0/24")) })
	c.node("node-8", map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: "{"}}})
	c.member("9", "40", nil) // of an earlier build
	c.member("91", "40", func(n *overlay.Node) {
		n.Address, n.Locator, n.IPv4, n.BSID4 = addr("2001:db8::ff"), prefix("fcff:91::/48"), []netip.Addr{addr("fcff:91:0:4::")}, netip.Addr{}
	})
	c.put(configMapResource, claimOf("node-93", "2001:db8:7::/48")) // the prefix of servers
	c.member("93", "40", func(n *overlay.Node) {
		n.Locator, n.IPv4, n.BSID4 = prefix("2001:db8:7::/48"), []netip.Addr{addr("2001:db8:7:4::")}, netip.Addr{}
	})
	e := c.engine()
	c.nodes(e, overlay.Accept{}, "node-2 node-3 node-7 node-9", map[string]string{
		me: "has published nothing", "node-4": "locator fc00:0:4::/48 is not claimed by the node", "node-5": "address 2001:db8::2 is that of node-2",
		"node-6": "SID fc00:0:2:4:: is that of node-2", "node-7": "prefix 10.244.2.0/24 is that of node-2", "node-8": "cannot be used",
		"node-91": "address 2001:db8::ff is no InternalIP of its Node", "node-93": "locator 2001:db8:7::/48 is not in overlay.locator_pool",
	})
	accept := overlay.Accept{Addresses: []netip.Prefix{prefix("2001:db8::ff/128")}, SIDs: []netip.Prefix{prefix("fcff::/16")}}
	c.nodes(e, accept, "node-2 node-3 node-7 node-9 node-91", map[string]string{"node-4": "not claimed"})

	// Two that the file accepts with one address, the older one first.
	c.member("92", "50", func(n *overlay.Node) {
		n.Address, n.Locator, n.IPv4, n.BSID4 = addr("2001:db8::ff"), prefix("fcff:92::/48"), []netip.Addr{addr("fcff:92:0:4::")}, netip.Addr{}
	})
	c.nodes(e, accept, "node-2 node-3 node-7 node-9 node-91", map[string]string{"node-92": "address 2001:db8::ff is that of node-91"})

	// What was used of a node stays as long as nobody else has it.
	c.member("2", "30", func(n *overlay.Node) { n.Address = addr("2001:db8::3") })
	c.node("node-3", map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: "{"}},
		"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "2001:db8::3"}}}})
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ClaimName(prefix("fc00:0:2::/48"))))
	members := c.nodes(e, accept, "node-2 node-3 node-7 node-9 node-91", map[string]string{
		"node-2": "what it says now is not used: address 2001:db8::3 is that of node-3", "node-3": "what it says now is not used",
	})
	if members[0].Address != addr("2001:db8::2") || members[1].End() != addr("fc00:0:3:1::") {
		t.Errorf("members %+v", members)
	}
	c.put(configMapResource, claimOf("node-4", "fc00:0:2::/48"))
	c.nodes(e, accept, "node-3 node-7 node-9 node-91", map[string]string{"node-2": "what it publishes cannot be used"})
}

// nodes has the members that an engine uses compared with names, and why it does not use others,
// or a part of them.
func (c *cluster) nodes(e *Engine, accept overlay.Accept, names string, absent map[string]string) []overlay.Node {
	c.t.Helper()
	members, without, err := e.Nodes(c.t.Context(), namespace, Trust{prefix(testPool), accept})
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
	}
	if strings.Join(all, " ") != names || err != nil {
		c.t.Errorf("members %s, want %s; %v", all, names, err)
	}
	why := map[string]string{}
	for _, a := range without {
		why[a.Node] = a.Why
		if a.Part != slices.Contains(all, a.Node) {
			c.t.Errorf("%+v, beside members %s", a, all)
		}
	}
	for node, want := range absent {
		if !strings.Contains(why[node], want) {
			c.t.Errorf("%s: %q, want %q", node, why[node], want)
		}
	}
	return members
}

// Without the claims nobody knows whose a locator is.
func TestEngineWithoutClaims(t *testing.T) {
	c := newCluster(t)
	c.objects.PrependReactor("list", configMapResource.Resource, func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(configMapResource.GroupResource(), "", errors.New("no rights"))
	})
	if members, _, err := c.engine().Nodes(t.Context(), namespace, Trust{Accept: anything}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "claims of locators") {
		t.Errorf("members %v, %v", members, err)
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
		if err != nil || e.path.Color != color || e.egress != "2001:db8::2" || e.path.Preference != 150 || e.path.Name != p.PathName(me, enginePath(color)) {
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

// A policy's repair path is an object of its own, which goes alone.
func TestEngineRepairPaths(t *testing.T) {
	c := newCluster(t)
	p := c.pathsOf("te")
	const used, ready = "node-1.te-4-2001-db8--2", "node-1.te-4-2001-db8--2-repair"
	repair := enginePath(4, "fc00:0:3:1::", "fc00:0:2:4::")
	repair.Repair, repair.Preference = true, 149
	c.must(p.Put(t.Context(), me, []EnginePath{enginePath(4, "fc00:0:2:4::"), repair}))
	for name, preference := range map[string]uint32{used: 150, ready: 149} {
		e, err := readPolicy(c.object(name), me)
		if err != nil || e.path.Color != 4 || e.path.Preference != preference || e.path.Name != pathName("srv6policy", name) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	for range 2 { // the second time it is gone
		c.must(p.Remove(t.Context(), me, []EnginePath{repair}))
	}
	if n := c.writes(); n != 3 {
		t.Errorf("%d writes, want three", n)
	}
	if c.object(used) == nil {
		t.Error("the other path is gone too")
	}
	c.policy(ready, 1, `{node: node-1, egressNode: node-2, traffic: IPv4, segmentLists: [{segments: ["fc00::1"]}]}`)
	if err := p.Remove(t.Context(), me, []EnginePath{repair}); !errors.Is(err, ErrForeign) || c.object(ready) == nil {
		t.Errorf("an operator's: %v", err)
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
