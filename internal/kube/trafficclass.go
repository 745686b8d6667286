package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

// Of the SRv6TrafficClass and the SRv6TrafficClassClaim, which dist/kubernetes defines.
const (
	classKind = "SRv6TrafficClass"
	claimKind = "SRv6TrafficClassClaim"
)

// ClassSpec is the spec of an SRv6TrafficClass, which is for the whole cluster.
type ClassSpec struct {
	Color    uint32 `json:"color"`
	Strict   bool   `json:"strict,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Claimable: packets have the class only where a claim in the namespace of their pod
	// says so.
	Claimable bool       `json:"claimable,omitempty"`
	Match     ClassMatch `json:"match,omitzero"`
}

// ClaimSpec is the spec of an SRv6TrafficClassClaim: of the packets that its namespace's
// pods send, those that get a class which is claimable.
type ClaimSpec struct {
	Class string     `json:"class"`
	Match ClassMatch `json:"match,omitzero"`
}

// ClassMatch is class.Match as these resources have it. A claim has neither Namespaces nor
// the namespace of a Service: both are its own. Nor has it other senders than pods.
type ClassMatch struct {
	Host         bool              `json:"host,omitempty"`
	Interfaces   []string          `json:"interfaces,omitempty"`
	VLANs        []uint16          `json:"vlans,omitempty"`
	Sources      []netip.Prefix    `json:"sources,omitempty"`
	Namespaces   []string          `json:"namespaces,omitempty"`
	PodLabels    map[string]string `json:"podLabels,omitempty"`
	DSCP         []uint16          `json:"dscp,omitempty"`
	Destinations []netip.Prefix    `json:"destinations,omitempty"`
	// Service has its endpoints among the destinations.
	Service Service `json:"service,omitzero"`
}

// Service names a Service.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "namespace/name".
func (s Service) String() string { return s.Namespace + "/" + s.Name }

// Class is a traffic class for this node, of a class or of a claim in the API.
type Class struct {
	class.Class
	// Rank orders classes: where not all can be used, the first are. Classes of the cluster
	// come before claims, and no namespace's second claim before another one's first.
	Rank int `json:"rank"`
}

// className is what the node knows a class by. Names of objects have no colon.
func className(namespace, name string) string {
	return pathName("kube", strings.TrimPrefix(namespace+":"+name, ":"))
}

const noSenders = "leave host, interfaces, vlans and sources out"

// beyondPods says whether m names senders that are no pods.
func (m ClassMatch) beyondPods() bool {
	return m.Host || len(m.Interfaces)+len(m.VLANs)+len(m.Sources) > 0
}

// match is m as the node has it; destinations are those of m.Service.
func (m ClassMatch) match(destinations []netip.Prefix) class.Match {
	return class.Match{Host: m.Host, Interfaces: m.Interfaces, VLANs: m.VLANs, Sources: m.Sources, Namespaces: m.Namespaces, PodLabels: m.PodLabels, DSCP: m.DSCP, Destinations: slices.Concat(m.Destinations, destinations)}
}

// readClass reads an SRv6TrafficClass, or says all that is wrong with it by field.
func readClass(u *unstructured.Unstructured) (ClassSpec, error) {
	var object struct {
		Spec ClassSpec `json:"spec"`
	}
	err := readSpec(u, &object)
	s := object.Spec
	if err == nil {
		err = errorOf(class.Class{Name: className("", u.GetName()), Color: s.Color, Match: s.Match.match(nil)}.Validate())
	}
	if err == nil && s.Claimable && s.Match.beyondPods() {
		err = config.Errors{fault("spec.match", noSenders+", or claimable", "claims are for packets of pods")}
	}
	if at := s.Match.Service; err == nil && (at.Namespace == "") != (at.Name == "") {
		err = config.Errors{fault("spec.match.service", "give namespace and name", "%q is half of a Service", at)}
	}
	return s, err
}

// readClaim does so with an SRv6TrafficClassClaim.
func readClaim(u *unstructured.Unstructured) (ClaimSpec, error) {
	var object struct {
		Spec ClaimSpec `json:"spec"`
	}
	err := readSpec(u, &object)
	s := &object.Spec
	if err == nil {
		err = errorOf(class.Class{Name: "claim", Color: 1, Match: s.Match.match(nil)}.Validate())
	}
	if err == nil && s.Match.beyondPods() {
		err = config.Errors{fault("spec.match", noSenders, "a claim is for packets of its namespace's pods")}
	}
	s.Match.Namespaces = []string{u.GetNamespace()}
	if s.Match.Service.Name != "" {
		s.Match.Service.Namespace = u.GetNamespace()
	}
	return *s, err
}

// waiting is why something cannot be used that needs no change of its own.
type waiting struct{ error }

// classView is the classes and claims of a cluster at one time.
type classView struct {
	endpoints func(Service) []netip.Prefix
	// What can be read: classes by name, and claims.
	specs   map[string]ClassSpec
	claims  map[*unstructured.Unstructured]ClaimSpec
	claimed map[string]int // claims that take a class
	// What comes of them: classes of this node by name, and what is to be said of objects.
	found    map[string]Class
	problems map[*unstructured.Unstructured]error
	notes    map[*unstructured.Unstructured]string
}

// read reads all specs, and returns the Services that they name.
func (v *classView) read(classes, claims []*unstructured.Unstructured) map[Service]bool {
	services := map[Service]bool{}
	for _, u := range classes {
		s, err := readClass(u)
		if v.problems[u] = err; err == nil {
			v.specs[u.GetName()] = s
			services[s.Match.Service] = true
		}
	}
	wanted := map[string][]Service{} // by namespace, those of the oldest claims first
	for _, u := range claims {
		s, err := readClaim(u)
		if err == nil && s.Match.Service != (Service{}) {
			wanted[u.GetNamespace()], err = addService(wanted[u.GetNamespace()], s.Match.Service)
		}
		if v.problems[u] = err; err == nil {
			v.claims[u] = s
		}
	}
	for s := range inTurn(wanted, maxServices) {
		services[s] = true
	}
	for _, u := range claims {
		if at := v.claims[u].Match.Service; at != (Service{}) && !services[at] {
			v.problems[u] = waiting{fmt.Errorf("the claims of the cluster name more than %d Services, and %s is not among those whose endpoints are watched", maxServices, at)}
			delete(v.claims, u)
		}
	}
	delete(services, Service{})
	return services
}

// Each Service that a class or a claim names is a watch of every agent. Owners of namespaces make claims:
// so many Services may those of a namespace name, and of the cluster. Those of a Service that names more
// endpoints are not used.
const (
	maxNamespaceServices = 16
	maxServices          = 512
	maxEndpoints         = 4096
)

// addService adds one to the Services that the claims of a namespace name.
func addService(list []Service, s Service) ([]Service, error) {
	switch {
	case slices.Contains(list, s):
		return list, nil
	case len(list) == maxNamespaceServices:
		return list, config.Errors{fault("spec.match.service", "give destinations, or delete older claims", "the claims of a namespace name %d Services at most", maxNamespaceServices)}
	}
	return append(list, s), nil
}

// inTurn are as many Services as there is room for: no namespace's second before another one's first.
func inTurn(wanted map[string][]Service, most int) map[Service]bool {
	out := map[Service]bool{}
	namespaces := slices.Sorted(maps.Keys(wanted))
	for turn := range maxNamespaceServices {
		for _, name := range namespaces {
			if turn < len(wanted[name]) && len(out) < most {
				out[wanted[name][turn]] = true
			}
		}
	}
	return out
}

// takeClaims makes classes of the claims that can be used.
func (v *classView) takeClaims(claims []*unstructured.Unstructured) {
	ofNamespace := map[string]int{}
	for _, u := range claims {
		s, readable := v.claims[u]
		if !readable {
			continue
		}
		c, err := v.claim(u, s)
		if v.problems[u] = err; err == nil {
			v.claimed[s.Class]++
			ofNamespace[u.GetNamespace()]++
			v.found[c.Name] = Class{c, ofNamespace[u.GetNamespace()]}
		}
	}
}

// claim makes the class that a claim asks for.
func (v *classView) claim(u *unstructured.Unstructured, s ClaimSpec) (class.Class, error) {
	of, there := v.specs[s.Class]
	switch {
	case !there:
		return class.Class{}, waiting{fmt.Errorf("no %s is called %s, or it cannot be used", classKind, s.Class)}
	case !of.Claimable:
		return class.Class{}, fmt.Errorf("spec.class: %s %s is not claimable: whoever runs the cluster can set claimable: true", classKind, s.Class)
	}
	outer, err := v.matchOf(of.Match)
	if err != nil {
		return class.Class{}, err
	}
	match, err := v.matchOf(s.Match)
	if err != nil {
		return class.Class{}, err
	}
	match, wrong := match.Within(outer)
	for i := range wrong {
		wrong[i].Field = "match." + wrong[i].Field
	}
	return class.Class{Name: className(u.GetNamespace(), u.GetName()), Color: of.Color, Strict: of.Strict, Priority: of.Priority, Match: match}, errorOf(wrong)
}

// takeClasses takes the classes that are not for claims, once these are taken.
func (v *classView) takeClasses(classes []*unstructured.Unstructured) {
	for _, u := range classes {
		s, readable := v.specs[u.GetName()]
		if !readable {
			continue
		}
		match, err := v.matchOf(s.Match)
		switch n := v.claimed[u.GetName()]; {
		case err != nil:
			v.problems[u] = err
		case s.Claimable && n == 0:
			v.problems[u] = waiting{fmt.Errorf("no %s takes it", claimKind)}
		case s.Claimable:
			v.notes[u] = fmt.Sprintf("claims that take it: %d", n)
		default:
			name := className("", u.GetName())
			v.found[name] = Class{Class: class.Class{Name: name, Color: s.Color, Strict: s.Strict, Priority: s.Priority, Match: match}}
		}
	}
}

// matchOf is m with the endpoints of its Service.
func (v *classView) matchOf(m ClassMatch) (class.Match, error) {
	if m.Service == (Service{}) {
		return m.match(nil), nil
	}
	to := v.endpoints(m.Service)
	if len(to) > maxEndpoints {
		return class.Match{}, fmt.Errorf("spec.match.service: Service %s has %d endpoints, and %d are allowed", m.Service, len(to), maxEndpoints)
	}
	if len(to) == 0 {
		return class.Match{}, waiting{fmt.Errorf("there is no Service %s, or it has no endpoints", m.Service)}
	}
	return m.match(to), nil
}

// errorOf is what is wrong with a spec, by its fields.
func errorOf(wrong []srv6.FieldError) error {
	if len(wrong) == 0 {
		return nil
	}
	faults := faultsOf(wrong)
	for i := range faults {
		faults[i].Field = "spec." + strings.Replace(faults[i].Field, "pod_labels", "podLabels", 1)
	}
	return config.Errors(faults)
}

// byAge orders objects: the older one first.
func byAge(a, b *unstructured.Unstructured) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}
