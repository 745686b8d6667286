//go:build apiserver

package kube_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/kube/operator"
)

// TestOperator goes as far as a kube-apiserver goes that has no controllers and
// no kubelets.
func TestOperator(t *testing.T) {
	admin, nobody := kube.Kubeconfigs(t)
	of := func(kubeconfig string, change func(*operator.Options)) *operator.Client {
		o := operator.Options{Kubeconfig: kubeconfig, Namespace: "culvert-connectivity", System: "kube-system", DaemonSet: "culvert"}
		if change != nil {
			change(&o)
		}
		c, err := operator.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx := t.Context()
	says := func(err error, want ...string) {
		t.Helper()
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v: want %q", err, w)
			}
		}
	}
	_, err := of(nobody, nil).Nodes(ctx)
	says(err, "you may not list nodes", "create pods/exec in kube-system", "create srv6policies")
	_, err = of(admin, func(o *operator.Options) { o.DaemonSet = "other" }).Nodes(ctx)
	says(err, "no DaemonSet other in namespace kube-system: is Culvert installed?")

	c := of(admin, nil)
	nodes, err := c.Nodes(ctx)
	if err != nil || len(nodes) != 1 || nodes[0].Overlay == nil || !strings.Contains(nodes[0].Problem, "no pod of the DaemonSet culvert on it") {
		t.Errorf("%+v, %v", nodes, err)
	}
	_, err = c.AgentOn(ctx, "node-1")
	says(err, "no pod of the DaemonSet culvert on node-1")
	_, err = c.FindPod(ctx, "default/nobody")
	says(err, `pods "nobody" not found`)
	_, err = c.FindPod(ctx, "nobody")
	says(err, "give namespace/name")

	d := connectivity.Deployment{Nodes: []string{"node-1"}, Ports: connectivity.Ports{Pod: 8080, Host: 27182, Service: 80}}
	err = of(admin, func(o *operator.Options) { o.Namespace = "default" }).Start(ctx, d)
	if says(err, "namespace default is not a test's"); !errors.Is(err, connectivity.ErrForeign) {
		t.Error(err)
	}
	if err := c.Start(ctx, d); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx, d); !errors.Is(err, connectivity.ErrThere) {
		t.Errorf("twice: %v", err)
	}
	s, err := c.Service(ctx)
	if err != nil || s.Port != 80 || s.NodePort < 30000 || len(s.Addresses) != 1 || !s.Addresses[0].Is4() {
		t.Errorf("%+v, %v", s, err)
	}
	p := connectivity.Policy{Name: "a-test", Node: "node-1", Egress: "node-2", Family: connectivity.IPv4,
		Segments: []netip.Addr{netip.MustParseAddr("fc00:0:3:1::"), netip.MustParseAddr("fc00:0:2:4::")}}
	if err := c.PutPolicy(ctx, p); err != nil {
		t.Fatal(err)
	}
	if state, _, err := c.PolicyState(ctx, p); state != "" || err != nil {
		t.Errorf("nobody said anything of it: %q, %v", state, err)
	}
	if err := errors.Join(c.DeletePolicy(ctx, p.Name), c.DeletePolicy(ctx, p.Name)); err != nil {
		t.Error(err)
	}
	if err := c.PutPolicy(ctx, p); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	removed, err := c.Clean(short)
	if says(err, "namespace culvert-connectivity is not gone yet"); !slices.Equal(removed, []string{"SRv6Policy a-test", "namespace culvert-connectivity"}) {
		t.Errorf("removed %q", removed)
	}
}
