package cluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// ProxyProcess is what kube-proxy is called in the state.
const ProxyProcess = "kube-proxy"

const proxyHealth = "127.0.0.1:10256"

// startProxy starts kube-proxy in a node, if it does not run there, and waits
// until it has translated what it knows.
func startProxy(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if p, ok := in.Process(n, ProxyProcess); ok && p.Alive() {
		return nil
	}
	isHealthy := func() error {
		response, err := network.Get(ctx, in, n, proxyHealth, "/healthz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("kube-proxy is not healthy: %s", response.Status)
		}
		return nil
	}
	// The limits of conntrack are not a namespace's to set.
	return in.StartAwait(ctx, n, ProxyProcess, instance.ReadyTime, isHealthy, filepath.Join(Programs(), ProxyProcess), "--kubeconfig", instance.Kubeconfig(in), "--hostname-override", n.Name,
		"--proxy-mode", n.Proxy, "--detect-local-mode", "NodeCIDR", "--healthz-bind-address", proxyHealth,
		"--conntrack-max-per-core", "0", "--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0s",
		"--conntrack-tcp-timeout-close-wait", "0s")
}

// stopProxy ends kube-proxy and takes its rules away, if it runs.
func stopProxy(in *instance.Instance, n *topology.Node) error {
	p, ok := in.Process(n, ProxyProcess)
	if !ok {
		return nil
	}
	if err := p.Stop(unix.SIGTERM, instance.ReadyTime); err != nil {
		return err
	}
	in.Forget(n, ProxyProcess)
	if err := in.Save(); err != nil {
		return err
	}
	_, err := in.Namespace(n).Output(filepath.Join(Programs(), ProxyProcess), "--cleanup")
	return err
}
