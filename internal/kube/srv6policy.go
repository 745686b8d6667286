package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Of the SRv6Policy resource, which dist/kubernetes defines.
const (
	policyVersion = Group + "/v1alpha1"
	policyKind    = "SRv6Policy"
)

// PolicySpec is the spec of an SRv6Policy: a candidate path for one node.
// In the place of Node there may be nodeSelector, a label selector.
type PolicySpec struct {
	Node         string                 `json:"node,omitempty"`
	EgressNode   string                 `json:"egressNode"` // an address of the underlay, or a name
	Traffic      Traffic                `json:"traffic,omitempty"`
	Color        uint32                 `json:"color,omitempty"`      // in the place of Traffic: of any other policy
	Preference   uint32                 `json:"preference,omitempty"` // DefaultPreference unless set
	BindingSID   netip.Addr             `json:"bindingSID,omitzero"`
	SegmentLists []srpolicy.SegmentList `json:"segmentLists"`
	// As srpolicy.DelayConstraint.
	DelayBound  srpolicy.Duration `json:"delayBound,omitempty"`
	LowestDelay bool              `json:"lowestDelay,omitempty"`
}

// keepOwn drops the parts of a policy or a class that this node does not read: above all
// the status of other nodes. It keeps only their number, and what they come to.
func (w *Watcher) keepOwn(u *unstructured.Unstructured) (any, error) {
	said, due := summaries(u)
	kept := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{},
		"spec": u.Object["spec"], "status": map[string]any{"count": statusNodes(u), "nodes": []any{}, "summary": said, "due": due},
	}}
	kept.SetName(u.GetName())
	kept.SetNamespace(u.GetNamespace())
	kept.SetCreationTimestamp(u.GetCreationTimestamp())
	kept.SetUID(u.GetUID())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetGeneration(u.GetGeneration())
	if own := nodeStatus(u, w.config.Node); own != nil {
		return kept, unstructured.SetNestedSlice(kept.Object, []any{own}, "status", "nodes")
	}
	return kept, nil
}

// statusNodes is how many nodes said something of it.
func statusNodes(u *unstructured.Unstructured) int64 {
	if n, there, err := unstructured.NestedInt64(u.Object, "status", "count"); there && err == nil {
		return n
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "nodes")
	return int64(len(all))
}

// nodeStatus is what a node said of a policy or a class.
func nodeStatus(u *unstructured.Unstructured, node string) map[string]any {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "nodes")
	for _, s := range all {
		if fields, ok := s.(map[string]any); ok && fields["name"] == node {
			return fields
		}
	}
	return nil
}

// isFor reports whether a policy is for the node with these labels. A policy's own
// egress node is not a headend, even if the selector matches it.
func isFor(u *unstructured.Unstructured, node string, of map[string]string) (bool, error) {
	if name, _, _ := unstructured.NestedString(u.Object, "spec", "node"); name != "" {
		return name == node, nil
	}
	fields, there, err := unstructured.NestedMap(u.Object, "spec", "nodeSelector")
	if err != nil || !there {
		return false, err
	}
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s); err != nil {
		return false, fmt.Errorf("spec.nodeSelector: %w", err)
	}
	if egress, _, _ := unstructured.NestedString(u.Object, "spec", "egressNode"); egress == node {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return false, fmt.Errorf("spec.nodeSelector: %w", err)
	}
	return selector.Matches(labels.Set(of)), nil
}

// delay is the constraint that the fields of the spec are.
func (s PolicySpec) delay() srpolicy.DelayConstraint {
	return srpolicy.DelayConstraint{DelayBound: s.DelayBound, LowestDelay: s.LowestDelay}
}

// readPolicy reads an SRv6Policy, or says all that is wrong with it by field.
func readPolicy(u *unstructured.Unstructured, node string) (entry, error) {
	var object struct {
		Spec PolicySpec `json:"spec"`
	}
	if err := readSpec(u, &object, "nodeSelector"); err != nil {
		return entry{}, err
	}
	s := object.Spec
	e, faults := written{
		origin: "srv6policy", egress: s.EgressNode, traffic: s.Traffic, color: s.Color, preference: s.Preference, bsid: s.BindingSID, lists: s.SegmentLists,
		delay:  s.delay(),
		fields: strings.NewReplacer("egress_node", "egressNode", "binding_sid", "bindingSID", "segment_lists", "segmentLists", "delay_bound", "delayBound"),
	}.read(node)
	if len(faults) > 0 {
		for i := range faults {
			faults[i].Field = "spec." + faults[i].Field
		}
		return entry{}, config.Errors(faults)
	}
	e.name = u.GetName()
	e.path.Name, e.path.Advertised.Name = pathName("srv6policy", e.name), e.name
	return e, nil
}

// readSpec reads the spec of an object into a struct with a field of that name, or says all that
// is wrong with it by field. Some fields are left out.
func readSpec(u *unstructured.Unstructured, into any, leave ...string) error {
	fields, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	for _, name := range leave {
		delete(fields, name)
	}
	text, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		return err
	}
	_, err = config.Unmarshal(text, into)
	if faults, ok := errors.AsType[config.Errors](err); ok {
		for i := range faults {
			faults[i].Line = 0 // nobody wrote lines
		}
	}
	return err
}
