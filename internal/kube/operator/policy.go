package operator

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube"
)

// PutPolicy makes an SRv6Policy.
func (c *Client) PutPolicy(ctx context.Context, p connectivity.Policy) error {
	var segments []any
	for _, s := range p.Segments {
		segments = append(segments, s.String())
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kube.Group + "/v1alpha1", "kind": "SRv6Policy",
		"spec": map[string]any{
			"node": p.Node, "egressNode": p.Egress, "traffic": string(p.Family), "preference": int64(connectivity.Preference),
			"segmentLists": []any{map[string]any{"segments": segments}},
		},
	}}
	u.SetName(p.Name)
	u.SetLabels(c.labels())
	if _, err := c.objects.Resource(policies).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("kubernetes: SRv6Policy %s: %w", p.Name, err)
	}
	return nil
}

// PolicyState is what the policy's node says of it.
func (c *Client) PolicyState(ctx context.Context, p connectivity.Policy) (state, why string, err error) {
	u, err := c.objects.Resource(policies).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("kubernetes: %w", err)
	}
	said, _, _ := unstructured.NestedSlice(u.Object, "status", "nodes")
	for _, s := range said {
		if fields, ok := s.(map[string]any); ok && fields["name"] == p.Node {
			state, _, _ = unstructured.NestedString(fields, "state")
			why, _, _ = unstructured.NestedString(fields, "reason")
		}
	}
	return state, why, nil
}

// DeletePolicy is content if it is gone.
func (c *Client) DeletePolicy(ctx context.Context, name string) error {
	if err := kube.ButGone(c.objects.Resource(policies).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return fmt.Errorf("kubernetes: SRv6Policy %s: %w", name, err)
	}
	return nil
}
