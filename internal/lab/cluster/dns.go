package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const dnsImage = "lab.culvert.net/coredns:1"

// dnsObjects are a cluster's DNS, with the addresses of its Service.
const dnsObjects = `
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: coredns, namespace: kube-system}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: coredns}
  rules:
    - {apiGroups: [""], resources: [endpoints, services, pods, namespaces, nodes], verbs: [get, list, watch]}
    - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: coredns}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
  subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: coredns, namespace: kube-system}
  data:
    Corefile: |
      .:53 {
        errors
        health
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
          pods insecure
          ttl 5
        }
      }
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: coredns, namespace: kube-system}
  spec:
    replicas: 1
    selector: {matchLabels: {k8s-app: kube-dns}}
    template:
      metadata: {labels: {k8s-app: kube-dns}}
      spec:
        serviceAccountName: coredns
        priorityClassName: system-cluster-critical
        dnsPolicy: Default
        containers:
          - name: coredns
            image: ` + dnsImage + `
            imagePullPolicy: Never
            args: [-conf, /etc/coredns/Corefile]
            readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1, timeoutSeconds: 5}
            volumeMounts: [{name: config, mountPath: /etc/coredns}]
        volumes: [{name: config, configMap: {name: coredns}}]
- apiVersion: v1
  kind: Service
  metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}}
  spec:
    selector: {k8s-app: kube-dns}
    clusterIP: "%[1]s"
    clusterIPs: ["%[1]s", "%[2]s"]
    ipFamilyPolicy: RequireDualStack
    ports:
      - {name: dns, protocol: UDP, port: 53}
      - {name: dns-tcp, protocol: TCP, port: 53}
`

// dnsAddresses of the Service, of which kubelets tell pods the first.
var dnsAddresses = [...]string{"10.96.0.10", "fd00:10:96::a"}

// PrepareSuites gives the cluster DNS, and kube-apiserver routes to pods, to which it is a proxy.
func PrepareSuites(ctx context.Context, in *instance.Instance) error {
	var objects []map[string]any
	if err := yaml.Unmarshal(fmt.Appendf(nil, dnsObjects, dnsAddresses[0], dnsAddresses[1]), &objects); err != nil {
		return err
	}
	if err := Create(ctx, in, objects); err != nil {
		return err
	}
	if err := routeToPods(ctx, in); err != nil {
		return err
	}
	_, err := Kubectl(ctx, in, nil, "--namespace", "kube-system", "rollout", "status", "deployment/coredns")
	return err
}

// routeToPods has the node of kube-apiserver send what is for pods to their nodes.
func routeToPods(ctx context.Context, in *instance.Instance) error {
	out, err := Kubectl(ctx, in, nil, "get", "nodes", "-o", "json")
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := json.Unmarshal(out, &nodes); err != nil {
		return err
	}
	var routes []string
	for _, n := range nodes.Items {
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			via, err := in.Address(n.Name, topology.FamilyOf(p.Addr()))
			if err != nil {
				return err
			}
			routes = append(routes, fmt.Sprintf("route replace %v via %v", p, via))
		}
	}
	return in.Namespace(in.APIServer()).Batch(routes)
}
