//go:build apiserver

package kube

import (
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// objectIn is an object of Culvert's group from YAML.
func objectIn(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	u.SetAPIVersion(policyVersion)
	return u
}

const endpointsOfShop = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.244.2.7]}]
`

// Traffic classes and claims, from the schema that refuses them to the status that the node with the
// rights of the manifest writes.
func TestClassesOnAPIServer(t *testing.T) {
	s := newServer(t)
	s.apply(t, nodeObject(me, nil))
	shop := objectIn(t, "{kind: Namespace, metadata: {name: shop}}")
	shop.SetAPIVersion("v1")
	s.apply(t, shop)
	s.apply(t, objectIn(t, `{kind: SRv6TrafficClass, metadata: {name: voice}, spec: {color: 100, match: {dscp: [46], service: {namespace: shop, name: db}}}}`))
	s.apply(t, objectIn(t, `{kind: SRv6TrafficClass, metadata: {name: gold}, spec: {color: 7, strict: true, claimable: true, match: {dscp: [10, 46]}}}`))
	s.apply(t, objectIn(t, `{kind: SRv6TrafficClassClaim, metadata: {name: web, namespace: shop}, spec: {class: gold, match: {podLabels: {app: web}, dscp: [46]}}}`))
	s.apply(t, objectIn(t, `{kind: SRv6TrafficClassClaim, metadata: {name: wide, namespace: shop}, spec: {class: gold, match: {dscp: [12]}}}`))
	w, h, _ := starts(t, s.agent(t, me, s.admin.Host), Config{Node: me, Namespace: namespace, Trust: Trust{Accept: anything}}, Known{})

	is := func(kind, namespace, name, state, reason string) {
		t.Helper()
		u := objectIn(t, "{kind: "+kind+", metadata: {name: "+name+"}}")
		u.SetNamespace(namespace)
		s.waits(t, name+" is "+state, func() error {
			got := nodeStatus(s.get(t, u), me)
			why, _ := got["reason"].(string)
			return want(got["state"] == state && strings.Contains(why, reason), "%v", got)
		})
	}
	is("SRv6TrafficClass", "", "voice", stateWaiting, "there is no Service shop/db, or it has no endpoints")
	is("SRv6TrafficClassClaim", "shop", "wide", stateRefused, "12 is beyond what the class has: [10 46]")
	slice := objectIn(t, endpointsOfShop)
	slice.SetAPIVersion("discovery.k8s.io/v1")
	s.apply(t, slice)
	s.waits(t, "the classes", func() error {
		voice, one := h.class("kube:voice")
		web, two := h.class("kube:shop:web")
		return want(one && two && voice.Match.Destinations[0] == prefix("10.244.2.7/32") && web.Strict && web.Match.Namespaces[0] == "shop", "%+v, %+v", voice, web)
	})
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Valid: true, Active: true}, {Path: "kube:shop:web", Active: true, Why: "no policy has color 7"}})
	is("SRv6TrafficClass", "", "voice", stateActive, "")
	is("SRv6TrafficClass", "", "gold", stateActive, "claims that take it: 1")
	is("SRv6TrafficClassClaim", "shop", "web", stateInvalid, "no policy has color 7")
	if err := s.of(slice).Delete(t.Context(), slice.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	is("SRv6TrafficClass", "", "voice", stateWaiting, "no endpoints")

	if got := s.kubectl(t, "root", "get", "srtc,srtcc", "-A", "-o", "wide"); !regexp.MustCompile(`(?s)srv6trafficclass\S*/voice +100 .*1/1 Waiting +node-1: Waiting: there is no Service shop/db.*no endpoints.*srv6trafficclassclaim\S*/wide +gold +1/1 Refused +node-1: Refused: .*12 is beyond`).MatchString(got) {
		t.Errorf("kubectl shows\n%s", got)
	}
	t.Run("rights", func(t *testing.T) { s.keepsClasses(t) })
	t.Run("a tenant's rights", func(t *testing.T) { s.claims(t) })
	t.Run("schema", func(t *testing.T) { s.refusesClasses(t) })
}

const rightsInShop = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: claims, namespace: shop}, rules: [{apiGroups: [culvert.net], resources: [srv6trafficclassclaims], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: claims, namespace: shop}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: claims},
  subjects: [{kind: User, name: nobody, apiGroup: rbac.authorization.k8s.io}]}
`

