package kube

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	ktesting "k8s.io/client-go/testing"

	"github.com/culvert-net/culvert/internal/overlay"
)

func starts(t *testing.T, api connection, c Config, k Known) (*Watcher, *observed, func()) {
	t.Helper()
	w, err := newWatcher(c, api)
	if err != nil {
		t.Fatal(err)
	}
	h := newObserved(k)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, h, k) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watcher ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return w, h, stop
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func other(name, address string) overlay.Node {
	return overlay.Node{Name: name, Address: addr(address), Prefixes: []netip.Prefix{prefix("10.244.2.0/24")},
		Locator: prefix("fc00:0:2::/48"), IPv4: []netip.Addr{addr("fc00:0:2:d4::")}, IPv6: []netip.Addr{addr("fc00:0:2:d6::")}}
}

func TestNodes(t *testing.T) {
	c := newCluster(t)
	c.node("stranger", nil)
	c.says(other("node-2", "2001:db8::2"))
	w, h, _ := c.starts(Known{Nodes: []overlay.Node{other("node-3", "2001:db8::3"), other("node-2", "2001:db8::2")}})
	waits(t, "what is gone is gone", func() bool { return h.has(func(h *observed) bool { return len(h.nodes) == 1 }) })
	waits(t, "this node", func() bool { return h.has(func(h *observed) bool { return len(h.self.PodCIDRs) == 2 }) })
	if said := h.take(); strings.Contains(said, "node node-2") {
		t.Errorf("what was known was reported again: %s", said)
	}

	moved := other("node-2", "2001:db8::22")
	c.says(moved)
	waits(t, "a change", func() bool {
		return h.has(func(h *observed) bool { return h.nodes["node-2"].Address == moved.Address })
	})
	c.node("node-2", map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: `{"address": "10.0.0.1"}`}}})
	c.says(other("node-4", "2001:db8::4"))
	waits(t, "another node", func() bool { return h.has(func(h *observed) bool { return len(h.nodes) == 2 }) })
	if !h.has(func(h *observed) bool { return h.nodes["node-2"].Address == moved.Address }) {
		t.Error("what cannot be used took the place of what can")
	}
	c.deleteNode("node-2")
	c.node("node-4", nil)
	waits(t, "no node", func() bool { return h.has(func(h *observed) bool { return len(h.nodes) == 0 }) })
	if s := w.Status(); !s.Complete || s.Error != "" || s.Nodes != 0 || s.Since.IsZero() {
		t.Errorf("status is %+v", s)
	}
}

func TestPublish(t *testing.T) {
	c := newCluster(t)
	w, _, _ := c.starts(Known{})
	self := other(me, "2001:db8::1")
	w.Publish(self)
	published := func() (n overlay.Node) {
		o, err := c.objects.Tracker().Get(nodeResource, "", me)
		c.must(err)
		text := o.(*unstructured.Unstructured).GetAnnotations()[NodeAnnotation]
		if text != "" {
			c.must(json.Unmarshal([]byte(text), &n))
		}
		return n
	}
	waits(t, "published", func() bool { return published().Address == self.Address })
	c.node(me, map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: `{"address": "2001:db8::9"}`}}})
	waits(t, "published again", func() bool { return published().Address == self.Address })

	var mu sync.Mutex
	failures := 0
	c.objects.PrependReactor("patch", "nodes", func(ktesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		failures++
		return failures == 1, nil, errors.New("not now")
	})
	self.Address = addr("2001:db8::11")
	w.Publish(self)
	waits(t, "published in spite of a failure", func() bool { return published().Address == self.Address })
}

