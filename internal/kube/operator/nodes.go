package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// agents is the DaemonSet of the agents.
func (c *Client) agents(ctx context.Context) (*appsv1.DaemonSet, error) {
	d, err := get[appsv1.DaemonSet](ctx, c.objects.Resource(daemonSets).Namespace(c.System), c.DaemonSet)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no DaemonSet %s in namespace %s: %w", c.DaemonSet, c.System, errNoCulvert)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return d, nil
}

// NodeNames are those of the cluster's nodes.
func (c *Client) NodeNames(ctx context.Context) (names []string, err error) {
	all, err := c.objects.Resource(nodes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	for _, n := range all.Items {
		names = append(names, n.GetName())
	}
	return names, nil
}

// agentPods are the pods of the agents, and the name of the agent's container.
func (c *Client) agentPods(ctx context.Context, onNode string) ([]corev1.Pod, string, error) {
	set, err := c.agents(ctx)
	if err != nil {
		return nil, "", err
	}
	o := metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(set.Spec.Selector)}
	if onNode != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", onNode).String()
	}
	running, err := list[corev1.Pod](ctx, c.objects.Resource(pods).Namespace(c.System), o)
	if err != nil {
		return nil, "", fmt.Errorf("kubernetes: %w", err)
	}
	running = slices.DeleteFunc(running, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return running, set.Spec.Template.Spec.Containers[0].Name, nil
}

// AgentOn is where commands of a node's agent can run.
func (c *Client) AgentOn(ctx context.Context, node string) (connectivity.Container, error) {
	running, name, err := c.agentPods(ctx, node)
	if err != nil {
		return connectivity.Container{}, err
	}
	if len(running) == 0 {
		return connectivity.Container{}, fmt.Errorf("there is no pod of the DaemonSet %s on %s", c.DaemonSet, node)
	}
	return connectivity.Container{Namespace: c.System, Pod: running[0].Name, Name: name}, nil
}

// FindPod finds one that is called namespace/name.
func (c *Client) FindPod(ctx context.Context, key string) (found connectivity.Pod, err error) {
	namespace, name, whole := strings.Cut(key, "/")
	if !whole || namespace == "" || name == "" {
		return found, fmt.Errorf("%q is no pod: give namespace/name", key)
	}
	p, err := get[corev1.Pod](ctx, c.objects.Resource(pods).Namespace(namespace), name)
	switch {
	case err != nil:
		return found, fmt.Errorf("kubernetes: %w", err)
	case p.Spec.HostNetwork:
		return found, fmt.Errorf("%s is in the network of its node: its packets take the node's routes", key)
	case len(p.Status.PodIPs) == 0:
		problem, _ := problemOf(p)
		return found, fmt.Errorf("%s has no address yet: %s", key, problem)
	}
	return connectivity.Pod{Container: connectivity.Container{Namespace: namespace, Pod: name}, Node: p.Spec.NodeName, Addresses: addresses(p)}, nil
}

// Nodes are all of the cluster, with the agents on them. It fails unless the operator
// has the rights for a test.
func (c *Client) Nodes(ctx context.Context) (out []connectivity.Node, err error) {
	err = c.require(ctx, []right{ // what a test does
		{"list", "", "nodes", ""},
		{"get", "apps", "daemonsets", c.System}, {"list", "", "pods", c.System}, {"create", "", "pods/exec", c.System},
		{"create", "", "namespaces", ""}, {"delete", "", "namespaces", ""},
		{"create", "apps", "daemonsets", c.Namespace}, {"create", "", "services", c.Namespace},
		{"list", "", "pods", c.Namespace}, {"create", "", "pods/exec", c.Namespace},
		{"get", kube.Group, "srv6policies", ""}, {"create", kube.Group, "srv6policies", ""}, {"delete", kube.Group, "srv6policies", ""},
	})
	if err != nil {
		return nil, err
	}
	return c.Agents(ctx)
}

// Agents are Nodes, for who only looks.
func (c *Client) Agents(ctx context.Context) (out []connectivity.Node, err error) {
	running, agent, err := c.agentPods(ctx, "")
	if err != nil {
		return nil, err
	}
	all, err := list[corev1.Node](ctx, c.objects.Resource(nodes), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	for i := range all {
		n := connectivity.Node{Name: all[i].Name, Overlay: published(&all[i])}
		for _, c := range all[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				n.Problem = fmt.Sprintf("the node is not ready: %s", c.Message)
			}
		}
		for _, a := range all[i].Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				n.Addresses = append(n.Addresses, addr)
			}
		}
		at := slices.IndexFunc(running, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name })
		if at < 0 {
			n.Problem = fmt.Sprintf("there is no pod of the DaemonSet %s on it: see its nodeSelector, and the node's taints", c.DaemonSet)
		} else {
			n.Agent = connectivity.Container{Namespace: c.System, Pod: running[at].Name, Name: agent}
			if !isReady(&running[at]) {
				problem, _ := problemOf(&running[at])
				n.Problem = fmt.Sprintf("%s: %s", running[at].Name, problem)
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// published is what a node publishes about itself, or nil.
func published(n *corev1.Node) *overlay.Node {
	var o overlay.Node
	if json.Unmarshal([]byte(n.Annotations[kube.NodeAnnotation]), &o) != nil {
		return nil
	}
	return &o
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// lastWords are what a container said at its end, in a line.
func lastWords(message string) string {
	const most = 3
	lines := strings.Split(strings.TrimSpace(message), "\n")
	lines = lines[max(0, len(lines)-most):]
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
}

// problemOf is why a pod is not ready, and whether that stays so.
func problemOf(p *corev1.Pod) (problem string, fatal bool) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		last := s.LastTerminationState.Terminated
		switch w := s.State.Waiting; {
		case w == nil:
		case w.Reason == "CrashLoopBackOff" && last != nil:
			return fmt.Sprintf("container %s ends, exit code %d: %s", s.Name, last.ExitCode, lastWords(last.Message)), true
		case slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, w.Reason):
			return fmt.Sprintf("image %s: %s: %s", s.Image, w.Reason, w.Message), true
		case w.Reason != "PodInitializing":
			return strings.TrimSpace(fmt.Sprintf("container %s: %s %s", s.Name, w.Reason, w.Message)), false
		}
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %s ended, exit code %d: %s", s.Name, t.ExitCode, lastWords(t.Message)), false
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Message, false
		}
	}
	return fmt.Sprintf("it is %s", p.Status.Phase), false
}
