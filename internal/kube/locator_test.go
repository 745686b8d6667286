package kube

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/culvert-net/culvert/internal/overlay"
)

func TestNextLocator(t *testing.T) {
	for want, tt := range map[string]struct {
		pool  string
		taken []string
	}{
		"fc00:0:1::/48":    {"fc00::/32", nil},
		"fc00:0:3::/48":    {"fc00::/32", []string{"fc00:0:2::/48"}},                     // behind the last one
		"fc00:0:100::/48":  {"fc00::/32", []string{"fc00:0:ff::/48"}},                    // with a carry
		"fc00:0:2::/48":    {"fc00::/32", []string{"fc00:0:1::/48", "fc00:0:ffff::/48"}}, // the first that is free
		"fd00:0:1::/48":    {"fd00::/32", []string{"fc00:0:9::/48", "fd01:0:1::/48"}},    // others' are none of this pool
		"fc00:0:8::/48":    {"fc00::/32", []string{"fc00:0:4::/46"}},                     // of another length
		"fc00:0:11::/48":   {"fc00:0:10::/44", nil},
		"":                 {"fc00:0:10::/47", []string{"fc00:0:11::/48"}},
		"no locator at al": {"fc00::/32", []string{"fc00::/16"}},
	} {
		var taken []netip.Prefix
		for _, p := range tt.taken {
			taken = append(taken, prefix(p))
		}
		got, err := nextLocator(prefix(tt.pool), 48, taken)
		if !strings.Contains(want, ":") {
			if !errors.Is(err, ErrPoolExhausted) {
				t.Errorf("%s without %v: %s, %v", tt.pool, tt.taken, got, err)
			}
			continue
		}
		if err != nil || got != prefix(want) {
			t.Errorf("%s without %v: %s, %v, want %s", tt.pool, tt.taken, got, err, want)
		}
	}
}

func (c *cluster) claims() map[string]string {
	o, err := c.objects.Tracker().Get(configMapResource, namespace, LocatorsName)
	if err != nil {
		return nil
	}
	data, _, err := unstructured.NestedStringMap(o.(*unstructured.Unstructured).Object, "data")
	c.must(err)
	return data
}

func TestClaim(t *testing.T) {
	c := newCluster(t)
	c.says(other("node-2", "2001:db8::2")) // it has fc00:0:2::/48 without a claim
	w, _, stop := c.starts(Known{Nodes: []overlay.Node{other("node-2", "2001:db8::2")}})
	waits(t, "it has begun", func() bool { return w.Status().Nodes == 1 })
	pool := prefix("fc00::/32")
	const own = "fc00:0:3::/48"
	if got, err := w.Claim(t.Context(), pool, 48); err != nil || got != prefix(own) {
		t.Fatalf("claimed %s, %v", got, err)
	}
	for range 2 {
		if got, err := w.Claim(t.Context(), pool, 48); err != nil || got != prefix(own) {
			t.Errorf("claimed again: %s, %v", got, err)
		}
	}
	stop()

	// Another one claims, and is in conflict at first; then it is gone.
	c.node("node-0", nil)
	first, err := newWatcher(Config{Node: "node-0", Namespace: namespace}, c.connection())
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	c.objects.PrependReactor("update", "configmaps", func(a ktesting.Action) (handled bool, _ runtime.Object, _ error) {
		once.Do(func() {
			u := a.(ktesting.UpdateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
			c.must(unstructured.SetNestedStringMap(u.Object, map[string]string{me: own, "node-7": "fc00:0:4::/48"}, "data"))
			u.SetResourceVersion("another")
			c.must(c.objects.Tracker().Update(configMapResource, u, namespace))
		})
		return false, nil, nil
	})
	if got, err := first.Claim(t.Context(), pool, 48); err != nil || got != prefix("fc00:0:5::/48") {
		t.Errorf("claimed %s, %v", got, err)
	}
	if _, err := first.Claim(t.Context(), prefix("fd00::/47"), 48); err != nil {
		t.Errorf("of another pool: %v", err)
	}
	if len(c.claims()) != 3 || c.claims()["node-0"] != "fd00:0:1::/48" {
		t.Errorf("claims are %v", c.claims())
	}
	// node-7 has no Node; the first of the nodes releases what it had.
	w, _, _ = starts(t, c.connection(), Config{Node: "node-0", Namespace: namespace}, Known{})
	if _, err := w.Claim(t.Context(), prefix("fd00::/47"), 48); err != nil {
		t.Error(err)
	}
	waits(t, "it observes nodes that go", func() bool { // the fakes send nothing between a list and a watch
		return slices.ContainsFunc(c.meta.Actions(), func(a ktesting.Action) bool { return a.GetVerb() == "watch" })
	})
	c.deleteNode(me)
	waits(t, "claims of nodes that are gone are released", func() bool { return len(c.claims()) == 1 })
}

// A pool is full until somebody's claim is released, and claims of nodes that went
// before this one began are.
func TestClaimOfAFullPool(t *testing.T) {
	c := newCluster(t)
	c.put(configMapResource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": LocatorsName, "namespace": namespace, "resourceVersion": "1"},
		"data": map[string]any{"node-7": "fd00:0:1::/48"},
	}})
	w, _, _ := c.starts(Known{})
	waits(t, "it knows the nodes", func() bool { return w.Status().Complete })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if p, err := w.Claim(ctx, prefix("fd00::/47"), 48); err != nil || p != prefix("fd00:0:1::/48") {
		t.Errorf("claimed %s, %v", p, err)
	}
}

func TestClaimGoesOnAsking(t *testing.T) {
	c := newCluster(t)
	c.objects.PrependReactor("get", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	w, _, _ := c.starts(Known{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if p, err := w.Claim(ctx, prefix("fc00::/32"), 48); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claimed %s, %v", p, err)
	}
}
