package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// serviceLabel and a Service's name are the label of its pods.
const serviceLabel = "service-"

// podPort is where test pods serve HTTP, which their kubelet asks for.
const podPort = 8000

// PodObject is a pod of the lab as an object of Kubernetes. It is on the node that
// the topology says, by the scheduler.
func PodObject(in *instance.Instance, p *topology.Node) map[string]any {
	labels := map[string]any{}
	for _, s := range in.Services {
		if slices.Contains(s.Pods(), p.Name) {
			labels[serviceLabel+s.Name] = "true"
		}
	}
	probe := map[string]any{"httpGet": map[string]any{"path": "/etc/hostname", "port": podPort}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 10}
	var ports []map[string]any
	for _, port := range p.HostPorts {
		ports = append(ports, map[string]any{"hostPort": port.Host, "containerPort": port.Pod, "protocol": strings.ToUpper(port.Protocol)})
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": p.Name, "labels": labels},
		"spec": map[string]any{
			"nodeSelector":                 map[string]any{"kubernetes.io/hostname": p.Host},
			"automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{
				"name": "http", "image": podImage, "imagePullPolicy": "Never", "ports": ports,
				"command":        []string{busybox, "httpd", "-f", "-p", fmt.Sprint(podPort), "-h", "/"},
				"readinessProbe": probe, "livenessProbe": probe,
			}},
		},
	}
}

// serviceOf is a Service of the lab in the cluster's families, for whose pod
// Kubernetes looks.
func serviceOf(in *instance.Instance, s topology.Service) map[string]any {
	if families := Families(in); !slices.Contains(families, topology.IPv4) {
		s.IPv4 = netip.Addr{}
	} else if !slices.Contains(families, topology.IPv6) {
		s.IPv6 = netip.Addr{}
	}
	object := serviceObject(&s)
	spec, _ := object["spec"].(map[string]any)
	spec["selector"] = map[string]any{serviceLabel + s.Name: "true"}
	return object
}

// JoinPod waits until a pod is ready, and makes its network namespace one of the
// lab's, for checks to send from.
func JoinPod(ctx context.Context, in *instance.Instance, p *topology.Node) error {
	n := in.Node(p.Host)
	var file string
	var list []netip.Addr
	if err := instance.Await(ctx, ClusterTime, func() (err error) {
		file, list, err = networkOf(ctx, in, n, p)
		return err
	}); err != nil {
		return fmt.Errorf("the pod did not come up: %w\n%s", err, KubeletLog(in, n))
	}
	ns := in.Namespace(p)
	in.State.Namespaces = instance.AddNew(in.State.Namespaces, ns.Name)
	if err := instance.SavePod(in, p, list); err != nil {
		return err
	}
	if err := ns.Adopt(file, in.State.Mark); err != nil {
		return err
	}
	return ns.Sysctl("net/ipv4/ping_group_range", "0 0") // checks ping from there
}

// LeavePod gives the namespace back to who made it.
func LeavePod(in *instance.Instance, p *topology.Node) error {
	delete(in.State.Pods, p.Name)
	return network.DropNamespace(in, p)
}

// networkOf is the network namespace of a pod that is ready, as a file, and its
// addresses. After a node was started anew Kubernetes may still speak of the pod as
// it was before: then none of the node's processes are the pod's, or it has other
// addresses.
func networkOf(ctx context.Context, in *instance.Instance, n, p *topology.Node) (file string, list []netip.Addr, err error) {
	out, err := Kubectl(ctx, in, nil, "get", "pod", p.Name, "-o", "json")
	var pod corev1.Pod
	if err == nil {
		err = json.Unmarshal(out, &pod)
	}
	if err != nil {
		return "", nil, err
	}
	isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	if !slices.ContainsFunc(pod.Status.Conditions, isReady) {
		return "", nil, fmt.Errorf("pod %s is not ready", p.Name)
	}
	pids, err := Processes(in, n, func(pid int) bool {
		cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return err == nil && strings.Contains(string(cgroup), "/pod"+string(pod.UID))
	})
	if err != nil || len(pids) == 0 {
		return "", nil, errors.Join(fmt.Errorf("%s has no process of pod %s", n.Name, p.Name), err)
	}
	file = fmt.Sprintf("/proc/%d/ns/net", pids[0])
	shown, err := namespace.Output(exec.Command("nsenter", "--net="+file, "ip", "-o", "address", "show", "dev", topology.PodInterface))
	for _, ip := range pod.Status.PodIPs {
		a, notAnAddress := netip.ParseAddr(ip.IP)
		if list = append(list, a); !strings.Contains(string(shown), " "+ip.IP+"/") {
			err = errors.Join(fmt.Errorf("pod %s has not %s", p.Name, ip.IP), err)
		}
		err = errors.Join(err, notAnAddress)
	}
	return file, list, err
}
