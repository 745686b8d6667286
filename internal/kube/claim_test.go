package kube

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
)

// claimOf is the ConfigMap by which a node claims a locator.
func claimOf(node, locator string) *unstructured.Unstructured {
	u := (&locatorClaim{node: node, owner: types.UID("uid of " + node), locator: prefix(locator)}).object(namespace)
	u.SetUID(types.UID("claim of " + node + " of " + locator))
	u.SetResourceVersion("1")
	return u
}

// claimants are the nodes that have claims, by locator.
func (c *cluster) claimants() map[string]string {
	list, err := c.objects.Tracker().List(configMapResource, configMapResource.GroupVersion().WithKind("ConfigMap"), namespace)
	c.must(err)
	out := map[string]string{}
	for _, u := range list.(*unstructured.UnstructuredList).Items {
		if claim := readLocatorClaim(&u); claim.locator.IsValid() {
			out[claim.locator.String()] = claim.node
		}
	}
	return out
}

// earlier makes the ConfigMap of earlier builds.
func (c *cluster) earlier(data map[string]any) {
	c.put(configMapResource, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": LocatorsName, "namespace": namespace, "resourceVersion": "1"}, "data": data}})
}

func TestClaim(t *testing.T) {
	pool := prefix("fc00::/32")
	for name, tt := range map[string]struct {
		before func(*cluster)
		want   string // this node's locator
		others string // claim that is there afterwards
	}{
		"of an empty pool":                   {func(*cluster) {}, "fc00:0:1::/48", ""},
		"beside a claim":                     {func(c *cluster) { c.put(configMapResource, claimOf("node-2", "fc00:0:1::/48")) }, "fc00:0:2::/48", "fc00:0:1::/48"},
		"beside what a node says that it is": {func(c *cluster) { c.says(other("node-2", "2001:db8::2")) }, "fc00:0:3::/48", ""},
		"that it has":                        {func(c *cluster) { c.put(configMapResource, claimOf(me, "fc00:0:7::/48")) }, "fc00:0:7::/48", ""},
		"that its former Node had": {func(c *cluster) {
			u := claimOf(me, "fc00:0:7::/48")
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: me, UID: "former"}})
			c.put(configMapResource, u)
		}, "fc00:0:7::/48", ""},
		"of another pool than before":     {func(c *cluster) { c.put(configMapResource, claimOf(me, "fd00:0:7::/48")) }, "fc00:0:1::/48", ""},
		"that it had of an earlier build": {func(c *cluster) { c.earlier(map[string]any{me: "fc00:0:7::/48"}) }, "fc00:0:7::/48", ""},
		"beside a node of an earlier build": {func(c *cluster) {
			c.node("node-2", nil)
			c.earlier(map[string]any{"node-2": "fc00:0:7::/48"})
		}, "fc00:0:8::/48", ""},
		"of a node of an earlier build that is gone": {func(c *cluster) { c.earlier(map[string]any{"node-2": "fc00:0:1::/48"}) }, "fc00:0:1::/48", ""},
		"of a node that claims another one now": {func(c *cluster) {
			c.node("node-2", nil)
			c.earlier(map[string]any{"node-2": "fc00:0:1::/48"})
			c.put(configMapResource, claimOf("node-2", "fc00:0:2::/48"))
		}, "fc00:0:3::/48", "fc00:0:2::/48"},
		"that another node has claimed since": {func(c *cluster) {
			c.earlier(map[string]any{me: "fc00:0:7::/48"})
			c.put(configMapResource, claimOf("node-2", "fc00:0:7::/48"))
		}, "fc00:0:8::/48", "fc00:0:7::/48"},
		"with a name that nobody's claim has": {func(c *cluster) {
			u := claimOf("node-2", "fc00:0:1::/48")
			u.SetLabels(nil)
			c.put(configMapResource, u)
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			tt.before(c)
			w, _, _ := c.starts(Known{})
			waits(t, "it knows the nodes", func() bool { return w.Status().Complete })
			for range 2 {
				got, err := w.Claim(t.Context(), pool)
				if err != nil || tt.want != "" && got != prefix(tt.want) {
					t.Fatalf("claimed %s, %v, want %s", got, err, tt.want)
				}
				if got == prefix("fc00:0:1::/48") && tt.want == "" {
					t.Error("claimed what exists")
				}
			}
			now := c.claimants()
			if tt.want != "" && now[tt.want] != me || tt.others != "" && now[tt.others] == me || tt.others != "" && now[tt.others] == "" {
				t.Errorf("claims are %v", now)
			}
			mine := 0
			for _, node := range now {
				if node == me {
					mine++
				}
			}
			if mine != 1 {
				t.Errorf("this node has %d claims: %v", mine, now)
			}
		})
	}
}

