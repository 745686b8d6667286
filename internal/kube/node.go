package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/srv6"
)

// NodeAnnotation is where a node's Node says what it is in the overlay: a
// publication as JSON.
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

// observeSelf reports what has changed of this node.
func (w *Watcher) observeSelf(h Handler) {
	u := object[unstructured.Unstructured](w.self, w.config.Node)
	if u == nil {
		return // made by the kubelet; gone for a moment if it is made anew
	}
	self := readSelf(u)
	w.mu.Lock()
	self.Told = w.told.address(u.GetAnnotations()[NodeAnnotation], func(d time.Duration) { w.observe.AddAfter(task{about: aboutSelf}, d) })
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

// learned is how long the other nodes have to read what a node publishes.
const learned = 3 * time.Second

// told remembers what a node says of its address, and since when.
type told struct {
	known  netip.Addr // to the other nodes
	latest netip.Addr
	since  time.Time
}

// address returns the address that the others know, by what the Node says now. It has `again`
// called where they will know another one after a time. What somebody else writes does not stay so
// long: this node overwrites it.
func (t *told) address(says string, again func(time.Duration)) netip.Addr {
	var n overlay.Node
	if json.Unmarshal([]byte(says), &n) != nil || !n.Address.IsValid() {
		return t.known
	}
	if t.latest != n.Address {
		t.latest, t.since = n.Address, time.Now()
		again(learned)
	} else if time.Since(t.since) >= learned {
		t.known = n.Address
	}
	return t.known
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

// readNode reads what a node says of itself. Fields that this version does not
// know are another version's: they are passed over.
func readNode(name, text string) (overlay.Node, error) {
	var says publication
	if err := json.Unmarshal([]byte(text), &says); err != nil {
		return overlay.Node{}, err
	}
	n := says.Node
	n.Name, n.Former = name, says.Former // a Node describes itself only
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
