package operator

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/culvert-net/culvert/internal/kube"
)

// Options say which cluster, and where in it.
type Options struct {
	Kubeconfig string // a file; as kubectl finds it unless set
	Namespace  string // of the test's pods
	System     string // namespace of the agents
	DaemonSet  string // of the agents
	Version    string // of this program
}

// Client asks a cluster.
type Client struct {
	Options
	config  *rest.Config
	objects dynamic.Interface
}

// Limits of what is asked of an API server, requests a second and at once.
const (
	requestRate  = 50
	requestBurst = 100
)

// New reads who and where the API server is. It is not asked yet.
func New(o Options) (*Client, error) {
	c, err := kube.KubectlConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	objects, err := kube.Dynamic(c, o.Version, requestRate, requestBurst)
	return &Client{o, c, objects}, err
}

var (
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	policies   = schema.GroupVersionResource{Group: kube.Group, Version: "v1alpha1", Resource: "srv6policies"}
	reviews    = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
)

// get reads an object.
func get[T any](ctx context.Context, r dynamic.ResourceInterface, name string) (*T, error) {
	return kube.Typed[T](r.Get(ctx, name, metav1.GetOptions{}))
}

// list reads those that a selector of labels chooses.
func list[T any](ctx context.Context, r dynamic.ResourceInterface, o metav1.ListOptions) (all []T, err error) {
	found, err := r.List(ctx, o)
	if err != nil {
		return nil, err
	}
	for i := range found.Items {
		one, err := kube.Typed[T](&found.Items[i], nil)
		if err != nil {
			return nil, err
		}
		all = append(all, *one)
	}
	return all, nil
}

// errNoCulvert is that no agents are found.
var errNoCulvert = errors.New("is Culvert installed? --system-namespace and --daemonset say where else it is")
