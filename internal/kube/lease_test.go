package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

// leaseOf is one of an engine that starts, and a function that ends it.
func (c *cluster) leaseOf(e *Engine) (*Lease, func()) {
	c.t.Helper()
	l, err := e.Lease(namespace, "te", LeaseFor(3*time.Second), slog.New(slog.DiscardHandler))
	c.must(err)
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	ended := false
	end := func() {
		if cancel(); !ended {
			ended = true
			c.must(<-done)
		}
	}
	c.t.Cleanup(end)
	return l, end
}

func held(l *Lease) func() bool {
	return func() bool { _, has := l.Held(); return has }
}

// One of two has the lease. When it ends, it gives it back, and the other one has it at once.
func TestLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, end := c.leaseOf(c.engine())
	waits(t, "the first one has it", held(first))
	second, _ := c.leaseOf(c.engine())
	waits(t, "the second one sees the first one", func() bool { return second.State().Holder == first.identity })
	if _, has := second.Held(); has {
		t.Error("both have it")
	}
	ctx, _ := first.Held()
	end()
	if ctx.Err() == nil {
		t.Error("what is done by the lease goes on")
	}
	waits(t, "the second one has it", held(second))
	if s := first.State(); s.Held || s.Lease != namespace+"/te" || s.Self != first.identity {
		t.Errorf("%+v", s)
	}
}

// A holder whose API server is away stops before another one takes over.
func TestLeaseIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first, _ := c.leaseOf(c.engine())
	waits(t, "the first one has it", held(first))
	second, _ := c.leaseOf(c.engine())
	waits(t, "the second one sees the first one", func() bool { return second.State().Holder == first.identity })
	ctx, _ := first.Held()
	var away atomic.Bool
	away.Store(true)
	c.objects.PrependReactor("*", leaseResource.Resource, func(a ktesting.Action) (bool, runtime.Object, error) {
		return away.Load(), nil, errors.New("connection refused")
	})
	waits(t, "it has lost it", func() bool { return ctx.Err() != nil })
	for _, l := range []*Lease{first, second} {
		if s := l.State(); s.Held || !strings.Contains(s.Problem, "connection refused") {
			t.Errorf("%+v", s)
		}
	}
	away.Store(false)
	waits(t, "one of them has it", func() bool { return first.State().Held || second.State().Held })
	if first.State().Held && second.State().Held {
		t.Error("both have it")
	}
}

// A lease whose holder was killed is taken after its duration, and of several that take it one has it.
func TestLeaseOfTheDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.put(leaseResource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "te", "namespace": namespace, "resourceVersion": "1"},
		"spec": map[string]any{"holderIdentity": "dead", "leaseDurationSeconds": int64(2), "renewTime": "2026-11-25T12:00:00.000000Z", "leaseTransitions": int64(4)},
	}})
	began := time.Now()
	var all []*Lease
	for range 5 {
		l, _ := c.leaseOf(c.engine())
		all = append(all, l)
	}
	holders := func() (names []string) {
		for _, l := range all {
			if l.State().Held {
				names = append(names, l.identity)
			}
		}
		return names
	}
	waits(t, "one has it", func() bool { return len(holders()) > 0 })
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it was taken after %s, and lasts 2 s", took)
	}
	for range 20 {
		if names := holders(); len(names) > 1 {
			t.Fatalf("%s have it", names)
		}
		time.Sleep(20 * time.Millisecond)
	}
	o, err := c.objects.Tracker().Get(leaseResource, namespace, "te")
	c.must(err)
	spec := o.(*unstructured.Unstructured).Object["spec"].(map[string]any)
	if fmt.Sprint(spec["leaseTransitions"]) != "5" || fmt.Sprint(spec["leaseDurationSeconds"]) != "3" {
		t.Errorf("%v", spec)
	}
}
