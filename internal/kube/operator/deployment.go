package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube"
)

// Labels of what a test makes: who made it, for which namespace; of pods their
// role.
const (
	madeBy    = "app.kubernetes.io/managed-by"
	maker     = "culvert-connectivity"
	madeFor   = kube.Group + "/connectivity"
	roleLabel = kube.Group + "/role"
	container = "culvert"
	service   = "server"
)

func (c *Client) labels() map[string]string {
	return map[string]string{madeBy: maker, madeFor: c.Namespace}
}

// Start makes a namespace with the test's pods and their Service.
func (c *Client) Start(ctx context.Context, d connectivity.Deployment) error {
	if d.Image == "" {
		set, err := c.agents(ctx)
		if err != nil {
			return err
		}
		d.Image = set.Spec.Template.Spec.Containers[0].Image
	}
	if err := c.makeNamespace(ctx); err != nil {
		return err
	}
	for _, role := range connectivity.Roles() {
		labels := c.labels()
		labels[roleLabel] = role
		set := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: c.Namespace, Labels: labels},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(role, d)},
			},
		}
		if _, err := kube.Create(ctx, c.objects.Resource(daemonSets).Namespace(c.Namespace), "apps/v1", "DaemonSet", set); err != nil {
			return fmt.Errorf("kubernetes: %w", err)
		}
	}
	labels, families := c.labels(), corev1.IPFamilyPolicyPreferDualStack
	labels[roleLabel] = connectivity.Server
	port := func(name string, p corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: p, Port: int32(d.Ports.Service), TargetPort: intstr.FromInt32(int32(d.Ports.Pod))}
	}
	_, err := kube.Create(ctx, c.objects.Resource(services).Namespace(c.Namespace), "v1", "Service", &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: c.Namespace, Labels: labels},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: labels, IPFamilyPolicy: &families,
			Ports: []corev1.ServicePort{port("tcp", corev1.ProtocolTCP), port("udp", corev1.ProtocolUDP)},
		},
	})
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	return nil
}

// makeNamespace makes it: one that is there belongs to somebody. Pods of its have
// the node's network, which the standards for pods' security forbid.
func (c *Client) makeNamespace(ctx context.Context) error {
	labels := c.labels()
	labels["pod-security.kubernetes.io/enforce"] = "privileged"
	_, err := kube.Create(ctx, c.objects.Resource(namespaces), "v1", "Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: labels}})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := get[corev1.Namespace](ctx, c.objects.Resource(namespaces), c.Namespace)
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	if there.Labels[madeBy] != maker {
		return fmt.Errorf("%w: namespace %s is not a test's: give another one by --namespace", connectivity.ErrForeign, c.Namespace)
	}
	return fmt.Errorf("namespace %s: %w", c.Namespace, connectivity.ErrThere)
}

// podSpec is a server that needs no rights. On the node's own network it may not
// set what sockets for ICMP need.
func podSpec(role string, d connectivity.Deployment) corev1.PodSpec {
	port, no, yes, nobody, soon := d.Ports.Pod, false, true, int64(65534), int64(1)
	var terms []corev1.NodeSelectorTerm // one for each node: a field takes one value
	for _, n := range d.Nodes {
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n}},
		}})
	}
	s := corev1.PodSpec{
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &soon,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &nobody, RunAsGroup: &nobody, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ping_group_range", Value: "0 2147483647"}},
		},
	}
	if role == connectivity.Host {
		port, s.HostNetwork, s.SecurityContext.Sysctls = d.Ports.Host, true, nil
	}
	command := func(args ...string) []string {
		return append([]string{connectivity.Program, "connectivity"}, append(args, fmt.Sprintf("--port=%d", port))...)
	}
	s.Containers = []corev1.Container{{
		Name: container, Image: d.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command("serve"),
		Env:   []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
		Ports: []corev1.ContainerPort{{Name: "tcp", Protocol: corev1.ProtocolTCP, ContainerPort: int32(port)}, {Name: "udp", Protocol: corev1.ProtocolUDP, ContainerPort: int32(port)}},
		// By itself: what the kubelet reaches is a check of its own.
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command("listening")}}, PeriodSeconds: 1, TimeoutSeconds: 5},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}}
	return s
}

