package kube

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// apply makes an object of its YAML; what was said of it stays.
func (c *cluster) apply(r schema.GroupVersionResource, text string) {
	c.t.Helper()
	u := &unstructured.Unstructured{}
	c.must(yaml.Unmarshal([]byte(text), &u.Object))
	u.SetAPIVersion(r.GroupVersion().String())
	if old, err := c.objects.Tracker().Get(r, u.GetNamespace(), u.GetName()); err == nil {
		u.Object["status"] = old.(*unstructured.Unstructured).Object["status"]
	}
	c.put(r, u)
}

// says waits until this node says of an object that it is so, and why.
func (c *cluster) waitsState(r schema.GroupVersionResource, name, state, reason string) {
	c.t.Helper()
	namespace, short, found := strings.Cut(name, "/")
	if !found {
		namespace, short = "", name
	}
	var said map[string]any
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the status of %s is %v", name, said)
		}
	}()
	waits(c.t, name+" is "+state, func() bool {
		o, err := c.objects.Tracker().Get(r, namespace, short)
		c.must(err)
		said = nodeStatus(o.(*unstructured.Unstructured), me)
		why, _ := said["reason"].(string)
		return said["state"] == state && strings.Contains(why, reason)
	})
}

// class returns what the handler has of a class.
func (h *observed) class(name string) (c Class, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, there = h.classes[name]
	return c, there
}

const endpointsOfDB = `
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.244.2.7]}, {addresses: [10.244.2.9], conditions: {ready: false}}]
`

