// Package policycase has cyclonus judge NetworkPolicies: its test cases, as states of a cluster
// that follow each other, and what its own matcher says of flows between their pods.
package policycase

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/culvert-net/culvert/internal/netpol"
)

// Step is a cluster in one of its states, and what its policies mean there.
type Step struct {
	Name  string
	State netpol.State // its Local is empty
	Flows []Flow
}

// Flow is from one pod to another.
type Flow struct {
	From, To        *netpol.Pod
	Protocol        uint8
	Port            uint16
	Egress, Ingress bool // From's policies allow it, To's do
}

// Flows go to the ports that policies name, to one above, and to one that no container has.
var (
	ports     = []int{80, 81, 82}
	unserved  = 7981
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

// Each calls a function for every step of every case. Pods have the addresses that address
// returns, and their UIDs are their names. The cases' ipBlocks are around the address of the pod c of
// namespace z.
func Each(address func(namespace, pod string) netip.Addr, do func(Step)) error {
	namespaces := []string{"x", "y", "z"}
	cluster := &cluster{kube.NewMockKubernetes(1), address}
	start, err := probe.NewDefaultResources(cluster, namespaces, []string{"a", "b", "c"}, ports, protocols, nil, 1, false, "")
	if err != nil {
		return err
	}
	for i, c := range generator.NewTestCaseGenerator(true, address("z", "c").String(), namespaces, nil, nil).GenerateAllTestCases() {
		state := &connectivity.TestCaseState{Kubernetes: cluster, Resources: start}
		if err := state.ResetClusterState(); err != nil {
			return err
		}
		for j, step := range c.Steps {
			name := fmt.Sprintf("case %d, step %d (%s)", i, j, c.Description)
			for _, action := range step.Actions {
				if err := act(state, action); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			made, err := newStep(state)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			made.Name = name
			do(made)
		}
	}
	return nil
}

// cluster is cyclonus' own stand-in for one, with other addresses.
type cluster struct {
	*kube.MockKubernetes
	address func(namespace, pod string) netip.Addr
}

func (c *cluster) CreatePod(pod *corev1.Pod) (*corev1.Pod, error) {
	pod, err := c.MockKubernetes.CreatePod(pod)
	if err == nil {
		pod.Status.PodIP = c.address(pod.Namespace, pod.Name).String()
	}
	return pod, err
}

// act does what cyclonus' interpreter does for an action.
func act(s *connectivity.TestCaseState, a *generator.Action) error {
	switch {
	case a.CreatePolicy != nil:
		return s.CreatePolicy(a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		return s.UpdatePolicy(a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		return s.DeletePolicy(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		return s.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		return s.SetNamespaceLabels(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		return s.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.ReadNetworkPolicies != nil:
		return s.ReadPolicies(a.ReadNetworkPolicies.Namespaces)
	case a.CreatePod != nil:
		return s.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		return s.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		return s.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	}
	return fmt.Errorf("unknown action %+v", a)
}

func newStep(s *connectivity.TestCaseState) (out Step, err error) {
	out.State.Namespaces = map[string]*netpol.Namespace{}
	for name, labels := range s.Resources.Namespaces {
		out.State.Namespaces[name] = &netpol.Namespace{Name: name, Labels: labels}
	}
	pods := map[string]*netpol.Pod{}
	for _, p := range s.Resources.Pods {
		pod, err := newPod(p)
		if err != nil {
			return out, err
		}
		pods[p.PodString().String()] = pod
		out.State.Pods = append(out.State.Pods, pod)
	}
	for _, p := range s.Policies {
		policy, err := newPolicy(p)
		if err != nil {
			return out, err
		}
		out.State.Policies = append(out.State.Policies, policy)
	}
	policies := matcher.BuildNetworkPolicies(true, s.Policies)
	for _, j := range jobs(s.Resources) {
		protocol, known := netpol.ProtocolByName(string(j.Protocol))
		if !known {
			return out, fmt.Errorf("unknown protocol %s", j.Protocol)
		}
		allowed := policies.IsTrafficAllowed(j.Traffic())
		out.Flows = append(out.Flows, Flow{
			From: pods[j.FromKey], To: pods[j.ToKey], Protocol: protocol, Port: uint16(j.ResolvedPort),
			Egress: allowed.Egress.IsAllowed(), Ingress: allowed.Ingress.IsAllowed(),
		})
	}
	return out, nil
}

// jobs are cyclonus' probes of all ports of all pods, and one of a port that none has. No
// policy is about what a pod sends to itself.
func jobs(r *probe.Resources) (out []*probe.Job) {
	for _, j := range (&probe.JobBuilder{}).GetJobsAllAvailableServers(r, generator.ProbeModePodIP).Valid {
		if j.FromKey == j.ToKey {
			continue
		}
		out = append(out, j)
		if j.ResolvedPort == ports[0] {
			other := *j
			other.ResolvedPort, other.ResolvedPortName = unserved, ""
			out = append(out, &other)
		}
	}
	return out
}

func newPod(p *probe.Pod) (*netpol.Pod, error) {
	a, err := netip.ParseAddr(p.IP)
	if err != nil {
		return nil, err
	}
	out := &netpol.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.Namespace + "/" + p.Name, Labels: p.Labels, Addresses: []netpol.Address{{Addr: a}}}
	for _, c := range p.Containers {
		protocol, known := netpol.ProtocolByName(string(c.Protocol))
		if !known {
			return nil, fmt.Errorf("unknown protocol %s", c.Protocol)
		}
		out.Ports = append(out.Ports, netpol.ContainerPort{Name: c.PortName, Protocol: protocol, Port: uint16(c.Port)})
	}
	return out, nil
}

// newPolicy is a policy as the API server gives it to us: it fills in the namespace.
func newPolicy(p *networkingv1.NetworkPolicy) (*netpol.Policy, error) {
	spec, err := json.Marshal(p.Spec)
	if err != nil {
		return nil, err
	}
	namespace := p.Namespace
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	out := netpol.NewPolicy(namespace, p.Name, spec)
	if len(out.Problems) > 0 {
		return nil, fmt.Errorf("%s/%s: %v", namespace, p.Name, out.Problems)
	}
	return out, nil
}