// claims: whoever has all rights for claims in a namespace makes them there, and neither classes, nor
// claims elsewhere, nor a status.
func (s *server) claims(t *testing.T) {
	for _, u := range objectsIn(t, rightsInShop) {
		s.apply(t, u)
	}
	c := rest.CopyConfig(s.admin)
	c.BearerToken = "nobody"
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	claim := objectIn(t, `{kind: SRv6TrafficClassClaim, metadata: {name: own}, spec: {class: gold, match: {dscp: [10]}}}`)
	claims := objects.Resource(claimResource)
	s.waits(t, "a claim in the namespace", func() error {
		_, err := claims.Namespace("shop").Create(t.Context(), claim, metav1.CreateOptions{})
		return err
	})
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it to be denied", what, err)
		}
	}
	_, err = claims.Namespace("default").Create(t.Context(), claim, metav1.CreateOptions{})
	denied("a claim elsewhere", err)
	_, err = objects.Resource(classResource).Create(t.Context(), objectIn(t, `{kind: SRv6TrafficClass, metadata: {name: mine}, spec: {color: 7}}`), metav1.CreateOptions{})
	denied("a class", err)
	_, err = claims.Namespace("shop").Patch(t.Context(), "own", "application/merge-patch+json", []byte(`{"status":{"nodes":[{"name":"node-1","state":"Active"}]}}`), metav1.PatchOptions{}, "status")
	denied("a status", err)
	got, err := claims.Namespace("shop").Patch(t.Context(), "own", "application/merge-patch+json", []byte(`{"status":{"nodes":[{"name":"node-2","state":"Active"}]}}`), metav1.PatchOptions{})
	if err != nil || nodeStatus(got, "node-2") != nil {
		t.Errorf("a status beside the spec: %v, %v", got, err)
	}
}

// refusesClasses: what the schema of classes and claims finds never gets as far as a node.
func (s *server) refusesClasses(t *testing.T) {
	const class, claim = "{kind: SRv6TrafficClass, metadata: {name: wrong}, spec: ", "{kind: SRv6TrafficClassClaim, metadata: {name: wrong, namespace: shop}, spec: "
	for text, words := range map[string]string{
		class + `{match: {dscp: [46]}}}`:                                     "spec.color: Required value",
		class + `{color: 0}}`:                                                "should be greater than or equal to 1",
		class + `{color: 1, match: {dscp: [64]}}}`:                           "should be less than or equal to 63",
		class + `{color: 1, match: {interfaces: [eth1], vlans: [4095]}}}`:    "should be less than or equal to 4094",
		class + `{color: 1, match: {destinations: ["10.0.0.1"]}}}`:           "must be a prefix, such as 10.0.0.0/8",
		class + `{color: 1, match: {sources: [x]}}}`:                         "must be a prefix, such as 10.0.0.0/8",
		class + `{color: 1, match: {service: {name: db}}}}`:                  "spec.match.service.namespace: Required value",
		class + `{color: 1, match: {slices: [a]}}}`:                          "field not declared in schema",
		claim + `{match: {dscp: [46]}}}`:                                     "spec.class: Required value",
		claim + `{class: gold, match: {namespaces: [bank]}}}`:                "field not declared in schema",
		claim + `{class: gold, match: {interfaces: [eth1]}}}`:                "field not declared in schema",
		claim + `{class: gold, color: 9}}`:                                   "field not declared in schema",
		claim + `{class: gold, match: {service: {namespace: x, name: db}}}}`: "field not declared in schema",
	} {
		if err := s.tryApply(t.Context(), objectIn(t, text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

// keepsClasses: an agent changes neither classes and claims nor what other nodes say of them.
func (s *server) keepsClasses(t *testing.T) {
	api := s.agent(t, me, s.admin.Host)
	for kind, r := range map[string]dynamic.ResourceInterface{
		"class": api.objects.Resource(classResource), "claim": api.objects.Resource(claimResource).Namespace("shop"),
	} {
		name := map[string]string{"class": "gold", "claim": "web"}[kind]
		for what, change := range map[string]struct {
			text string
			of   []string // subresource
		}{
			"the spec":             {`{"spec":{"priority":8,"class":"ours"}}`, nil},
			"an entry for another": {`{"status":{"nodes":[{"name":"node-2","state":"Active"}]}}`, []string{"status"}},
		} {
			_, err := r.Patch(t.Context(), name, "application/merge-patch+json", []byte(change.text), metav1.PatchOptions{}, change.of...)
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s of a %s: %v, want it to be denied", what, kind, err)
			}
		}
		if err := r.Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("to delete a %s: %v, want it to be denied", kind, err)
		}
	}
}
