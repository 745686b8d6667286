package kube

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

const webPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: u1, labels: {app: web}, creationTimestamp: "2026-01-02T03:04:05Z", annotations: {a: b}}
spec:
  nodeName: node-2
  initContainers:
  - {name: once, ports: [{name: never, containerPort: 1}]}
  - {name: side, restartPolicy: Always, ports: [{name: side, containerPort: 2, protocol: SCTP}]}
  containers:
  - {name: a, ports: [{name: http, containerPort: 8080, protocol: TCP}, {containerPort: 9}, {name: dns, containerPort: 53, protocol: UDP}]}
  - {name: b}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
`

func object2(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func own(a string) netpol.Address { return netpol.Address{Addr: addr(a)} }

func TestReadPod(t *testing.T) {
	created, _ := time.Parse(time.RFC3339, "2026-01-02T03:04:05Z")
	web := func() netpol.Pod {
		return netpol.Pod{
			Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"app": "web"}, Node: "node-2", Workload: "Pod/web", Created: created.Local(),
			Addresses: []netpol.Address{own("10.0.0.1"), own("fd00::1")},
			Ports:     []netpol.ContainerPort{{Name: "http", Protocol: netpol.TCP, Port: 8080}, {Name: "dns", Protocol: netpol.UDP, Port: 53}, {Name: "side", Protocol: netpol.SCTP, Port: 2}},
		}
	}
	tenants := []overlay.Tenant{
		{Name: "red", ID: 1, Namespaces: []string{"shop"}, Pools: prefixes("10.9.0.0/16", "10.7.0.0/16")},
		{Name: "blue", ID: 2, Namespaces: []string{"shop", "bank"}, Pools: prefixes("10.8.0.0/16", "10.7.0.0/16", "fd08::/48")},
		{Name: "green", ID: 3, Namespaces: []string{"bank"}, Pools: prefixes("10.9.0.0/16")},
	}
	for _, row := range []struct {
		name   string
		change func(u *unstructured.Unstructured)
		want   func(p *netpol.Pod)
	}{
		{"as it is", func(*unstructured.Unstructured) {}, func(*netpol.Pod) {}},
		{"of the node's network", func(u *unstructured.Unstructured) { set(u, true, "spec", "hostNetwork") }, func(p *netpol.Pod) { p.HostNetwork = true }},
		{"has ended well", func(u *unstructured.Unstructured) { set(u, "Succeeded", "status", "phase") }, func(p *netpol.Pod) { p.Finished = true }},
		{"has failed", func(u *unstructured.Unstructured) { set(u, "Failed", "status", "phase") }, func(p *netpol.Pod) { p.Finished = true }},
		{"nobody knows how it is", func(u *unstructured.Unstructured) { set(u, "Unknown", "status", "phase") }, func(*netpol.Pod) {}},
		{"is to end", func(u *unstructured.Unstructured) { set(u, "2026-01-02T03:05:05Z", "metadata", "deletionTimestamp") }, func(p *netpol.Pod) { p.Leaving = true }},
		{"mirrors a static pod", func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{mirrorAnnotation: "u2"}) }, func(p *netpol.Pod) { p.UID = "u2" }},
		{"has no status yet", func(u *unstructured.Unstructured) { delete(u.Object, "status") }, func(p *netpol.Pod) { p.Addresses = nil }},
		{"has addresses that are none", func(u *unstructured.Unstructured) {
			set(u, []any{map[string]any{"ip": "x"}, map[string]any{}, "y", map[string]any{"ip": "fe80::1%eth0"}, map[string]any{"ip": "::ffff:10.0.0.2"}}, "status", "podIPs")
		}, func(p *netpol.Pod) { p.Addresses = []netpol.Address{own("10.0.0.2")} }},
		{"has ports that are none", func(u *unstructured.Unstructured) {
			set(u, []any{"x", map[string]any{"ports": "y"}, map[string]any{"ports": []any{"z", map[string]any{"name": "a", "containerPort": int64(70000)}, map[string]any{"name": "b", "containerPort": int64(1), "protocol": "ICMP"}}}}, "spec", "containers")
		}, func(p *netpol.Pod) { p.Ports = p.Ports[2:] }},
		{"is in tenants' networks", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{networksAnnotation: `[{"name":"culvert","ips":["10.0.0.1"],"default":true}, {"name":"shop/red","ips":["10.9.1.1"]},
				{"name":"shop/blue","ips":["10.8.1.1","fd08::1"]}, {"name":"shop/either","ips":["10.7.1.1"]}, {"name":"shop/none","ips":["10.6.1.1","x"]}]`})
		}, func(p *netpol.Pod) {
			p.Addresses = append(p.Addresses, netpol.Address{Tenant: 1, Addr: addr("10.9.1.1")}, netpol.Address{Tenant: 2, Addr: addr("10.8.1.1")}, netpol.Address{Tenant: 2, Addr: addr("fd08::1")})
		}},
		{"says its networks wrongly", func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{networksAnnotation: `{"ips":[]}`})
		}, func(*netpol.Pod) {}},
	} {
		t.Run(row.name, func(t *testing.T) {
			u, want := object2(t, webPod), web()
			row.change(u)
			row.want(&want)
			got := readPod(u, tenants)
			if !got.Created.Equal(want.Created) {
				t.Errorf("created %v", got.Created)
			}
			got.Created = want.Created
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("it reads\n%+v, want\n%+v", *got, want)
			}
		})
	}
}

func set(u *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
}

// policed is a cluster with a namespace, a pod and a policy.
func policed(t *testing.T) *cluster {
	c := newCluster(t)
	c.put(podResource, object2(t, webPod))
	c.apply(networkPolicyResource, `{kind: NetworkPolicy, metadata: {name: closed, namespace: shop}, spec: {podSelector: {}}}`)
	c.must(c.meta.Tracker().Create(namespaceResource, namespaceObject("shop", map[string]string{"team": "a"}), ""))
	return c
}

func namespaceObject(name string, labels map[string]string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	m.Name, m.Labels = name, labels
	return m
}

func (h *observed) policed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.netpol
}

func TestNetworkState(t *testing.T) {
	c := policed(t)
	w, h, _ := starts(t, c.connection(), Config{Node: me, Namespace: namespace, NetworkPolicies: true}, Known{})
	waits(t, "all of it", func() bool {
		s, complete := w.NetworkState()
		return complete && len(s.Policies) == 1 && len(s.Pods) == 1 && s.Namespaces["shop"] != nil && s.Namespaces["shop"].Labels["team"] == "a" && h.policed() > 0
	})
	s, _ := w.NetworkState()
	if s.Policies[0].Namespace != "shop" || s.Policies[0].Name != "closed" || len(s.Policies[0].Problems) > 0 || s.Pods[0].UID != "u1" {
		t.Errorf("state %+v", s)
	}
	changed := func(what string, change func(), is func(netpol.State) bool) {
		t.Helper()
		before := h.policed()
		change()
		waits(t, what, func() bool { s, _ := w.NetworkState(); return is(s) && h.policed() > before })
	}
	changed("labels of a pod", func() {
		u := object2(t, webPod)
		u.SetLabels(map[string]string{"app": "db"})
		c.put(podResource, u)
	}, func(s netpol.State) bool { return s.Pods[0].Labels["app"] == "db" })
	changed("labels of a namespace", func() {
		c.must(c.meta.Tracker().Update(namespaceResource, namespaceObject("shop", nil), ""))
	}, func(s netpol.State) bool { return len(s.Namespaces["shop"].Labels) == 0 })
	changed("another policy", func() {
		c.apply(networkPolicyResource, `{kind: NetworkPolicy, metadata: {name: odd, namespace: shop}, spec: {podSelector: {}, ingress: [{from: [{}]}]}}`)
	}, func(s netpol.State) bool {
		return slices.ContainsFunc(s.Policies, func(p *netpol.Policy) bool { return p.Name == "odd" && len(p.Problems) == 1 })
	})
	changed("no policy", func() {
		c.must(c.objects.Tracker().Delete(networkPolicyResource, "shop", "closed"))
	}, func(s netpol.State) bool { return len(s.Policies) == 1 })
	changed("no pod", func() { c.must(c.objects.Tracker().Delete(podResource, "shop", "web")) }, func(s netpol.State) bool { return len(s.Pods) == 0 })
}

// What of a pod nobody asks for is no change.
func TestNetworkStateIgnores(t *testing.T) {
	c := policed(t)
	w, h, _ := starts(t, c.connection(), Config{Node: me, Namespace: namespace, NetworkPolicies: true}, Known{})
	waits(t, "all of it", func() bool { _, complete := w.NetworkState(); return complete && h.policed() > 0 })
	time.Sleep(2 * policiesSettle) // for reports that are on their way
	before := h.policed()
	for _, ready := range []string{"True", "False", "True"} {
		u := object2(t, webPod)
		set(u, []any{map[string]any{"type": "Ready", "status": ready}}, "status", "conditions")
		c.put(podResource, u)
	}
	// What comes after it is reported, and nothing before that.
	c.put(podResource, object2(t, webPod+"\n"))
	c.must(c.objects.Tracker().Delete(podResource, "shop", "web"))
	waits(t, "the end of the pod", func() bool { return h.policed() > before })
	if n := h.policed(); n != before+1 {
		t.Errorf("reported %d times", n-before)
	}
}

func TestNetworkPoliciesOff(t *testing.T) {
	c := policed(t)
	w, _, _ := c.starts(Known{})
	waits(t, "the rest", func() bool { return w.Status().Complete })
	if s, complete := w.NetworkState(); complete || len(s.Policies)+len(s.Pods) > 0 {
		t.Errorf("state %+v", s)
	}
	for _, a := range c.objects.Actions() {
		if a.GetResource() == networkPolicyResource || a.GetResource() == podResource {
			t.Errorf("it asks for %s", a.GetResource().Resource)
		}
	}
}

// What is kept of a pod is small, and found by its key.
func TestKept(t *testing.T) {
	u := object2(t, webPod)
	o, err := only(func(u *unstructured.Unstructured) (any, error) { return keep(u, readPod(u, nil)), nil })(u)
	if err != nil {
		t.Fatal(err)
	}
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil || key != "shop/web" {
		t.Errorf("key %q, %v", key, err)
	}
	if k := o.(*kept[netpol.Pod]); len(k.Annotations)+len(k.Labels)+len(k.ManagedFields) > 0 {
		t.Errorf("it keeps %+v", k.ObjectMeta)
	}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, prefix(p))
	}
	return out
}
