package kube

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Group is the API group of what is ours, and the start of our annotations' and
// labels' names.
const Group = "culvert.net"

var (
	nodeResource      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	eventResource     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	podResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	sliceResource     = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	policyResource    = schema.GroupVersionResource{Group: Group, Version: "v1alpha1", Resource: "srv6policies"}
	classResource     = schema.GroupVersionResource{Group: Group, Version: "v1alpha1", Resource: "srv6trafficclasses"}
	claimResource     = schema.GroupVersionResource{Group: Group, Version: "v1alpha1", Resource: "srv6trafficclassclaims"}

	networkPolicyResource = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
)

// lister is what client-go has for each kind of client and resource.
type lister[T runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (T, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// source is a set of objects that is followed.
type source struct {
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration

	health
	optional bool        // the API server may know no such resource
	missing  atomic.Bool // it knows none

	// same, if set before it runs, says that an object has not changed for us.
	same func(before, now any) bool
}

// wanted is what a source is to hold.
type wanted struct {
	name    string
	client  any            // the resource is of
	example runtime.Object // of what it lists
	with    fields.Set     // that they have
	labels  labels.Set     // too
	keep    cache.TransformFunc
	changed func(name string) // called for an object that is new, different or gone
	// optional: the cluster may lack the resource's definition, and then has no objects. Without
	// it an answer 404, such as a proxy's before the API server, is an error like others.
	optional bool
}

// only has keep transform the objects of its type, and no others.
func only[T any](keep func(*T) (any, error)) cache.TransformFunc {
	return func(o any) (any, error) {
		if v, ok := o.(*T); ok {
			return keep(v)
		}
		return o, nil
	}
}

// follow makes a source of a resource.
func follow[T runtime.Object](from lister[T], w wanted) (*source, error) {
	s := &source{optional: w.optional}
	having, labelled := fields.SelectorFromSet(w.with).String(), labels.SelectorFromSet(w.labels).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector, o.LabelSelector = having, labelled
			list, err := from.List(ctx, o)
			s.observe(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = having, labelled
			answer, err := from.Watch(ctx, o)
			s.observe(err)
			return answer, err
		},
	}
	s.informer = cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, w.client), w.example, cache.SharedIndexInformerOptions{})
	if err := s.informer.SetTransform(w.keep); err != nil {
		return nil, fmt.Errorf("follow %s: %w", w.name, err)
	}
	report := func(o any) {
		if key, err := cache.DeletionHandlingObjectToName(o); err == nil {
			w.changed(key.Name)
		}
	}
	var err error
	s.registration, err = s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report, DeleteFunc: report,
		UpdateFunc: func(before, o any) {
			if s.same == nil || !s.same(before, o) {
				report(o)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", w.name, err)
	}
	return s, nil
}

// observe notes how a request went. It is no failure that an optional resource is
// missing, such as policies in a cluster without their definition.
func (s *source) observe(err error) {
	s.missing.Store(s.optional && apierrors.IsNotFound(err))
	if s.missing.Load() {
		err = nil
	}
	s.note(err)
}

// complete says whether the API server has sent all objects, or lacks an optional
// resource.
func (s *source) complete() bool {
	return s.missing.Load() || s.registration.HasSynced()
}

// object is one of a source's, nil if it is not there.
func object[T any](s *source, key string) *T {
	o, _, err := s.informer.GetStore().GetByKey(key)
	if err != nil {
		return nil
	}
	found, _ := o.(*T)
	return found
}
