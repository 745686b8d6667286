package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
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