// Service is the one of the test.
func (c *Client) Service(ctx context.Context) (out connectivity.Service, err error) {
	s, err := get[corev1.Service](ctx, c.objects.Resource(services).Namespace(c.Namespace), service)
	if err != nil {
		return out, fmt.Errorf("kubernetes: %w", err)
	}
	for _, text := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(text); err == nil {
			out.Addresses = append(out.Addresses, a)
		}
	}
	for _, p := range s.Spec.Ports { // of one number for both protocols
		out.Port, out.NodePort = uint16(p.Port), uint16(p.NodePort)
	}
	return out, nil
}

// Pods are the test's.
func (c *Client) Pods(ctx context.Context) (out []connectivity.Pod, err error) {
	all, err := list[corev1.Pod](ctx, c.objects.Resource(pods).Namespace(c.Namespace), metav1.ListOptions{LabelSelector: madeBy + "=" + maker})
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	for i := range all {
		p := &all[i]
		one := connectivity.Pod{
			Container: connectivity.Container{Namespace: p.Namespace, Pod: p.Name, Name: container},
			Role:      p.Labels[roleLabel], Node: p.Spec.NodeName, Ready: isReady(p), Addresses: addresses(p),
		}
		if one.Node == "" { // not placed yet: the DaemonSet says for which node
			one.Node = wantedNode(p)
		}
		if !one.Ready {
			one.Problem, one.Fatal = problemOf(p)
			if event := c.latest(ctx, p); event != "" && !one.Fatal {
				one.Problem += ": " + event
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func addresses(p *corev1.Pod) (out []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func wantedNode(p *corev1.Pod) string {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == "metadata.name" && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// patience is how long a pod may start before its events are asked for.
const patience = 5 * time.Second

// latest is the last event of a pod that is slow to start: of its network, or an
// image that is still on its way. A warning goes first.
func (c *Client) latest(ctx context.Context, p *corev1.Pod) string {
	if time.Since(p.CreationTimestamp.Time) < patience {
		return ""
	}
	all, err := list[corev1.Event](ctx, c.objects.Resource(events).Namespace(p.Namespace), metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
	if err != nil || len(all) == 0 {
		return ""
	}
	return slices.MaxFunc(all, func(a, b corev1.Event) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), a.LastTimestamp.Compare(b.LastTimestamp.Time)) // Normal, Warning
	}).Message
}

// Clean deletes the namespace and the policies of a test, and waits until they
// are gone.
func (c *Client) Clean(ctx context.Context) (removed []string, err error) {
	ours := metav1.ListOptions{LabelSelector: madeBy + "=" + maker + "," + madeFor + "=" + c.Namespace}
	left, listed := c.objects.Resource(policies).List(ctx, ours)
	if listed == nil {
		for _, p := range left.Items {
			err = errors.Join(err, kube.ButGone(c.objects.Resource(policies).Delete(ctx, p.GetName(), metav1.DeleteOptions{})))
			removed = append(removed, "SRv6Policy "+p.GetName())
		}
	}
	err = errors.Join(err, kube.ButGone(listed)) // a cluster may not know such a resource
	spaces, listed := c.objects.Resource(namespaces).List(ctx, ours)
	if listed != nil {
		return removed, errors.Join(err, fmt.Errorf("kubernetes: %w", listed))
	}
	for _, n := range spaces.Items {
		err = errors.Join(err, c.deleteNamespace(ctx, n.GetName()))
		removed = append(removed, "namespace "+n.GetName())
	}
	return removed, err
}

func (c *Client) deleteNamespace(ctx context.Context, name string) error {
	const look = 250 * time.Millisecond
	r := c.objects.Resource(namespaces)
	if err := kube.ButGone(r.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	for {
		if _, err := r.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return kube.ButGone(err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("namespace %s is not gone yet: %w", name, ctx.Err())
		case <-time.After(look):
		}
	}
}
