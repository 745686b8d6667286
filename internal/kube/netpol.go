package kube

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

// policiesSettle is how long several changes of pods and policies are waited for before they
// are reported together.
const policiesSettle = 50 * time.Millisecond

// Annotations of pods that others write.
const (
	// mirrorAnnotation is the UID that kubelet gave a static pod. The Pod in the API, which
	// only mirrors it, has another.
	mirrorAnnotation = "kubernetes.io/config.mirror"
	// networksAnnotation is what interfaces Multus gave a pod beside its own.
	networksAnnotation = "k8s.v1.cni.cncf.io/network-status"
)

// networkPolicies are what is watched to enforce NetworkPolicies: nothing unless the
// configuration says so.
type networkPolicies struct {
	policies, pods, namespaces *source
}

// kept is what is kept of an object: enough of its metadata to find it by.
type kept[T any] struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	value *T
}

func keep[T any](from metav1.Object, value *T) *kept[T] {
	k := &kept[T]{value: value}
	k.Namespace, k.Name, k.UID, k.ResourceVersion = from.GetNamespace(), from.GetName(), from.GetUID(), from.GetResourceVersion()
	return k
}

// sameValue says whether a change of an object is none here.
func sameValue[T any](before, now any) bool {
	a, ok := before.(*kept[T])
	b, also := now.(*kept[T])
	return ok && also && reflect.DeepEqual(a.value, b.value)
}

// values are the values of all objects of a source.
func values[T any](s *source) []*T {
	objects := s.informer.GetStore().List()
	out := make([]*T, 0, len(objects))
	for _, o := range objects {
		if k, ok := o.(*kept[T]); ok {
			out = append(out, k.value)
		}
	}
	return out
}

// follow starts nothing yet. changed is called after each change.
func (n *networkPolicies) follow(api connection, tenants []overlay.Tenant, changed func(string)) error {
	var errs [3]error
	example := &unstructured.Unstructured{}
	pod := func(u *unstructured.Unstructured) (any, error) { return keep(u, readPod(u, tenants)), nil }
	n.policies, errs[0] = follow(api.objects.Resource(networkPolicyResource), wanted{
		name: "NetworkPolicies", client: api.objects, example: example, keep: only(keepNetworkPolicy), changed: changed,
	})
	n.pods, errs[1] = follow(api.objects.Resource(podResource), wanted{
		name: "all pods", client: api.objects, example: example, keep: only(pod), changed: changed,
	})
	n.namespaces, errs[2] = follow(api.metadata.Resource(namespaceResource), wanted{
		name: "Namespaces", client: api.metadata, example: &metav1.PartialObjectMetadata{}, keep: only(keepNamespace), changed: changed,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	n.pods.same, n.namespaces.same = sameValue[netpol.Pod], sameValue[netpol.Namespace]
	return nil
}

func (n *networkPolicies) sources() []*source {
	if n.policies == nil {
		return nil
	}
	return []*source{n.policies, n.pods, n.namespaces}
}

// NetworkState is what NetworkPolicies depend on. It is not complete before the API server
// has sent everything, and never if they are not watched. Nobody may change what it points to.
func (w *Watcher) NetworkState() (s netpol.State, complete bool) {
	n := &w.netpol
	if n.policies == nil {
		return s, false
	}
	complete, s.Node = true, w.config.Node
	for _, source := range n.sources() {
		complete = complete && source.complete()
	}
	s.Policies, s.Pods = values[netpol.Policy](n.policies), values[netpol.Pod](n.pods)
	s.Namespaces = map[string]*netpol.Namespace{}
	for _, namespace := range values[netpol.Namespace](n.namespaces) {
		s.Namespaces[namespace.Name] = namespace
	}
	return s, complete
}

func keepNetworkPolicy(u *unstructured.Unstructured) (any, error) {
	spec, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return nil, err
	}
	return keep(u, netpol.NewPolicy(u.GetNamespace(), u.GetName(), spec)), nil
}

func keepNamespace(m *metav1.PartialObjectMetadata) (any, error) {
	return keep(m, &netpol.Namespace{Name: shared(m.Name), Labels: sharedLabels(m.Labels)}), nil
}

// readPod reads what NetworkPolicies need of a pod: of 10 or 20 kB, some hundred octets.
func readPod(u *unstructured.Unstructured, tenants []overlay.Tenant) *netpol.Pod {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, fields...)
		return s
	}
	p := &netpol.Pod{
		Namespace: shared(u.GetNamespace()), Name: u.GetName(), UID: string(u.GetUID()), Labels: sharedLabels(u.GetLabels()),
		Created: u.GetCreationTimestamp().Time, Leaving: u.GetDeletionTimestamp() != nil, Node: shared(text("spec", "nodeName")),
	}
	p.Workload = shared(workloadOf(u))
	if uid := u.GetAnnotations()[mirrorAnnotation]; uid != "" {
		p.UID = uid
	}
	p.HostNetwork, _, _ = unstructured.NestedBool(u.Object, "spec", "hostNetwork")
	switch text("status", "phase") {
	case "Succeeded", "Failed":
		p.Finished = true
	}
	p.Ports = append(portsOf(u, "containers", false), portsOf(u, "initContainers", true)...)
	p.Addresses = addressesOf(u)
	if own := u.GetAnnotations()[networksAnnotation]; own != "" && !p.HostNetwork {
		p.Addresses = append(p.Addresses, tenantAddresses(p.Namespace, own, tenants)...)
	}
	return p
}

