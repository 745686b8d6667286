package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/overlay"
)

const (
	me        = "node-1"
	namespace = "kube-system"
)

// cluster is an API server of client-go's fakes, which know neither field
// selectors nor server-side apply nor conflicts: it adds the last two.
type cluster struct {
	t       *testing.T
	objects *dynamicfake.FakeDynamicClient
	meta    *metadatafake.FakeMetadataClient
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		nodeResource: "NodeList", configMapResource: "ConfigMapList", eventResource: "EventList", policyResource: "SRv6PolicyList",
		leaseResource: "LeaseList", classResource: "SRv6TrafficClassList", claimResource: "SRv6TrafficClassClaimList", sliceResource: "EndpointSliceList",
		podResource: "PodList", networkPolicyResource: "NetworkPolicyList",
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), metadatafake.NewSimpleMetadataClient(scheme)}
	c.objects.PrependReactor("patch", "*", c.patch)
	for _, r := range []string{configMapResource.Resource, policyResource.Resource, leaseResource.Resource} {
		c.objects.PrependReactor("update", r, c.update)
		c.objects.PrependReactor("create", r, func(a ktesting.Action) (bool, runtime.Object, error) {
			a.(ktesting.CreateAction).GetObject().(*unstructured.Unstructured).SetResourceVersion("1")
			return false, nil, nil
		})
	}
	c.node(me, map[string]any{"spec": map[string]any{"podCIDRs": []any{"10.244.1.0/24", "fd00:10:244:1::/64"}}})
	return c
}

func (c *cluster) connection() connection { return connection{c.objects, c.meta, newDialer()} }

// patch applies, and mirrors Nodes to the client of metadata.
func (c *cluster) patch(a ktesting.Action) (bool, runtime.Object, error) {
	p := a.(ktesting.PatchActionImpl)
	tracker := c.objects.Tracker()
	o, err := tracker.Get(p.Resource, p.Namespace, p.Name)
	if apierrors.IsNotFound(err) && p.PatchType == types.ApplyPatchType && p.Subresource == "" {
		u := &unstructured.Unstructured{}
		c.must(yaml.Unmarshal(p.Patch, &u.Object))
		u.SetResourceVersion("1")
		return true, u, tracker.Create(p.Resource, u, p.Namespace)
	}
	if err != nil {
		return true, nil, err
	}
	u := o.(*unstructured.Unstructured).DeepCopy()
	var change map[string]any
	c.must(yaml.Unmarshal(p.Patch, &change))
	if p.Subresource == "status" {
		if version, _, _ := unstructured.NestedString(change, "metadata", "resourceVersion"); version != "" && version != u.GetResourceVersion() {
			return true, nil, apierrors.NewConflict(p.Resource.GroupResource(), p.Name, fmt.Errorf("is at %s", u.GetResourceVersion()))
		}
		c.mergeStatus(u, change)
		u.SetResourceVersion(u.GetResourceVersion() + "1")
	} else {
		merge(u.Object, change)
		u.SetGeneration(u.GetGeneration() + 1)
	}
	c.must(tracker.Update(p.Resource, u, p.Namespace))
	if p.Resource == nodeResource {
		c.mirror(u)
	}
	return true, u, nil
}

// mergeStatus merges status.nodes by name, as the definition of SRv6Policy says. The manager of the summary
// has no nodes.
func (c *cluster) mergeStatus(u *unstructured.Unstructured, change map[string]any) {
	applied, nodes, _ := unstructured.NestedSlice(change, "status", "nodes")
	if !nodes {
		summary, _, _ := unstructured.NestedString(change, "status", "summary")
		c.must(unstructured.SetNestedField(u.Object, summary, "status", "summary"))
		return
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "nodes")
	all = slices.DeleteFunc(all, func(n any) bool { return n.(map[string]any)["name"] == me })
	for _, n := range applied {
		fields := n.(map[string]any)
		if g, ok := fields["observedGeneration"].(float64); ok {
			fields["observedGeneration"] = int64(g)
		}
		all = append(all, fields)
	}
	c.must(unstructured.SetNestedSlice(u.Object, all, "status", "nodes"))
}

func merge(into, change map[string]any) {
	for k, v := range change {
		inner, isMap := v.(map[string]any)
		if old, both := into[k].(map[string]any); both && isMap {
			merge(old, inner)
			continue
		}
		into[k] = v
	}
}

// update refuses what was read before somebody else wrote.
func (c *cluster) update(a ktesting.Action) (bool, runtime.Object, error) {
	u := a.(ktesting.UpdateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
	now, err := c.objects.Tracker().Get(a.GetResource(), a.GetNamespace(), u.GetName())
	if err != nil {
		return true, nil, err
	}
	version := now.(*unstructured.Unstructured).GetResourceVersion()
	if version != u.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), u.GetName(), fmt.Errorf("is at %s", version))
	}
	u.SetResourceVersion(version + "1")
	return true, u, c.objects.Tracker().Update(a.GetResource(), u, a.GetNamespace())
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) put(r schema.GroupVersionResource, u *unstructured.Unstructured) {
	c.t.Helper()
	if _, err := c.objects.Tracker().Get(r, u.GetNamespace(), u.GetName()); err == nil {
		c.must(c.objects.Tracker().Update(r, u, u.GetNamespace()))
		return
	}
	c.must(c.objects.Tracker().Create(r, u, u.GetNamespace()))
}

