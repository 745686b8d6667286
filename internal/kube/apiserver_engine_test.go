//go:build apiserver

package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// engineOf is an engine with the rights of the chart's service account, and no others, by a host.
func (s *server) engineOf(t *testing.T, host string) *Engine {
	t.Helper()
	c := &rest.Config{Host: host, BearerToken: s.token(t, "culvert-te", nil), TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return &Engine{config: c, api: connection{objects, meta, newDialer()}}
}

// install applies what the chart has for an engine, and returns it by kind.
func (s *server) install(t *testing.T, values map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, u := range objectsIn(t, render(t, values)) {
		if strings.HasPrefix(u.GetName(), "culvert-te") {
			s.apply(t, u)
			out[u.GetKind()] = u
		}
	}
	return out
}

// An engine with the rights of the chart does all that it has to, and nothing else. Of two that
// share a Lease the other one takes over from one whose API server is away for it.
func TestEngineOnAPIServer(t *testing.T) {
	s := newServer(t)
	s.install(t, map[string]any{"te": map[string]any{"enabled": true}})
	s.apply(t, nodeObject("node-2", other("node-2", "2001:db8::2")))
	e := s.engineOf(t, s.admin.Host)
	paths, err := e.Paths("te")
	if err != nil {
		t.Fatal(err)
	}
	s.waits(t, "the engine has its rights, and the API server node-2 in memory", func() error {
		members, _, err := e.Nodes(t.Context(), namespace, Trust{Accept: anything})
		if err != nil {
			return err
		}
		return want(len(members) == 1 && members[0].Name == "node-2", "members %+v", members)
	})
	members, absent, err := s.engineOf(t, s.admin.Host).Nodes(t.Context(), namespace, Trust{Pool: prefix(testPool)})
	if err != nil || len(members) != 0 || !slices.ContainsFunc(absent, func(a Absent) bool { return a.Node == "node-2" && strings.Contains(a.Why, "no InternalIP") }) {
		t.Errorf("nobody vouches for node-2: members %+v, absent %+v, %v", members, absent, err)
	}
	both := []EnginePath{enginePath(6, "fc00:0:3:1::", "fc00:0:2:6::"), enginePath(100, "fc00:0:2:6::")}
	versions := func() (all []string) {
		for _, a := range both {
			all = append(all, s.get(t, policyObject(paths.objectName(me, a), nil)).GetResourceVersion())
		}
		return all
	}
	if err := paths.Put(t.Context(), me, both); err != nil {
		t.Fatal(err)
	}
	before := versions()
	if err := paths.Put(t.Context(), me, both); err != nil || strings.Join(versions(), " ") != strings.Join(before, " ") {
		t.Errorf("what is good has changed: %v", err)
	}
	both[0] = enginePath(6, "fc00:0:2:6::")
	if err := paths.Put(t.Context(), me, both); err != nil || versions()[0] == before[0] || versions()[1] != before[1] {
		t.Errorf("one path changes, and no other: %v", err)
	}
	if err := paths.Remove(t.Context(), me, both[1:]); err != nil {
		t.Errorf("to delete its own: %v", err)
	}
	t.Run("rights", func(t *testing.T) { s.engineRights(t, e) })
	t.Run("color", func(t *testing.T) { s.colors(t) })
	t.Run("lease", func(t *testing.T) { s.leased(t) })
}

// engineRights: what the engine must not do is denied.
func (s *server) engineRights(t *testing.T, e *Engine) {
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it to be denied", what, err)
		}
	}
	s.apply(t, policyObject("core", spec(nil)))
	policies := e.api.objects.Resource(policyResource)
	s.waits(t, "the API server has the admission policy in memory", func() error {
		_, err := policies.Create(t.Context(), policyObject("bare", spec(nil)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return want(apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
	})
	core := s.get(t, policyObject("core", nil))
	core.SetLabels(map[string]string{EngineLabel: "te"})
	_, err := policies.Update(t.Context(), core, metav1.UpdateOptions{})
	denied("to take over an operator's policy", err)
	_, err = policies.Create(t.Context(), policyObject("bare", spec(nil)), metav1.CreateOptions{})
	denied("a policy without its label", err)
	foreign := policyObject("foreign", spec(nil))
	foreign.SetLabels(map[string]string{EngineLabel: "another"})
	_, err = policies.Create(t.Context(), foreign, metav1.CreateOptions{})
	denied("a policy of another engine", err)
	denied("to delete one", policies.Delete(t.Context(), "core", metav1.DeleteOptions{}))
	_, err = policies.List(t.Context(), metav1.ListOptions{})
	denied("to list them", err)
	lease := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "another", "namespace": namespace}}}
	_, err = e.api.objects.Resource(leaseResource).Namespace(namespace).Create(t.Context(), lease, metav1.CreateOptions{})
	denied("another lease", err)
	configMaps := e.api.objects.Resource(configMapResource)
	_, err = configMaps.List(t.Context(), metav1.ListOptions{LabelSelector: ClaimLabel})
	denied("ConfigMaps of other namespaces", err)
	claim := claimOf("node-2", "fc00:0:2::/48")
	claim.SetUID("")
	claim.SetResourceVersion("")
	_, err = configMaps.Namespace(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	denied("a claim", err)
	denied("a Node's annotation", annotate(t.Context(), e.api.objects.Resource(nodeResource), "node-2", NodeAnnotation, "{}"))
	everywhere := e.api.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"})
	_, err = everywhere.Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	denied("secrets", err)
}

// colors: a policy has traffic or a color.
func (s *server) colors(t *testing.T) {
	color := func(f map[string]any) { delete(f, "traffic"); f["color"] = int64(100) }
	s.apply(t, policyObject("colored", spec(color)))
	for words, change := range map[string]func(map[string]any){
		"give either traffic or color":             func(f map[string]any) { f["color"] = int64(100) },
		"give either traffic or color ":            func(f map[string]any) { delete(f, "traffic") },
		"should be greater than or equal to 1":     func(f map[string]any) { color(f); f["color"] = int64(0) },
		"should be less than or equal to 42949672": func(f map[string]any) { color(f); f["color"] = int64(1) << 32 },
	} {
		if err := s.tryApply(t.Context(), policyObject("wrong", spec(change))); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(words)) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}

// leased: one holds the lease, loses it when its API server is away, and the other one takes over.
func (s *server) leased(t *testing.T) {
	proxy := newProxy(t, s)
	times := LeaseFor(6 * time.Second)
	start := func(host string) *Lease {
		l, err := s.engineOf(t, host).Lease(namespace, "culvert-te", times, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		t.Cleanup(func() {
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return l
	}
	first := start(proxy.url)
	var held context.Context
	s.waits(t, "the first one has the lease", func() error {
		var has bool
		held, has = first.Held()
		return want(has, "%+v", first.State())
	})
	second := start(s.admin.Host)
	s.waits(t, "the second one sees that", func() error { return want(second.State().Holder == first.identity, "%+v", second.State()) })
	t.Cleanup(proxy.hold()) // its writes hang
	s.waits(t, "the first one has lost it", func() error { return want(held.Err() != nil, "%+v", first.State()) })
	if _, has := second.Held(); has {
		t.Error("two have held it at the same time")
	}
	s.waits(t, "the second one takes over", func() error { return want(second.State().Held, "%+v", second.State()) })
	if first.State().Held {
		t.Error("both say that they hold it")
	}
}