// portsOf are the ports with names. Of the containers that run at the start only those count
// that stay.
func portsOf(u *unstructured.Unstructured, field string, stay bool) (out []netpol.ContainerPort) {
	containers, _, _ := nestedList(u.Object, "spec", field)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		if stay && container["restartPolicy"] != "Always" {
			continue
		}
		ports, _ := container["ports"].([]any)
		for _, port := range ports {
			fields, _ := port.(map[string]any)
			name, _ := fields["name"].(string)
			protocol, _ := fields["protocol"].(string)
			kind, known := netpol.ProtocolByName(protocol)
			n, _ := number(fields["containerPort"])
			if name != "" && known && n > 0 && n < 1<<16 {
				out = append(out, netpol.ContainerPort{Name: shared(name), Protocol: kind, Port: uint16(n)})
			}
		}
	}
	return out
}

// addressesOf are a pod's own.
func addressesOf(u *unstructured.Unstructured) (out []netpol.Address) {
	list, _, _ := nestedList(u.Object, "status", "podIPs")
	for _, o := range list {
		fields, _ := o.(map[string]any)
		text, _ := fields["ip"].(string)
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			out = append(out, netpol.Address{Addr: a.Unmap()})
		}
	}
	return out
}

// tenantAddresses are those that Multus gave a pod in tenants' networks. An address is that of
// the tenant which lists the pod's namespace and has the address in a pool. Of more than one
// such tenant it is nobody's.
func tenantAddresses(namespace, status string, tenants []overlay.Tenant) (out []netpol.Address) {
	var networks []struct {
		IPs     []string `json:"ips"`
		Default bool     `json:"default"`
	}
	if json.Unmarshal([]byte(status), &networks) != nil {
		return nil
	}
	for _, n := range networks {
		for _, text := range n.IPs {
			a, err := netip.ParseAddr(text)
			if err != nil || n.Default {
				continue
			}
			a = a.Unmap()
			var of []uint8
			for _, t := range tenants {
				if slices.Contains(t.Namespaces, namespace) && slices.ContainsFunc(t.Pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
					of = append(of, t.ID)
				}
			}
			if len(of) == 1 {
				out = append(out, netpol.Address{Tenant: of[0], Addr: a})
			}
		}
	}
	return out
}

// nestedList is a list in an object, without a copy of it.
func nestedList(o map[string]any, fields ...string) ([]any, bool, error) {
	v, there, err := unstructured.NestedFieldNoCopy(o, fields...)
	list, _ := v.([]any)
	return list, there, err
}

// number is one of JSON.
func number(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	}
	return 0, false
}

// shared is a text that thousands of objects have, once.
func shared(s string) string { return unique.Make(s).Value() }

func sharedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		out[shared(k)] = shared(v)
	}
	return out
}
