//go:build apiserver

package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// keepsToItself: an agent can neither speak for another node nor change its own.
func (s *server) keepsToItself(t *testing.T, host string) {
	s.apply(t, nodeObject("node-9", nil))
	api := s.agent(t, me, host)
	nodes := api.objects.Resource(nodeResource)
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it to be denied", what, err)
		}
	}
	denied("another node's annotation", annotate(t.Context(), nodes, "node-9", NodeAnnotation, "{}"))
	_, err := nodes.Patch(t.Context(), me, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"rack":"b"}}}`), metav1.PatchOptions{})
	denied("its own labels", err)
	_, err = nodes.Patch(t.Context(), me, "application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	denied("its own spec", err)
	for what, change := range map[string]string{
		"its own finalizers":  `{"metadata":{"finalizers":["example.org/stuck"]}}`,
		"its own owner":       `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"node-9","uid":"1"}]}}`,
		"others' annotations": `{"metadata":{"annotations":{"example.org/x":"y"}}}`,
	} {
		_, err = nodes.Patch(t.Context(), me, "application/merge-patch+json", []byte(change), metav1.PatchOptions{})
		denied(what, err)
	}
	maps := api.objects.Resource(configMapResource).Namespace(namespace)
	patched := func(what string, r dynamic.ResourceInterface, name, change string, sub ...string) {
		t.Helper()
		_, err := r.Patch(t.Context(), name, "application/merge-patch+json", []byte(change), metav1.PatchOptions{}, sub...)
		denied(what, err)
	}
	patched("its own policies", maps, ListingName(me), `{"data":{"policies.yaml":"x"}}`)
	patched("finalizers of its own policies", maps, ListingName(me), `{"metadata":{"finalizers":["example.org/stuck"]}}`)
	patched("labels of its own policies", maps, ListingName(me), `{"metadata":{"labels":{"culvert.net/locator":""}}}`)
	patched("others' annotations of its own policies", maps, ListingName(me), `{"metadata":{"annotations":{"example.org/x":"y"}}}`)
	denied("the agents' configuration", annotate(t.Context(), maps, "culvert", "x", "y"))
	denied("the agents' configuration, deleted", maps.Delete(t.Context(), "culvert", metav1.DeleteOptions{}))
	denied("its own policies, deleted", maps.Delete(t.Context(), ListingName(me), metav1.DeleteOptions{}))
	_, err = api.objects.Resource(policyResource).Apply(t.Context(), "mine", policyObject("mine", spec(nil)), metav1.ApplyOptions{FieldManager: "x"})
	denied("a policy", err)
	s.status(t, api, denied)
	s.events(t, api, denied)
}

// status: an agent changes no other node's entry in the status of an object.
func (s *server) status(t *testing.T, api connection, denied func(string, error)) {
	entry := func(name, state string) map[string]any { return map[string]any{"name": name, "state": state} }
	policies := api.objects.Resource(policyResource)
	u := policyObject("shared", spec(nil))
	s.apply(t, u)
	var others []any
	for i := range 150 {
		others = append(others, entry(fmt.Sprintf("far-%03d", i), stateActive))
	}
	said := func(nodes ...any) *unstructured.Unstructured {
		u := policyObject("shared", spec(nil))
		delete(u.Object, "spec")
		u.Object["status"] = map[string]any{"nodes": nodes}
		return u
	}
	if _, err := s.objects.Resource(policyResource).ApplyStatus(t.Context(), "shared", said(others...), metav1.ApplyOptions{FieldManager: "others"}); err != nil {
		t.Fatal(err)
	}
	apply := func(nodes ...any) error {
		_, err := policies.ApplyStatus(t.Context(), "shared", said(nodes...), metav1.ApplyOptions{FieldManager: "culvert:" + me, Force: true})
		return err
	}
	denied("another node's entry", apply(entry("far-007", stateInvalid)))
	denied("an entry for another node", apply(entry(me, stateActive), entry("far-200", stateActive)))
	_, err := policies.Patch(t.Context(), "shared", "application/merge-patch+json", []byte(`{"status":{"nodes":[]}}`), metav1.PatchOptions{}, "status")
	denied("no entries", err)
	for _, state := range []string{stateStandby, stateActive} {
		if err := apply(entry(me, state)); err != nil {
			t.Errorf("its own entry: %v", err)
		}
	}
	summarize := func(text string) error {
		u := said()
		u.Object["status"] = map[string]any{"summary": text}
		_, err := policies.ApplyStatus(t.Context(), "shared", u, metav1.ApplyOptions{FieldManager: summaryManager, Force: true})
		return err
	}
	denied("a summary that nobody has counted", summarize("151/151 Standby"))
	// The agent may have removed its own entry by now.
	denied("one that leaves nodes out", summarize("149/149 Active"))
	s.waits(t, "the summary", func() error { // the agent itself writes both
		got := s.kubectl(t, "root", "get", "srp", "shared")
		return want(strings.Contains(got, " 150/151 Active, 1/151 Waiting   node-1: Waiting: the node has not judged it yet "), "%s", got)
	})
	if err := apply(); err != nil {
		t.Errorf("its own entry, removed: %v", err)
	}
	if got := s.get(t, u); statusNodes(got) != int64(len(others)) {
		t.Errorf("%d entries are left", statusNodes(got))
	}
	if err := s.of(u).Delete(t.Context(), "shared", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// events: an agent says events of its own node's policies only.
func (s *server) events(t *testing.T, api connection, denied func(string, error)) {
	event := func(change func(map[string]any)) error {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Event",
			"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": ListingName(me)},
			"source":         map[string]any{"component": "culvert", "host": me}, "type": "Warning", "reason": "Other", "message": "x"}}
		u.SetGenerateName("x-")
		u.SetNamespace(namespace)
		change(u.Object)
		_, err := api.objects.Resource(eventResource).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	if err := event(func(map[string]any) {}); err != nil {
		t.Errorf("an event of its own policies: %v", err)
	}
	denied("another node's event", event(func(o map[string]any) { o["source"] = map[string]any{"component": "culvert", "host": "node-9"} }))
	denied("another component's event", event(func(o map[string]any) { o["source"] = map[string]any{"component": "kubelet", "host": me} }))
	denied("an event of a pod", event(func(o map[string]any) {
		o["involvedObject"] = map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "x"}
	}))
	denied("an event of another node's policies", event(func(o map[string]any) {
		o["involvedObject"].(map[string]any)["name"] = ListingName("node-9")
	}))
}

// takesNoClaim: an agent claims for its own node only, and changes and releases no other
// node's claims.
func (s *server) takesNoClaim(t *testing.T) {
	s.apply(t, nodeObject("node-9", nil))
	uid := func(node string) types.UID { return s.get(t, nodeObject(node, nil)).GetUID() }
	api := s.agent(t, me, s.admin.Host)
	maps := api.objects.Resource(configMapResource).Namespace(namespace)
	of := func(node, locator string) *unstructured.Unstructured {
		return (&locatorClaim{node: node, owner: uid(node), locator: prefix(locator)}).object(namespace)
	}
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it to be denied", what, err)
		}
	}
	create := func(u *unstructured.Unstructured) error {
		_, err := maps.Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	others, own := of("node-9", "fc00:0:789::/48"), of(me, "fc00:0:781::/48")
	s.apply(t, others)
	if err := create(of(me, "fc00:0:789::/48")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("another node's locator, for itself: %v", err)
	}
	denied("a locator for another node", create(of("node-9", "fc00:0:788::/48")))
	for what, change := range map[string]func(*unstructured.Unstructured){
		"a name of another locator": func(u *unstructured.Unstructured) { u.SetName(ClaimName(prefix("fc00:0:782::/48"))) },
		"a name of no locator":      func(u *unstructured.Unstructured) { u.SetName("coredns") },
		"an owner of another name":  func(u *unstructured.Unstructured) { u.SetOwnerReferences(others.GetOwnerReferences()) },
		"no owner":                  func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
		"two owners": func(u *unstructured.Unstructured) {
			u.SetOwnerReferences(append(u.GetOwnerReferences(), others.GetOwnerReferences()...))
		},
		"an owner that it blocks": func(u *unstructured.Unstructured) {
			o := u.GetOwnerReferences()
			o[0].BlockOwnerDeletion = new(bool)
			u.SetOwnerReferences(o)
		},
		"finalizers":    func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.org/stuck"}) },
		"annotations":   func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"x": "y"}) },
		"no label":      func(u *unstructured.Unstructured) { u.SetLabels(nil) },
		"another label": func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{ClaimLabel: "", "x": "y"}) },
		"more data": func(u *unstructured.Unstructured) {
			u.Object["data"] = map[string]any{"node": me, "locator": "fc00:0:781::/48", "x": "y"}
		},
		"another node": func(u *unstructured.Unstructured) {
			u.Object["data"] = map[string]any{"node": "node-9", "locator": "fc00:0:781::/48"}
		},
	} {
		u := own.DeepCopy()
		change(u)
		denied("a claim with "+what, create(u))
	}
	for locator, name := range map[string]string{"fc00::/32": "fc00----32", "fd78:1::/48": "fd78-1---48", "fc00:1::/48": "fc00-1---48", "fc00:0:781::/64": "fc00-0-781---64", "FC00:0:781::/48": "fc00-0-781---48", "fc00:0:781:0::/48": "fc00-0-781-0---48",
		"fc00:0:781::1/48": "fc00-0-781--1-48", "10.0.0.0/48": "10.0.0.0-48", "x": "x"} {
		u := own.DeepCopy()
		u.SetName("culvert-locator-" + name)
		u.Object["data"] = map[string]any{"node": me, "locator": locator}
		denied("a claim of "+locator, create(u))
	}
	if err := create(own); err != nil {
		t.Errorf("its own claim: %v", err)
	}
	for what, change := range map[string]string{
		"to another node": `{"data":{"node":"node-1"}}`, "to nobody": `{"data":null}`, "to another owner": `{"metadata":{"ownerReferences":null}}`,
		"with a finalizer": `{"metadata":{"finalizers":["example.org/stuck"]}}`, "with an annotation": `{"metadata":{"annotations":{"culvert.net/x":"y"}}}`,
	} {
		for _, u := range []*unstructured.Unstructured{others, own} {
			if u == own && what == "to another node" {
				continue // it changes nothing
			}
			_, err := maps.Patch(t.Context(), u.GetName(), "application/merge-patch+json", []byte(change), metav1.PatchOptions{})
			denied(u.GetName()+" changed "+what, err)
		}
	}
	denied("another node's claim, released", maps.Delete(t.Context(), others.GetName(), metav1.DeleteOptions{}))
	denied("all claims, released", maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ClaimLabel}))
	s.apply(t, earlierObject(map[string]any{"node-9": "fc00:0:789::/48"}))
	_, err := maps.Patch(t.Context(), LocatorsName, "application/merge-patch+json", []byte(`{"data":{"node-1":"fc00:0:783::/48"}}`), metav1.PatchOptions{})
	denied("an entry of earlier builds", err)
	if err := maps.Delete(t.Context(), own.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Errorf("its own claim, released: %v", err)
	}
	s.waits(t, "it claims again", func() error { return create(own) })
	s.oneLocator(t, maps, func(locator string) *unstructured.Unstructured { return of(me, locator) })
	for _, u := range []*unstructured.Unstructured{others, earlierObject(nil)} {
		if err := s.of(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// oneLocator: an agent that has claimed a locator claims no other one. Of claims at one moment some
// may pass, until the API server knows of the first.
func (s *server) oneLocator(t *testing.T, maps dynamic.ResourceInterface, of func(locator string) *unstructured.Unstructured) {
	create := func(i int) error {
		_, err := maps.Create(t.Context(), of(fmt.Sprintf("fc00:0:%x::/48", 0x100+i)), metav1.CreateOptions{})
		return err
	}
	isDenied := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
	s.waits(t, "a second locator is denied", func() error {
		err := create(0)
		return want(isDenied(err), "%v", err)
	})
	var passed atomic.Int32
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if err := create(1 + i); err == nil {
				passed.Add(1)
			} else if !isDenied(err) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n > 0 {
		t.Errorf("%d of 100 more locators were claimed", n)
	}
	s.releaseAll(t, maps)
	for i := range 100 {
		all.Go(func() {
			if err := create(101 + i); err == nil {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("of 100 claims at one moment, without one before, %d pass", passed.Load())
	s.waits(t, "and then no other one", func() error {
		err := create(201)
		return want(isDenied(err), "%v", err)
	})
	s.releaseAll(t, maps)
}

// releaseAll has an agent release its node's claims. Then it can claim again.
func (s *server) releaseAll(t *testing.T, maps dynamic.ResourceInterface) {
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: ClaimLabel})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list.Items {
		if readLocatorClaim(&u).node != me {
			continue
		}
		if err := maps.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// earlierObject is the ConfigMap of nodes' locators of earlier builds.
func earlierObject(data map[string]any) *unstructured.Unstructured {
	u := listingObject("")
	u.SetName(LocatorsName)
	u.Object["data"] = data
	return u
}

// claimed: nodes that claim at the same time get different locators, one that has had one
// with an earlier build keeps it, and Kubernetes releases the locator of a Node that is gone.
func (s *server) claimed(t *testing.T) {
	const n = 12
	pool := prefix("fc00:0:7700::/44") // of 16 locators, 15 that are claimed
	s.apply(t, earlierObject(map[string]any{"c-03": "fc00:0:770b::/48", "c-04": "fc00:0:770c::/48"}))
	got := make([]netip.Prefix, n)
	var all sync.WaitGroup
	for i := range n { // a node that is gone keeps nothing
		s.apply(t, nodeObject(fmt.Sprintf("c-%02d", i), nil))
	}
	for i := range n {
		name := fmt.Sprintf("c-%02d", i)
		w, _, _ := starts(t, s.agent(t, name, s.admin.Host), Config{Node: name, Namespace: namespace, Trust: Trust{Pool: prefix(testPool)}}, Known{})
		all.Go(func() {
			var err error
			if got[i], err = w.Claim(t.Context(), pool); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	seen := map[netip.Prefix]int{}
	for i, p := range got {
		if first, twice := seen[p]; twice || !pool.Contains(p.Addr()) || p.Bits() != 48 {
			t.Errorf("node %d has %s, and so has %d", i, p, first)
		}
		seen[p] = i
	}
	if got[3] != prefix("fc00:0:770b::/48") || got[4] != prefix("fc00:0:770c::/48") {
		t.Errorf("what they had before: %s and %s", got[3], got[4])
	}
	s.collects(t)
	if err := s.objects.Resource(nodeResource).Delete(t.Context(), "c-05", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waits(t, "the claim is released", func() error {
		list, err := s.objects.Resource(configMapResource).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: ClaimLabel})
		if err != nil {
			return err
		}
		gone := !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return readLocatorClaim(&u).node == "c-05" })
		return want(gone && len(list.Items) == n-1, "%d claims", len(list.Items))
	})
}
