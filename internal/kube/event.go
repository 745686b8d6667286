package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// eventSink writes events by the dynamic client: the typed one brings every type
// that Kubernetes has.
type eventSink struct {
	ctx context.Context
	api connection
}

// Create writes a new event.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return Typed[corev1.Event](Create(s.ctx, s.api.objects.Resource(eventResource).Namespace(e.Namespace), "v1", "Event", e))
}

// Update is for what Patch does.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) { return s.Create(e) }

// Patch counts an event once more.
func (s eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return Typed[corev1.Event](s.api.objects.Resource(eventResource).Namespace(e.Namespace).Patch(s.ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}))
}

// Create creates an object. Its Go type does not carry the kind.
func Create(ctx context.Context, r dynamic.ResourceInterface, apiVersion, kind string, v any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return r.Create(ctx, u, metav1.CreateOptions{})
}

// Typed is the answer to a request as a value of a Go type.
func Typed[T any](u *unstructured.Unstructured, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	var v T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &v); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return &v, nil
}
