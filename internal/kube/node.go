package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/srv6"
)

// NodeAnnotation is where a node's Node says what it is in the overlay: an
// overlay.Node as JSON.
const NodeAnnotation = Group + "/overlay"

// keepSelf keeps of this node's Node what is read here.
func keepSelf(u *unstructured.Unstructured) (any, error) {
	kept := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}
	for _, path := range [][]string{
		{"metadata", "name"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "labels"},
		{"metadata", "annotations", NodeAnnotation},
		{"spec", "podCIDRs"}, {"spec", "podCIDR"}, {"status", "addresses"},
	} {
		value, there, err := unstructured.NestedFieldNoCopy(u.Object, path...)
		if err != nil || !there {
			continue
		}
		if err := unstructured.SetNestedField(kept, value, path...); err != nil {
			return nil, fmt.Errorf("%v of Node %s: %w", path, u.GetName(), err)
		}
	}
	return &unstructured.Unstructured{Object: kept}, nil
}

// keepNode keeps the part of another node's metadata that this node needs.
func keepNode(m *metav1.PartialObjectMetadata) (any, error) {
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.Name, kept.UID, kept.ResourceVersion = m.Name, m.UID, m.ResourceVersion
	if text, there := m.Annotations[NodeAnnotation]; there {
		kept.Annotations = map[string]string{NodeAnnotation: text}
	}
	return kept, nil
}

// observeSelf reports what has changed of this node.
func (w *Watcher) observeSelf(h Handler) {
	u := object[unstructured.Unstructured](w.self, w.config.Node)
	if u == nil {
		return // made by the kubelet; gone for a moment if it is made anew
	}
	self := readSelf(u)
	w.mu.Lock()
	same := reflect.DeepEqual(w.reported.self, self)
	w.reported.self = self
	publishes := w.published != nil
	w.mu.Unlock()
	if !same {
		h.SetSelf(self)
	}
	if publishes {
		w.write.Add(task{about: aboutPublication})
	}
}

func readSelf(u *unstructured.Unstructured) Self {
	self := Self{UID: string(u.GetUID())}
	cidrs, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "podCIDRs")
	if one, _, _ := unstructured.NestedString(u.Object, "spec", "podCIDR"); len(cidrs) == 0 && one != "" {
		cidrs = []string{one}
	}
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			self.PodCIDRs = append(self.PodCIDRs, p.Masked())
		}
	}
	addresses, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses")
	for _, a := range addresses {
		fields, _ := a.(map[string]any)
		text, _ := fields["address"].(string)
		if addr, err := netip.ParseAddr(text); err == nil && fields["type"] == "InternalIP" {
			self.Addresses = append(self.Addresses, addr)
		}
	}
	return self
}

// observeNode reports what has changed of another node.
func (w *Watcher) observeNode(name string, h Handler) {
	if name == w.config.Node {
		return
	}
	m := object[metav1.PartialObjectMetadata](w.nodes, name)
	if m == nil || m.Annotations[NodeAnnotation] == "" {
		w.forgetNode(name, h)
		return
	}
	n, err := readNode(name, m.Annotations[NodeAnnotation])
	if err != nil {
		w.log.Warn("what a node says of itself cannot be used: what it said before stays", "node", name, "annotation", NodeAnnotation, "error", err)
		return
	}
	w.mu.Lock()
	old, there := w.reported.nodes[name]
	w.reported.nodes[name] = n
	w.mu.Unlock()
	if there && reflect.DeepEqual(old, n) {
		return
	}
	h.PutNode(n)
	if old.Address != n.Address { // paths that lead to it by name
		w.observe.Add(task{about: aboutPaths})
	}
}

func (w *Watcher) forgetNode(name string, h Handler) {
	w.mu.Lock()
	_, there := w.reported.nodes[name]
	delete(w.reported.nodes, name)
	w.mu.Unlock()
	if there {
		h.DeleteNode(name)
		w.observe.Add(task{about: aboutPaths})
	}
}

// observeGone forgets the nodes of which an earlier watcher knew, and which are not
// there any more.
func (w *Watcher) observeGone(h Handler) {
	if !w.nodes.complete() {
		return
	}
	w.mu.Lock()
	var gone []string
	for name := range w.reported.nodes {
		if object[metav1.PartialObjectMetadata](w.nodes, name) == nil {
			gone = append(gone, name)
		}
	}
	w.mu.Unlock()
	slices.Sort(gone)
	for _, name := range gone {
		w.forgetNode(name, h)
	}
}

// readNode reads what a node says of itself. Fields that this version does not
// know are another version's: they are passed over.
func readNode(name, text string) (overlay.Node, error) {
	var n overlay.Node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return n, err
	}
	n.Name = name // a Node describes itself only
	found := srv6.CheckUnicast6("address", n.Address)
	for i, p := range n.Prefixes {
		found = append(found, srv6.CheckPrefix(fmt.Sprintf("prefixes[%d]", i), p)...)
	}
	for field, list := range map[string][]netip.Addr{"ipv4": n.IPv4, "ipv6": n.IPv6} {
		for i, s := range list {
			found = append(found, srv6.CheckUnicast6(fmt.Sprintf("%s[%d]", field, i), s)...)
		}
	}
	errs := make([]error, len(found))
	for i, e := range found {
		errs[i] = e
	}
	return n, errors.Join(errs...)
}