// What a node says of its address counts as known to the others after a time.
func TestTold(t *testing.T) {
	c := newCluster(t)
	w, h, _ := c.starts(Known{})
	known := func(a string) func() bool {
		return func() bool { return h.has(func(h *observed) bool { return h.self.Told == addr(a) }) }
	}
	w.Publish(other(me, "2001:db8::1"))
	waits(t, "the first address", known("2001:db8::1"))
	began := time.Now()
	w.Publish(other(me, "2001:db8::11"))
	waits(t, "the second address", known("2001:db8::11"))
	if d := time.Since(began); d < learned {
		t.Errorf("the others had %v to learn the second address, want %v", d, learned)
	}
	// Somebody else writes another address: it is overwritten, and never counts as known.
	began = time.Now()
	c.node(me, map[string]any{"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: `{"address": "2001:db8::99"}`}}})
	for time.Since(began) < learned+time.Second/2 {
		if !known("2001:db8::11")() {
			t.Fatal("an address that somebody else wrote counts as known")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const listing = `
localsids:
  DT4: "fcdd::aa:34b8:247c:36da:db44"
  DT6: "fcdd::aa:34b8:247c:36da:db45"
node: node-1
policies:
- egress_node: "fd11::1000"
  bsid: "cafe::1c3"
  segment_list:
  - "fcff:3::1"
  - "fcdd::11aa:c11:b42f:f17e:a683"
  traffic: IPv6
- egress_node: node-2
  segment_lists: [{weight: 3, segments: ["fcff:4::1"]}, {segments: ["fcff:5::1"]}]
  traffic: IPv4
  preference: 50
`

func TestListing(t *testing.T) {
	c := newCluster(t)
	c.listing(listing)
	w, h, _ := c.starts(Known{})
	const first, second = "configmap:ipv6:fd11::1000", "configmap:ipv4:node-2"
	waits(t, "the first path", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 1 }) })
	got := h.paths[first]
	if got.Color != overlay.ColorIPv6 || got.Endpoint != addr("fd11::1000") || got.Preference != DefaultPreference || got.BindingSID != addr("cafe::1c3") ||
		len(got.SegmentLists) != 1 || len(got.SegmentLists[0].Segments) != 2 || got.Origin != "configmap srv6-policies-node-1" {
		t.Errorf("path is %+v", got)
	}
	if h.sids.DT4 != addr("fcdd::aa:34b8:247c:36da:db44") || h.sids.DT6 != addr("fcdd::aa:34b8:247c:36da:db45") {
		t.Errorf("local SIDs are %+v", h.sids)
	}
	c.waitsListing("the node that nobody knows", func(s listingStatus) bool {
		return s.Error == "" && len(s.Paths) == 2 && s.Paths[0].State == stateWaiting && slices.ContainsFunc(s.Paths, func(p progress) bool {
			return p.Reason == "no node node-2 has published its address"
		})
	})
	c.says(other("node-2", "2001:db8::2"))
	waits(t, "the path to a node by name", func() bool {
		return h.has(func(h *observed) bool {
			p := h.paths[second]
			return p.Endpoint == addr("2001:db8::2") && p.Preference == 50 && len(p.SegmentLists) == 2 && p.SegmentLists[0].Weight == 3
		})
	})
	w.SetVerdicts([]Verdict{{first, true, true, "highest preference", ""}, {second, false, true, "no route", ""}})
	c.waitsListing("verdicts", func(s listingStatus) bool {
		return len(s.Paths) == 2 && s.Paths[0].Name == "ipv4:node-2" && s.Paths[0].State == stateInvalid && s.Paths[1].State == stateActive && s.Paths[1].Since != ""
	})
	c.listing(listing) // as kubectl replace, which takes what was said of it away
	c.waitsListing("it is said again", func(s listingStatus) bool { return len(s.Paths) == 2 && s.Paths[1].State == stateActive })
	h.take()

	// What is wrong is said, and changes nothing.
	c.listing(strings.Replace(listing, `"fcff:3::1"`, `"10.0.0.1"`, 1))
	c.waitsListing("the fault", func(s listingStatus) bool {
		return strings.Contains(s.Error, "data[policies.yaml]: line 10: policies[0].segment_list[0]: 10.0.0.1") && len(s.Paths) == 2
	})
	c.waitsEvent("InvalidPolicies", "policies[0].segment_list[0]")
	if said := h.take(); said != "" {
		t.Errorf("a ConfigMap with a fault changed %s", said)
	}
	// However much that is, there is room to say so: an annotation has 256 KiB.
	c.listing("node: node-1\npolicies:\n" + strings.Repeat("- {egress_node: node-2, traffic: none, segment_list: [10.0.0.1]}\n", 5000))
	c.waitsListing("many faults", func(s listingStatus) bool {
		return strings.Contains(s.Error, "policies[0].traffic") && len(s.Error) < 2*mostProblem && regexp.MustCompile(`and \d+ more`).MatchString(s.Error)
	})
	// Only what differs is reported.
	c.listing(strings.Replace(listing, "preference: 50", "preference: 500", 1))
	waits(t, "the difference", func() bool { return h.has(func(h *observed) bool { return h.paths[second].Preference == 500 }) })
	if said := h.take(); said != "path "+second {
		t.Errorf("observed %s", said)
	}
	c.waitsListing("the fault is mended", func(s listingStatus) bool { return s.Error == "" })
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ListingName(me)))
	waits(t, "nothing is left", func() bool {
		return h.has(func(h *observed) bool { return len(h.paths) == 0 && h.sids == LocalSIDs{} })
	})
}

