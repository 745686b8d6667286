package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// eventSink writes events by the dynamic client: the typed one brings every type
// that Kubernetes has.
type eventSink struct {
	ctx context.Context
	api connection
}

// Create writes a new event.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("v1")
	u.SetKind("Event")
	return s.answer(s.api.objects.Resource(eventResource).Namespace(e.Namespace).Create(s.ctx, u, metav1.CreateOptions{}))
}

// Update is for what Patch does.
func (s eventSink) Update(e *corev1.Event) (*corev1.Event, error) { return s.Create(e) }

// Patch counts an event once more.
func (s eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.answer(s.api.objects.Resource(eventResource).Namespace(e.Namespace).Patch(s.ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}))
}

func (s eventSink) answer(u *unstructured.Unstructured, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}
	e := &corev1.Event{}
	return e, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, e)
}
