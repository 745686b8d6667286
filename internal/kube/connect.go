package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection is a cluster's API, by its two kinds of clients: of whole objects,
// and of their metadata only.
type connection struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	dialer   *dialer
}

// Limits of what is asked of an API server: requests a second, at once, and how
// long one of them may take.
const (
	requestRate  = 20
	requestBurst = 40
	requestLimit = 15 * time.Second
)

// Dynamic makes a client of whole objects, with limits on its requests: a second, and
// at once. It sends nothing to the API server yet.
func Dynamic(c *rest.Config, version string, rate float32, burst int) (dynamic.Interface, error) {
	c.QPS, c.Burst, c.UserAgent = rate, burst, "culvert/"+cmp.Or(version, "unknown")
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return objects, nil
}

// connectTo makes the clients.
func connectTo(c *rest.Config, version string) (connection, error) {
	d := newDialer()
	c.Dial = d.dial
	objects, err := Dynamic(c, version, requestRate, requestBurst)
	if err != nil {
		return connection{}, err
	}
	meta, err := metadata.NewForConfig(c)
	if err != nil {
		return connection{}, fmt.Errorf("kubernetes: %w", err)
	}
	return connection{objects, meta, d}, nil
}

// explain says in one line why the API server does not answer. A pod knows it by
// a Service's address, and what leads there is another program.
func explain(err error, kubeconfig string) string {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // without the whole URL
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" && kubeconfig == "" {
		return err.Error() + ` (does kube-proxy run on this node? Without it, set KUBERNETES_SERVICE_HOST: dist/kubernetes/README.md)`
	}
	return err.Error()
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("kubernetes: this is no pod of a cluster: give a kubeconfig")
		}
		return c, err
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return c, nil
}

// KubectlConfig finds the API server as kubectl does: by the environment's
// KUBECONFIG, the user's file, or as a pod.
func KubectlConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no kubeconfig is there: give --kubeconfig, or set KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return c, nil
}
