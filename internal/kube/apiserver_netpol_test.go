//go:build apiserver

package kube

import (
	"testing"

	"github.com/culvert-net/culvert/internal/netpol"
)

// What NetworkPolicies depend on, from a real API server, with the rights of the manifest.
func TestAPIServerNetworkPolicies(t *testing.T) {
	s := newServer(t)
	s.apply(t, nodeObject(me, nil))
	for _, text := range []string{
		`{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}`,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}`,
		`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeName: node-2, automountServiceAccountToken: false, containers: [{name: a, image: a, ports: [{name: http, containerPort: 8080}]}]}}`,
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80, endPort: 90, protocol: SCTP}, {port: http}]}]}}`,
	} {
		s.apply(t, object2(t, text))
	}
	w, _, _ := starts(t, s.agent(t, me, s.admin.Host), Config{Node: me, Namespace: namespace, NetworkPolicies: true}, Known{})
	var state netpol.State
	s.waits(t, "all of it", func() error {
		var complete bool
		state, complete = w.NetworkState()
		return want(complete && web(state) != nil && len(state.Policies) == 1 && state.Namespaces["shop"] != nil, "%+v, status %+v", state, w.Status())
	})
	if p := web(state); p.Labels["app"] != "web" || len(p.Ports) != 1 || p.Ports[0].Port != 8080 || p.Ports[0].Protocol != netpol.TCP || p.UID == "" || p.Created.IsZero() {
		t.Errorf("pod %+v", p)
	}
	if p := state.Policies[0]; len(p.Problems) > 0 { // the API server fills in defaults
		t.Errorf("policy %+v", p)
	}
	if n := state.Namespaces["shop"]; n.Labels["team"] != "a" || n.Labels["kubernetes.io/metadata.name"] != "shop" {
		t.Errorf("namespace %+v", n)
	}
}

// web is the pod; the server has others.
func web(s netpol.State) *netpol.Pod {
	for _, p := range s.Pods {
		if p.Key() == "shop/web" {
			return p
		}
	}
	return nil
}
