package operator

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/culvert-net/culvert/internal/kube"
)

// right is one of an operator's in a cluster. Without a namespace it is for the whole cluster.
type right struct{ verb, group, resource, namespace string }

func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	return text
}

// RightsError names the rights that an operator lacks. It is an fs.ErrPermission.
type RightsError struct{ Missing []string }

func (e *RightsError) Error() string {
	return "your rights in the cluster do not suffice: you may not " + strings.Join(e.Missing, ", ")
}

// Is says that permission is denied.
func (e *RightsError) Is(target error) bool { return target == fs.ErrPermission }

// require asks the API server whether the operator has these rights. The error is a RightsError
// if one is missing.
func (c *Client) require(ctx context.Context, rights []right) error {
	var missing []string
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.resource, "/")
		review, err := kube.Typed[authorizationv1.SelfSubjectAccessReview](kube.Create(ctx, c.objects.Resource(reviews),
			"authorization.k8s.io/v1", "SelfSubjectAccessReview", &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Namespace: r.namespace,
				}},
			}))
		if err != nil {
			return fmt.Errorf("kubernetes: what you may do: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return &RightsError{missing}
	}
	return nil
}