func TestClasses(t *testing.T) {
	c := newCluster(t)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: voice, generation: 3}, spec: {color: 100, strict: true, priority: 5, match: {namespaces: [shop], podLabels: {app: web}, dscp: [46]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: db}, spec: {color: 200, match: {destinations: [10.9.0.0/16], service: {namespace: shop, name: db}}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: wrong}, spec: {color: 0, match: {dscp: [64]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: half}, spec: {color: 1, match: {service: {namespace: "", name: db}}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: own}, spec: {color: 100, match: {host: true, dscp: [10]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: blue}, spec: {color: 100, match: {interfaces: [eth1], vlans: [100], sources: [10.1.0.0/16]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: open}, spec: {color: 100, claimable: true, match: {interfaces: [eth1]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: both}, spec: {color: 100, match: {host: true, namespaces: [shop]}}}`)
	w, h, stop := c.starts(Known{})
	waits(t, "the class", func() bool { _, there := h.class("kube:voice"); return there })
	got, _ := h.class("kube:voice")
	if got.Color != 100 || !got.Strict || got.Priority != 5 || got.Match.PodLabels["app"] != "web" || got.Match.Namespaces[0] != "shop" || got.Match.DSCP[0] != 46 || got.Rank != 0 {
		t.Errorf("class %+v", got)
	}
	if own, _ := h.class("kube:own"); !own.Match.Host || len(own.Match.DSCP) != 1 {
		t.Errorf("class %+v", own)
	}
	if blue, _ := h.class("kube:blue"); len(blue.Match.VLANs) != 1 || blue.Match.Interfaces[0] != "eth1" || blue.Match.Sources[0] != prefix("10.1.0.0/16") {
		t.Errorf("class %+v", blue)
	}
	c.waitsState(classResource, "open", stateRefused, "claims are for packets of pods")
	c.waitsState(classResource, "both", stateRefused, "these do not go together")
	c.waitsState(classResource, "db", stateWaiting, "there is no Service shop/db, or it has no endpoints")
	c.waitsState(classResource, "wrong", stateRefused, "spec.color: is missing")
	c.waitsState(classResource, "wrong", stateRefused, "spec.match.dscp[0]: 64 is not a DSCP")
	c.waitsState(classResource, "half", stateRefused, "give namespace and name")
	c.waitsState(classResource, "voice", stateWaiting, "not judged")
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Valid: true, Active: true, Why: "well"}})
	c.waitsState(classResource, "voice", stateActive, "well")
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Active: true, Why: "no policy has color 100"}})
	c.waitsState(classResource, "voice", stateInvalid, "no policy has color 100")

	c.apply(sliceResource, endpointsOfDB)
	waits(t, "the Service", func() bool { db, _ := h.class("kube:db"); return len(db.Match.Destinations) == 3 })
	if db, _ := h.class("kube:db"); db.Match.Destinations[2] != prefix("10.244.2.9/32") {
		t.Errorf("class %+v", db)
	}
	// A watcher that knows all of it reports nothing.
	stop()
	_, h, _ = c.starts(Known{Classes: h.classes})
	c.apply(sliceResource, strings.Replace(endpointsOfDB, "10.244.2.7", "10.244.2.8", 1))
	waits(t, "another endpoint", func() bool {
		db, _ := h.class("kube:db")
		return len(db.Match.Destinations) == 3 && db.Match.Destinations[1] == prefix("10.244.2.8/32")
	})
	if said := h.take(); strings.Count(said, "classes") != 1 {
		t.Errorf("observed %s", said)
	}
	c.must(c.objects.Tracker().Delete(classResource, "", "voice"))
	waits(t, "it is gone", func() bool { _, there := h.class("kube:voice"); return !there })
}

// A claim takes what its class lets it take, for its own namespace.
func TestClaims(t *testing.T) {
	c := newCluster(t)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: gold}, spec: {color: 7, priority: 3, claimable: true, match: {namespaces: [shop, bank], dscp: [10, 46]}}}`)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: ours}, spec: {color: 8}}`)
	claim := func(name, spec string) {
		namespace, short, _ := strings.Cut(name, "/")
		c.apply(claimResource, `{kind: SRv6TrafficClassClaim, metadata: {name: `+short+`, namespace: `+namespace+`}, spec: `+spec+`}`)
	}
	w, h, _ := c.starts(Known{})
	c.waitsState(classResource, "gold", stateWaiting, "no SRv6TrafficClassClaim takes it")
	claim("shop/web", `{class: gold, match: {podLabels: {app: web}, dscp: [46]}}`)
	claim("shop/zebra", `{class: gold, match: {podLabels: {app: zebra}}}`)
	claim("shop/wide", `{class: gold, match: {dscp: [12]}}`)
	claim("spare/all", `{class: gold}`)
	claim("shop/ours", `{class: ours}`)
	claim("shop/none", `{class: silver}`)
	claim("shop/host", `{class: gold, match: {host: true}}`)
	claim("shop/wire", `{class: gold, match: {sources: [10.0.0.0/8]}}`)
	c.waitsState(claimResource, "shop/wide", stateRefused, "spec.match.dscp[0]: 12 is beyond what the class has: [10 46]")
	for _, name := range []string{"shop/host", "shop/wire"} { // of others than its pods
		c.waitsState(claimResource, name, stateRefused, "a claim is for packets of its namespace's pods")
	}
	c.waitsState(claimResource, "spare/all", stateRefused, "spec.match.namespaces[0]: spare is beyond what the class has: [shop bank]")
	c.waitsState(claimResource, "shop/ours", stateRefused, "is not claimable")
	c.waitsState(claimResource, "shop/none", stateWaiting, "no SRv6TrafficClass is called silver")
	c.waitsState(classResource, "gold", stateActive, "claims that take it: 2")
	got, _ := h.class("kube:shop:web")
	if got.Color != 7 || got.Priority != 3 || got.Rank != 1 || len(got.Match.Namespaces) != 1 || got.Match.Namespaces[0] != "shop" || got.Match.PodLabels["app"] != "web" || len(got.Match.DSCP) != 1 {
		t.Errorf("class %+v", got)
	}
	if second, _ := h.class("kube:shop:zebra"); second.Rank != 2 || len(second.Match.DSCP) != 2 {
		t.Errorf("class %+v", second)
	}
	if _, there := h.class("kube:gold"); there {
		t.Error("packets that nobody has claimed have a class that is to be claimed")
	}
	w.SetVerdicts([]Verdict{{Path: "kube:shop:web", Valid: true, Active: true}})
	c.waitsState(claimResource, "shop/web", stateActive, "")
}

func TestPodLabels(t *testing.T) {
	c := newCluster(t)
	pod := func(labels map[string]string) *metav1.PartialObjectMetadata {
		m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		m.Name, m.Namespace, m.Labels = "web-0", "shop", labels
		return m
	}
	c.must(c.meta.Tracker().Create(podResource, pod(map[string]string{"app": "web"}), "shop"))
	w, h, _ := c.starts(Known{})
	is := func(want string) func() bool {
		return func() bool {
			labels, known := w.PodLabels("shop", "web-0")
			return known && labels["app"] == want && h.has(func(h *observed) bool { return h.pods > 0 })
		}
	}
	waits(t, "a pod", is("web"))
	if _, known := w.PodLabels("shop", "web-1"); known {
		t.Error("a pod is known that does not exist")
	}
	h.has(func(h *observed) bool { h.pods = 0; return true })
	c.must(c.meta.Tracker().Update(podResource, pod(map[string]string{"app": "db"}), "shop"))
	waits(t, "other labels", is("db"))
}
