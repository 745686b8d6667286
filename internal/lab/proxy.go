package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const proxyProcess = "kube-proxy"

// servicesIn is the namespace of Services.
const servicesIn = "default"

// putServices tells the Kubernetes API of Services, and of the pods behind them.
func (in *instance) putServices(ctx context.Context, services []topology.Service) error {
	for _, s := range services {
		if err := in.applyObject(ctx, object(&s)); err != nil {
			return err
		}
		for _, family := range s.FamilyNames() {
			if err := in.applyObject(ctx, in.endpoints(&s, family)); err != nil {
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
func (in *instance) endpoints(s *topology.Service, family string) map[string]any {
	list := []map[string]any{}
	for _, name := range s.Pods() {
		if a, err := in.address(name, family); err == nil {
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
func (in *instance) startProxy(ctx context.Context, n *topology.Node) error {
	if p, ok := in.process(n, proxyProcess); ok && p.alive() {
		return nil
	}
	// The limits of conntrack are not a namespace's to set.
	if err := in.start(n, proxyProcess, in.proxyProgram(), "--kubeconfig", in.kubeconfig(), "--hostname-override", n.Name,
		"--proxy-mode", n.Proxy, "--detect-local-mode", "NodeCIDR", "--healthz-bind-address", proxyHealth,
		"--conntrack-max-per-core", "0", "--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0s",
		"--conntrack-tcp-timeout-close-wait", "0s"); err != nil {
		return err
	}
	p, _ := in.process(n, proxyProcess)
	var last error
	ready := waitFor(readyTime, func() bool {
		last = in.proxyHealthy(ctx, n)
		return last == nil || ctx.Err() != nil || !p.alive()
	})
	if !ready || last != nil {
		return fmt.Errorf("kube-proxy did not come up: %w\n%s", errors.Join(last, ctx.Err()), in.logTail(n, proxyProcess))
	}
	return nil
}

func (in *instance) proxyProgram() string { return filepath.Join(clusterPrograms(), proxyProcess) }

func (in *instance) proxyHealthy(ctx context.Context, n *topology.Node) error {
	response, err := in.getFrom(ctx, n, proxyHealth, "/healthz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-proxy is not healthy: %s", response.Status)
	}
	return nil
}

// getFrom asks a server that listens in a node's namespace.
func (in *instance) getFrom(ctx context.Context, n *topology.Node, listen, path string) (*http.Response, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = in.namespace(n).Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// stopProxy ends kube-proxy and takes its rules away, if it runs.
func (in *instance) stopProxy(n *topology.Node) error {
	p, ok := in.process(n, proxyProcess)
	if !ok {
		return nil
	}
	if err := p.stop(unix.SIGTERM, readyTime); err != nil {
		return err
	}
	in.forget(n, proxyProcess)
	if err := in.save(); err != nil {
		return err
	}
	return in.namespace(n).Do(func() error {
		_, err := namespace.Output(exec.Command(in.proxyProgram(), "--cleanup"))
		return err
	})
}