// node makes a Node, with what else it has.
func (c *cluster) node(name string, more map[string]any) {
	c.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "uid": "uid of " + name}}}
	merge(u.Object, more)
	c.put(nodeResource, u)
	c.mirror(u)
}

func (c *cluster) mirror(u *unstructured.Unstructured) {
	c.t.Helper()
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	m.Name, m.UID, m.Annotations, m.Labels = u.GetName(), u.GetUID(), u.GetAnnotations(), u.GetLabels()
	if _, err := c.meta.Tracker().Get(nodeResource, "", m.Name); err == nil {
		c.must(c.meta.Tracker().Update(nodeResource, m, ""))
		return
	}
	c.must(c.meta.Tracker().Create(nodeResource, m, ""))
}

func (c *cluster) json(v any) string {
	c.t.Helper()
	text, err := json.Marshal(v)
	c.must(err)
	return string(text)
}

// says makes a Node that says what it is in the overlay.
func (c *cluster) says(n overlay.Node) {
	c.t.Helper()
	c.node(n.Name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: c.json(n)}}})
}

func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	c.must(c.objects.Tracker().Delete(nodeResource, "", name))
	c.must(c.meta.Tracker().Delete(nodeResource, "", name))
}

func (c *cluster) listing(text string) {
	c.t.Helper()
	c.put(configMapResource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": ListingName(me), "namespace": namespace},
		"data": map[string]any{"policies.yaml": text},
	}})
}

// policy makes an SRv6Policy of its spec.
func (c *cluster) policy(name string, generation int64, spec string) {
	c.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": policyVersion, "kind": policyKind,
		"metadata": map[string]any{"name": name, "uid": "uid of " + name}}}
	u.SetGeneration(generation)
	var fields map[string]any
	c.must(yaml.Unmarshal([]byte(spec), &fields))
	u.Object["spec"] = fields
	if old, err := c.objects.Tracker().Get(policyResource, "", name); err == nil {
		u.Object["status"] = old.(*unstructured.Unstructured).Object["status"]
	}
	c.put(policyResource, u)
}

// observed is a handler that keeps what it receives.
type observed struct {
	mu    sync.Mutex
	self  Self
	nodes map[string]overlay.Node
	paths map[string]Path
	sids  LocalSIDs
	log   []string

	classes map[string]Class
	pods    int // times that labels have changed
	netpol  int // times that what NetworkPolicies depend on has changed
	gone    int // times that this node's claim was gone
}

func newObserved(k Known) *observed {
	h := &observed{nodes: map[string]overlay.Node{}, paths: map[string]Path{}, sids: k.LocalSIDs}
	for _, n := range k.Nodes {
		h.nodes[n.Name] = n
	}
	for _, p := range k.Paths {
		h.paths[p.Name] = p
	}
	return h
}

func (h *observed) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *observed) SetSelf(s Self) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.self = s
	h.note("self")
}

func (h *observed) PutNode(n overlay.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[n.Name] = n
	h.note("node %s", n.Name)
}

func (h *observed) ClaimGone() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone++
}

func (h *observed) DeleteNode(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nodes, name)
	h.note("no node %s", name)
}

func (h *observed) PutPath(p Path) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths[p.Name] = p
	h.note("path %s", p.Name)
}

func (h *observed) WithdrawPath(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.paths, name)
	h.note("no path %s", name)
}

func (h *observed) SetLocalSIDs(s LocalSIDs) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sids = s
	h.note("local SIDs")
}

func (h *observed) SetClasses(all map[string]Class) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.classes = all
	h.note("classes")
}

func (h *observed) PodsChanged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods++
}

func (h *observed) NetworkPoliciesChanged() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.netpol++
}

// take is what was said since the last time, in order.
func (h *observed) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.log = nil }()
	return strings.Join(h.log, ", ")
}

func (h *observed) has(f func(*observed) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f(h)
}

func (h *observed) pathNames() []string { return slices.Sorted(maps.Keys(h.paths)) }

// waits until something is so.
func waits(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// testPool is overlay.locator_pool, as the manifest has it.
const testPool = "fc00::/32"

// anything is for tests in which nodes say what they like.
var anything = overlay.Accept{Addresses: []netip.Prefix{prefix("::/0")}, PodPrefixes: []netip.Prefix{prefix("0.0.0.0/0"), prefix("::/0")}, SIDs: []netip.Prefix{prefix("::/0")}}

// starts runs a watcher until the test ends, or its function is called.
func (c *cluster) starts(k Known) (*Watcher, *observed, func()) {
	c.t.Helper()
	return starts(c.t, c.connection(), Config{Node: me, Namespace: namespace, Trust: Trust{Accept: anything}}, k)
}
