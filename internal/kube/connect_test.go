package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/culvert-net/culvert/internal/overlay"
)

// An API server that cannot be reached: in a pod that is most often for want of
// what translates Services' addresses.
func TestUnreachable(t *testing.T) {
	api, err := connectTo(&rest.Config{Host: "https://127.0.0.1:1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for kubeconfig, hint := range map[string]bool{"": true, "/etc/kubernetes/admin.conf": false} {
		w, _, stop := starts(t, api, Config{Node: me, Namespace: namespace, Kubeconfig: kubeconfig}, Known{})
		waits(t, "an error", func() bool { return w.Status().Error != "" })
		got := w.Status().Error
		if !strings.HasPrefix(got, "dial tcp 127.0.0.1:1: ") || strings.Contains(got, "does kube-proxy run") != hint {
			t.Errorf("with kubeconfig %q: %s", kubeconfig, got)
		}
		stop()
	}
}

// An answer 404, such as a proxy's, is an error like others, and what was known stays. Only of
// what is Culvert's own does it mean that the cluster lacks the definition.
func TestNotFound(t *testing.T) {
	c := policed(t)
	c.says(other("node-2", "2001:db8::2"))
	var astray atomic.Bool
	astray.Store(true)
	notFound := func(a ktesting.Action) (bool, runtime.Object, error) {
		return astray.Load(), nil, apierrors.NewGenericServerResponse(http.StatusNotFound, a.GetVerb(), a.GetResource().GroupResource(), "", "404 page not found", 0, true)
	}
	c.objects.PrependReactor("list", "*", notFound)
	c.meta.PrependReactor("list", "*", notFound)
	known := Known{Nodes: []overlay.Node{other("node-2", "2001:db8::2"), other("node-3", "2001:db8::3")}}
	w, h, _ := starts(t, c.connection(), Config{Node: me, Namespace: namespace, NetworkPolicies: true, Trust: Trust{Accept: anything}}, known)
	own := []*source{w.named, w.selecting, w.classes, w.classClaims}
	for _, s := range w.sources() {
		isOwn := slices.Contains(own, s)
		waits(t, "an answer", func() bool { _, err := s.state(); return err != nil || s.missing.Load() })
		if _, err := s.state(); isOwn != (err == nil) || isOwn != s.complete() {
			t.Errorf("own %v: complete %v, error %v", isOwn, s.complete(), err)
		}
	}
	if _, complete := w.NetworkState(); complete || !strings.Contains(w.Status().Error, "could not find the requested resource") {
		t.Errorf("complete %v, status %+v", complete, w.Status())
	}
	waits(t, "a look at all that is complete", func() bool { return h.policed() > 0 })
	if said := h.take(); said != "" {
		t.Errorf("observed %s", said)
	}
	astray.Store(false)
	waits(t, "the node that is gone", func() bool { return h.has(func(h *observed) bool { return len(h.nodes) == 1 }) })
	waits(t, "all policies", func() bool { s, complete := w.NetworkState(); return complete && len(s.Policies) == 1 })
}

// A time out is known, too, of which client-go says nothing to who watches; and
// its end.
func TestDialerTellsChanges(t *testing.T) {
	var reported []string
	d := newDialer()
	d.changed = func(err error) { reported = append(reported, fmt.Sprint(err)) }
	late := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for _, err := range []error{nil, late, late, nil, nil} {
		d.note(err)
	}
	if want := []string{"dial: i/o timeout", "<nil>"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
	if since, err := d.state(); err != nil || since.IsZero() {
		t.Errorf("%s, %v", since, err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	c, err := d.dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), listener.Close()); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.dial(gone, "tcp", address); err == nil {
		t.Error("it was not to be tried")
	}
	if _, err := d.state(); err != nil {
		t.Errorf("who asked went away, and that is said of the API server: %v", err)
	}
	if _, err := d.dial(t.Context(), "tcp", address); err == nil || len(reported) != 3 {
		t.Errorf("nobody listens: %v, reported %q", err, reported)
	}
}