// A watcher that starts while the ConfigMap cannot be read goes on with what the
// one before had read.
func TestLastGoodSurvivesRestart(t *testing.T) {
	c := newCluster(t)
	c.listing(listing)
	_, h, stop := c.starts(Known{})
	waits(t, "a path", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 1 }) })
	stop()
	known := Known{LocalSIDs: h.sids, Paths: []Path{h.paths["configmap:ipv6:fd11::1000"], {Name: "srv6policy:old", Origin: "srv6policy old"}}}
	c.listing("policies: 5")
	_, h, _ = c.starts(known)
	c.waitsListing("the fault", func(s listingStatus) bool { return strings.Contains(s.Error, "policies: must be a list") })
	waits(t, "the policy that is gone", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 1 }) })
	if said := h.take(); said != "self, no path srv6policy:old" && said != "no path srv6policy:old, self" {
		t.Errorf("observed %s", said)
	}
	c.listing(strings.Replace(listing, "IPv6", "IPv4", 1))
	waits(t, "mended", func() bool {
		return h.has(func(h *observed) bool { return slices.Equal(h.pathNames(), []string{"configmap:ipv4:fd11::1000"}) })
	})
}

func (c *cluster) waitsListing(what string, f func(listingStatus) bool) {
	c.t.Helper()
	var text string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the status is %s", text)
		}
	}()
	waits(c.t, what, func() bool {
		o, err := c.objects.Tracker().Get(configMapResource, namespace, ListingName(me))
		c.must(err)
		text = o.(*unstructured.Unstructured).GetAnnotations()[StatusAnnotation]
		var s listingStatus
		return json.Unmarshal([]byte(text), &s) == nil && f(s)
	})
}

func (c *cluster) waitsEvent(reason, words string) {
	c.t.Helper()
	waits(c.t, "event "+reason, func() bool {
		list, err := c.objects.Tracker().List(eventResource, eventResource.GroupVersion().WithKind("Event"), "")
		c.must(err)
		for _, e := range list.(*unstructured.UnstructuredList).Items {
			if e.Object["reason"] == reason && strings.Contains(e.Object["message"].(string), words) {
				return true
			}
		}
		return false
	})
}

const policySpec = `
node: node-1
egressNode: node-2
traffic: IPv6
bindingSID: "cafe::7"
segmentLists: [{segments: ["fcff:4::1", "fcff:5::1"]}]
`

