package kube

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The owner of a namespace makes claims without end: agents watch few Services for them, and those of
// others as before.
func TestClaimedServices(t *testing.T) {
	c := newCluster(t)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: gold}, spec: {color: 7, claimable: true}}`)
	claim := func(namespace, name, service string) {
		c.apply(claimResource, fmt.Sprintf(`{kind: SRv6TrafficClassClaim, metadata: {name: %s, namespace: %s}, spec: {class: gold, match: {service: {name: %s}}}}`, name, namespace, service))
	}
	for i := range 3 * maxNamespaceServices {
		claim("evil", fmt.Sprintf("c%03d", i), fmt.Sprintf("s%03d", i))
	}
	claim("evil", "zz", "s000") // one that is watched
	claim("shop", "web", "db")
	w, _, _ := c.starts(Known{})
	c.waitsState(claimResource, "shop/web", stateWaiting, "there is no Service shop/db, or it has no endpoints")
	c.waitsState(claimResource, "evil/c015", stateWaiting, "there is no Service evil/s015")
	c.waitsState(claimResource, "evil/c016", stateRefused, "the claims of a namespace name 16 Services at most")
	c.waitsState(claimResource, "evil/c047", stateRefused, "the claims of a namespace name 16 Services at most")
	c.waitsState(claimResource, "evil/zz", stateWaiting, "there is no Service evil/s000")
	w.mu.Lock()
	if n := len(w.services); n != maxNamespaceServices+1 {
		t.Errorf("%d Services are watched", n)
	}
	w.mu.Unlock()

	var list []string
	for i := range maxEndpoints + 1 {
		list = append(list, fmt.Sprintf("{addresses: [10.1.%d.%d], hostname: h, conditions: {ready: true}}", i>>8, i&255))
	}
	c.apply(sliceResource, fmt.Sprintf("{kind: EndpointSlice, metadata: {name: s000-1, namespace: evil, labels: {kubernetes.io/service-name: s000, x: y}}, endpoints: [%s]}", strings.Join(list, ", ")))
	c.waitsState(claimResource, "evil/zz", stateRefused, "Service evil/s000 has 4097 endpoints, and 4096 are allowed")
	kept := object[unstructured.Unstructured](w.services[Service{"evil", "s000"}].source, "evil/s000-1")
	if endpoints, _, _ := unstructured.NestedSlice(kept.Object, "endpoints"); len(kept.GetLabels()) != 0 || len(endpoints[0].(map[string]any)) != 1 {
		t.Errorf("an agent keeps %v of an endpoint, and labels %v", endpoints[0], kept.GetLabels())
	}
}

// Where the cluster's claims name too many Services no namespace's second comes before another's first.
func TestServicesInTurn(t *testing.T) {
	list := func(namespace string, n int) (out []Service) {
		for i := range n {
			out = append(out, Service{namespace, fmt.Sprint(i)})
		}
		return out
	}
	wanted := map[string][]Service{"a": list("a", 16), "b": list("b", 2), "c": list("c", 1)}
	got := inTurn(wanted, 6)
	for _, s := range []Service{{"a", "0"}, {"b", "0"}, {"c", "0"}, {"a", "1"}, {"b", "1"}, {"a", "2"}} {
		if !got[s] {
			t.Errorf("%s is left out of %v", s, got)
		}
	}
	if len(got) != 6 || len(inTurn(wanted, 100)) != 19 {
		t.Errorf("%d are watched: %v", len(got), got)
	}
}
