package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const proxyProcess = "kube-proxy"

// servicesIn is the namespace of Services.
const servicesIn = "default"

// putServices tells the Kubernetes API of Services, and of the pods behind them.
func putServices(ctx context.Context, in *instance.Instance, services []topology.Service) error {
	for _, s := range services {
		if err := applyObject(ctx, in, object(&s)); err != nil {
			return err
		}
		for _, family := range s.FamilyNames() {
			if err := applyObject(ctx, in, endpoints(in, &s, family)); err != nil {
				return err
			}
		}
	}
	return nil
}

// apiFamilies are their names in the Kubernetes API.
var apiFamilies = map[string]string{topology.IPv4: "IPv4", topology.IPv6: "IPv6"}

// protocols of a Service's port.
var protocols = []string{"tcp", "udp"}

// object is the Service as somebody would write it.
func object(s *topology.Service) map[string]any {
	var addresses, families []string
	for _, family := range s.FamilyNames() {
		families = append(families, apiFamilies[family])
		addresses = append(addresses, map[string]string{topology.IPv4: s.IPv4.String(), topology.IPv6: s.IPv6.String()}[family])
	}
	spec := map[string]any{"clusterIP": addresses[0], "clusterIPs": addresses, "ipFamilies": families, "ipFamilyPolicy": "PreferDualStack"}
	var ports []map[string]any
	for _, protocol := range protocols {
		port := map[string]any{"name": protocol, "protocol": strings.ToUpper(protocol), "port": s.Port, "targetPort": s.TargetPort}
		if s.NodePort != 0 {
			spec["type"], port["nodePort"] = "NodePort", s.NodePort
		}
		ports = append(ports, port)
	}
	spec["ports"] = ports
	if s.Local {
		spec["externalTrafficPolicy"] = "Local"
	}
	if s.Affinity {
		spec["sessionAffinity"] = "ClientIP"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": s.Name, "namespace": servicesIn}, "spec": spec,
	}
}

// endpoints are the pods behind a Service that have an address of the family.
func endpoints(in *instance.Instance, s *topology.Service, family string) map[string]any {
	list := []map[string]any{}
	for _, name := range s.Pods() {
		if a, err := in.Address(name, family); err == nil {
			list = append(list, map[string]any{
				"addresses": []string{a.String()}, "nodeName": in.Node(name).Host, "conditions": map[string]any{"ready": true},
			})
		}
	}
	var ports []map[string]any
	for _, protocol := range protocols {
		ports = append(ports, map[string]any{"name": protocol, "protocol": strings.ToUpper(protocol), "port": s.TargetPort})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": apiFamilies[family],
		"metadata": map[string]any{
			"name": s.Name + "-" + family, "namespace": servicesIn, "labels": map[string]any{"kubernetes.io/service-name": s.Name},
		},
		"endpoints": list, "ports": ports,
	}
}

const proxyHealth = "127.0.0.1:10256"

// startProxy starts kube-proxy in a node, if it does not run there, and waits
// until it has translated what it knows.
func startProxy(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if p, ok := in.Process(n, proxyProcess); ok && p.Alive() {
		return nil
	}
	// The limits of conntrack are not a namespace's to set.
	if err := in.Start(n, proxyProcess, proxyProgram(in), "--kubeconfig", in.Kubeconfig(), "--hostname-override", n.Name,
		"--proxy-mode", n.Proxy, "--detect-local-mode", "NodeCIDR", "--healthz-bind-address", proxyHealth,
		"--conntrack-max-per-core", "0", "--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0s",
		"--conntrack-tcp-timeout-close-wait", "0s"); err != nil {
		return err
	}
	p, _ := in.Process(n, proxyProcess)
	var last error
	ready := instance.WaitFor(instance.ReadyTime, func() bool {
		last = proxyHealthy(ctx, in, n)
		return last == nil || ctx.Err() != nil || !p.Alive()
	})
	if !ready || last != nil {
		return fmt.Errorf("kube-proxy did not come up: %w\n%s", errors.Join(last, ctx.Err()), in.LogTail(n, proxyProcess))
	}
	return nil
}

func proxyProgram(in *instance.Instance) string {
	return filepath.Join(clusterPrograms(), proxyProcess)
}

func proxyHealthy(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	response, err := in.GetFrom(ctx, n, proxyHealth, "/healthz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-proxy is not healthy: %s", response.Status)
	}
	return nil
}

// stopProxy ends kube-proxy and takes its rules away, if it runs.
func stopProxy(in *instance.Instance, n *topology.Node) error {
	p, ok := in.Process(n, proxyProcess)
	if !ok {
		return nil
	}
	if err := p.Stop(unix.SIGTERM, instance.ReadyTime); err != nil {
		return err
	}
	in.Forget(n, proxyProcess)
	if err := in.Save(); err != nil {
		return err
	}
	return in.Namespace(n).Do(func() error {
		_, err := namespace.Output(exec.Command(proxyProgram(in), "--cleanup"))
		return err
	})
}
