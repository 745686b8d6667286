package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// podNamespace has the pods of nodes without a kubelet.
const podNamespace = "lab"

// podObject is such a pod in the Kubernetes API.
func podObject(p *topology.Node) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": p.Name, "namespace": podNamespace, "labels": map[string]string{"app": p.Name}},
		"spec": map[string]any{"nodeName": p.Host, "automountServiceAccountToken": false, "containers": []map[string]any{{"name": "lab", "image": "lab"}}},
	}
}

// inAPI says whether the lab writes a pod to the Kubernetes API: the mode has one, and no
// kubelet writes it. In other modes the API server need not run.
func inAPI(in *instance.Instance, p *topology.Node) bool {
	return in.State.Variant == topology.KubeMode && in.Node(p.Host).Kind != topology.Kubelet
}

// Start makes a pod, in the Kubernetes API where there is one, and its network. What detaches
// and attaches it again leaves the API alone, as a runtime does that makes a sandbox anew.
func Start(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	if inAPI(in, p) { // or agents keep it closed
		if err := announcePod(ctx, in, p); err != nil {
			return err
		}
	}
	if err := Attach(ctx, in, p); err != nil || !inAPI(in, p) {
		return err
	}
	return tellAddresses(ctx, in, p)
}

// AnnouncePods writes the pods that are there to the Kubernetes API, of a mode that has one.
func AnnouncePods(ctx context.Context, in *instance.Instance) error {
	for _, p := range in.Select(func(n *topology.Node) bool { return n.Kind == topology.Pod && inAPI(in, n) }) {
		if len(in.State.Pods[p.Name]) == 0 { // detached
			continue
		}
		if err := errors.Join(announcePod(ctx, in, p), tellAddresses(ctx, in, p)); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// announcePod makes the pod and its namespace.
func announcePod(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	for _, o := range []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": podNamespace}},
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": podNamespace}},
		podObject(p),
	} {
		if err := ApplyObject(ctx, in, o); err != nil {
			return err
		}
	}
	return nil
}

// tellAddresses is what a kubelet does once a pod has addresses.
func tellAddresses(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	addresses := in.State.Pods[p.Name]
	var ips []map[string]any
	for _, a := range addresses {
		ips = append(ips, map[string]any{"ip": a.String()})
	}
	o := podObject(p)
	o["status"] = map[string]any{"phase": "Running", "podIP": addresses[0].String(), "podIPs": ips}
	delete(o, "spec")
	path, err := topology.ObjectPath(o)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return err
	}
	_, err = Request(ctx, in, http.MethodPatch, path+"/status?fieldManager=kubelet&force=true", text)
	return err
}