func TestPolicies(t *testing.T) {
	c := newCluster(t)
	c.says(other("node-2", "2001:db8::2"))
	c.policy("core", 1, policySpec)
	c.policy("wrong", 1, strings.Replace(policySpec, "traffic: IPv6", "traffic: none", 1))
	c.policy("elsewhere", 1, strings.Replace(policySpec, "node-1", "node-9", 1))
	c.policy("chosen", 1, strings.Replace(policySpec, "node: node-1", "nodeSelector: {matchLabels: {rack: a}}", 1))
	c.policy("here", 1, strings.NewReplacer("node: node-1", "nodeSelector: {}", "egressNode: node-2", "egressNode: node-1").Replace(policySpec))
	w, h, _ := c.starts(Known{})
	waits(t, "by name", func() bool {
		return h.has(func(h *observed) bool { return slices.Equal(h.pathNames(), []string{"srv6policy:core"}) })
	})
	if r := w.Refused(); len(r) != 1 || !strings.HasPrefix(r[0], "srv6policy wrong: spec.traffic") {
		t.Errorf("refused: %q", r)
	}
	c.node(me, map[string]any{"metadata": map[string]any{"labels": map[string]any{"rack": "a"}}})
	waits(t, "by label", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 2 }) })
	if p := h.paths["srv6policy:chosen"]; p.Color != overlay.ColorIPv6 || p.Endpoint != addr("2001:db8::2") || p.BindingSID != addr("cafe::7") || p.Origin != "srv6policy chosen" {
		t.Errorf("path is %+v", p)
	}
	w.SetVerdicts([]Verdict{{"srv6policy:core", true, true, "the only one", ""}})
	c.waitsPolicy("core", "active", func(s map[string]any) bool { return s["state"] == stateActive && s["reason"] == "the only one" })
	c.waitsPolicy("chosen", "not judged", func(s map[string]any) bool { return s["state"] == stateWaiting })
	since := c.policyStatus("core")["since"]
	w.SetVerdicts([]Verdict{{"srv6policy:core", true, true, "highest preference", ""}})
	c.waitsPolicy("core", "another reason", func(s map[string]any) bool { return s["reason"] == "highest preference" })
	if s := c.policyStatus("core"); s["since"] != since || s["observedGeneration"] != int64(1) {
		t.Errorf("active since %v, status is %v", since, s)
	}

	h.take()
	c.policy("core", 2, strings.Replace(policySpec, "traffic: IPv6", "traffic: IPv5", 1))
	c.waitsPolicy("core", "refused", func(s map[string]any) bool {
		reason, _ := s["reason"].(string)
		return s["state"] == stateRefused && strings.HasPrefix(reason, `spec.traffic: "IPv5" is no traffic`) && strings.HasSuffix(reason, "what it said before is active") &&
			s["observedGeneration"] == int64(2)
	})
	if said := h.take(); said != "" {
		t.Errorf("a fault changed %s", said)
	}
	c.waitsEvent("InvalidPolicies", "IPv5")
	if s := c.policyStatus("here"); s != nil {
		t.Errorf("a path of all nodes to this one is %v here, want no word", s)
	}
	c.node(me, nil)
	waits(t, "no label", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 1 }) })
	waits(t, "no status", func() bool { return c.policyStatus("chosen") == nil })
	c.must(c.objects.Tracker().Delete(policyResource, "", "core"))
	waits(t, "no policy", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 0 }) })
}

func (c *cluster) policyStatus(name string) map[string]any {
	o, err := c.objects.Tracker().Get(policyResource, "", name)
	c.must(err)
	return nodeStatus(o.(*unstructured.Unstructured), me)
}

func (c *cluster) waitsPolicy(name, what string, f func(map[string]any) bool) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the status of %s is %v", name, c.policyStatus(name))
		}
	}()
	waits(c.t, name+": "+what, func() bool { return f(c.policyStatus(name)) })
}

// Where the API server has forgotten what it sent last, all is read again, and
// only what differs is reported.
func TestWatchExpires(t *testing.T) {
	c := newCluster(t)
	c.says(other("node-2", "2001:db8::2"))
	c.policy("core", 1, policySpec)
	expiring := watch.NewFake()
	var once sync.Once
	c.objects.PrependWatchReactor("srv6policies", func(ktesting.Action) (handled bool, w watch.Interface, err error) {
		once.Do(func() { handled, w = true, expiring })
		return handled, w, nil
	})
	_, h, _ := c.starts(Known{})
	waits(t, "a path, and this node", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 1 && h.self.UID != "" }) })
	h.take()
	c.policy("edge", 1, strings.Replace(policySpec, "IPv6", "IPv4", 1))
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	expiring.Error(&expired)
	waits(t, "what the watch missed", func() bool { return h.has(func(h *observed) bool { return len(h.paths) == 2 }) })
	if said := h.take(); said != "path srv6policy:edge" {
		t.Errorf("observed %s", said)
	}
}