// The API server lets one of two nodes create a claim. The other one takes another locator.
func TestClaimLost(t *testing.T) {
	c := newCluster(t)
	lost := 0
	c.objects.PrependReactor("create", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		u := a.(ktesting.CreateAction).GetObject().(*unstructured.Unstructured)
		if lost++; lost <= 3 {
			c.must(c.objects.Tracker().Create(configMapResource, claimOf("node-2", readLocatorClaim(u).locator.String()), namespace))
		}
		return false, nil, nil
	})
	w, _, _ := c.starts(Known{})
	waits(t, "it knows the nodes", func() bool { return w.Status().Complete })
	got, err := w.Claim(t.Context(), prefix("fc00::/32"))
	if err != nil || c.claimants()[got.String()] != me || len(c.claimants()) != 4 {
		t.Errorf("claimed %s, %v: claims are %v", got, err, c.claimants())
	}
}

// Somebody deletes the claim of a running node: it claims the same again.
func TestClaimDeleted(t *testing.T) {
	c := newCluster(t)
	w, h, _ := c.starts(Known{})
	waits(t, "it knows the nodes", func() bool { return w.Status().Complete })
	pool := prefix("fc00::/32")
	own, err := w.Claim(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	waits(t, "it knows its claim", func() bool { return len((claimer{w}).allClaims()) == 1 })
	c.put(configMapResource, claimOf("node-2", "fc00:0:9::/48")) // the next free one would be behind it
	waits(t, "it knows the other claim", func() bool { return len((claimer{w}).allClaims()) == 2 })
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ClaimName(own)))
	waits(t, "it says so", func() bool { return h.has(func(h *observed) bool { return h.gone > 0 }) })
	waits(t, "it knows its claim no more", func() bool { return len((claimer{w}).allClaims()) == 1 })
	if again, err := w.Claim(t.Context(), pool); err != nil || again != own || c.claimants()[own.String()] != me {
		t.Errorf("claimed %s after %s, %v: claims are %v", again, own, err, c.claimants())
	}
}

// A pool is full until Kubernetes deletes the claim of a Node that is gone.
func TestClaimOfAFullPool(t *testing.T) {
	c := newCluster(t)
	c.put(configMapResource, claimOf("node-7", "fd00:0:1::/48"))
	w, _, _ := c.starts(Known{})
	waits(t, "it knows the claim", func() bool { return len((claimer{w}).allClaims()) == 1 })
	got := make(chan netip.Prefix)
	go func() {
		p, err := w.Claim(t.Context(), prefix("fd00::/47"))
		c.must(err)
		got <- p
	}()
	waits(t, "it has tried", func() bool {
		_, err := (claimer{w}).claimOnce(t.Context(), prefix("fd00::/47"))
		return errors.Is(err, ErrPoolExhausted)
	})
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ClaimName(prefix("fd00:0:1::/48"))))
	if p := <-got; p != prefix("fd00:0:1::/48") {
		t.Errorf("claimed %s", p)
	}
}

func TestClaimGoesOnAsking(t *testing.T) {
	c := newCluster(t)
	c.objects.PrependReactor("create", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	w, _, _ := c.starts(Known{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if p, err := w.Claim(ctx, prefix("fc00::/32")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claimed %s, %v", p, err)
	}
}

// A ConfigMap that is no claim takes no locator from anybody.
func TestReadLocatorClaim(t *testing.T) {
	good := claimOf("node-2", "fc00:0:2::/48")
	if c := readLocatorClaim(good); c.locator != prefix("fc00:0:2::/48") || c.node != "node-2" || c.owner != "uid of node-2" {
		t.Errorf("read %+v", c)
	}
	for what, change := range map[string]func(*unstructured.Unstructured){
		"another name": func(u *unstructured.Unstructured) { u.SetName("culvert-locator-x") },
		"no label":     func(u *unstructured.Unstructured) { u.SetLabels(nil) },
		"no owner":     func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
		"another owner": func(u *unstructured.Unstructured) {
			c := claimOf("node-3", "fc00:0:2::/48")
			u.SetOwnerReferences(c.GetOwnerReferences())
		},
		"a Pod's owner": func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "node-2", UID: "1"}})
		},
		"two owners": func(u *unstructured.Unstructured) {
			u.SetOwnerReferences(append(u.GetOwnerReferences(), u.GetOwnerReferences()...))
		},
		"another length": func(u *unstructured.Unstructured) {
			u.SetName(ClaimName(prefix("fc00::/32")))
			u.Object["data"] = map[string]any{"node": "node-2", "locator": "fc00::/32"}
		},
		"no prefix": func(u *unstructured.Unstructured) {
			u.Object["data"] = map[string]any{"node": "node-2", "locator": "x"}
		},
	} {
		u := good.DeepCopy()
		change(u)
		if c := readLocatorClaim(u); c.locator.IsValid() || c.node != "" {
			t.Errorf("%s: it claims %s for %q", what, c.locator, c.node)
		}
	}
}
