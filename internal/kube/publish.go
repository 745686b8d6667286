package kube

import (
	"context"
	"encoding/json"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/overlay"
)

// publication is what a Node says of its node.
type publication struct {
	overlay.Node
	Former netip.Addr `json:"former,omitzero"`
}

// Publish writes this node's description to its Node object, as soon as possible,
// and again whenever the object differs.
func (w *Watcher) Publish(n overlay.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = &n
	w.write.Add(task{about: aboutPublication})
}

// writePublication annotates this node's Node, if that is there and says
// something else.
func (w *Watcher) writePublication(ctx context.Context) error {
	w.mu.Lock()
	n := w.published
	w.mu.Unlock()
	u := object[unstructured.Unstructured](w.self, w.config.Node)
	if n == nil || u == nil {
		return nil // observeSelf comes back
	}
	text, err := json.Marshal(publication{*n, n.Former})
	if err != nil || u.GetAnnotations()[NodeAnnotation] == string(text) {
		return err
	}
	return annotate(ctx, w.api.objects.Resource(nodeResource), w.config.Node, NodeAnnotation, string(text))
}
