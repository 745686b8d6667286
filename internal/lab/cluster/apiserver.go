package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// What the programs are called in the state.
const (
	APIServerProcess = "kube-apiserver"
	EtcdProcess      = "etcd"
)

const (
	apiServerPort = "6443"
	// Both start on a machine with other work, with an empty store.
	apiServerTime = time.Minute
)

// StartAPIServer starts etcd and kube-apiserver, where they do not run yet, and
// registers the nodes. Where nodes are kubelets it starts the controllers instead.
func StartAPIServer(ctx context.Context, in *instance.Instance) error {
	n := in.APIServer()
	if n == nil {
		return errors.New("the lab has no node of kind apiserver")
	}
	if p, ok := in.Process(n, APIServerProcess); ok && p.Alive() {
		return nil
	}
	if err := HavePrograms(EtcdProcess, APIServerProcess, ProxyProcess); err != nil {
		return err
	}
	// The secrets that kube-apiserver does not make by itself.
	_, err := writeKey(in.File(n, "accounts.key"))
	if err := errors.Join(err, writeCertificates(in, n), os.WriteFile(in.File(n, "tokens.csv"), []byte(users(in)), 0o600)); err != nil {
		return err
	}
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	if err := in.Start(n, EtcdProcess, filepath.Join(Programs(), EtcdProcess), "--data-dir", in.File(n, "etcd"),
		"--unsafe-no-fsync", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer); err != nil {
		return err
	}
	if err := RunAPIServer(ctx, in, n); err != nil {
		return err
	}
	for _, node := range in.ClusterNodes() {
		if err := register(ctx, in, node); err != nil {
			return err
		}
	}
	if len(in.Kubelets()) > 0 {
		return startControllers(in, n) // the manifest defines the resources
	}
	return defineResources(ctx, in)
}

// register makes the Node that a kubelet would, with the podCIDRs that a
// controller would give it. It is no patch: of that the API server takes one
// address of each type only. The first address is of the pods' first family:
// kube-proxy wants it so.
func register(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	first := netip.MustParsePrefix(n.PodCIDRs[0]).Addr().Is4() // it is valid: validated
	var addresses []map[string]any
	for _, is4 := range []bool{first, !first} {
		for _, a := range in.Addresses(n) {
			if a.Is4() == is4 {
				addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a.String()})
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name, "labels": n.Labels},
		"spec":   map[string]any{"podCIDR": n.PodCIDRs[0], "podCIDRs": n.PodCIDRs},
		"status": map[string]any{"addresses": addresses},
	})
	if err != nil {
		return err
	}
	_, err = Request(ctx, in, http.MethodPost, "/api/v1/nodes", text)
	return err
}

// defineResources installs what our manifest has beside the agents themselves: resources, rights
// and what they are held to. It waits until the API server knows them.
func defineResources(ctx context.Context, in *instance.Instance) error {
	for text := range strings.SplitSeq(kubernetes.Manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return fmt.Errorf("the manifest: %w", err)
		}
		if object == nil || object["kind"] == "DaemonSet" { // the comment that it begins with
			continue
		}
		if err := ApplyObject(ctx, in, object); err != nil {
			return err
		}
	}
	return instance.Await(ctx, instance.ReadyTime, func() error {
		_, err := Request(ctx, in, http.MethodGet, "/apis/culvert.net/v1alpha1/srv6policies", nil)
		return err
	})
}

// RunAPIServer starts kube-apiserver, which keeps what etcd has, and waits until it is ready.
func RunAPIServer(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	at := known(in, n)[0]
	isReady := func() error {
		_, err := Request(ctx, in, http.MethodGet, "/readyz", nil)
		return err
	}
	args := []string{
		filepath.Join(Programs(), APIServerProcess),
		"--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "::", "--advertise-address", at.String(), "--secure-port", apiServerPort,
		"--cert-dir", in.File(n, "certs"), "--token-auth-file", in.File(n, "tokens.csv"), "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", in.File(n, "accounts.key"),
		"--service-account-key-file", in.File(n, "accounts.key"), "--service-cluster-ip-range", ranges(in, serviceRanges),
	}
	if len(in.Kubelets()) > 0 { // who it is to them, and that network plugins may do what they need
		args = append(args, "--allow-privileged=true", "--enable-admission-plugins", "NodeRestriction",
			"--kubelet-preferred-address-types", "InternalIP",
			"--kubelet-client-certificate", in.File(n, "kubelet-client.crt"), "--kubelet-client-key", in.File(n, "kubelet-client.key"))
	}
	if err := in.StartAwait(ctx, n, APIServerProcess, apiServerTime, isReady, args...); err != nil {
		return err
	}
	return writeKubeconfig(in, n, administrator, instance.Kubeconfig(in))
}

// startControllers starts what the API alone does not do: podCIDRs for nodes,
// accounts, pods of DaemonSets and Deployments, and nodes for pods.
func startControllers(in *instance.Instance, n *topology.Node) error {
	for name, user := range map[string]string{controllerManagerProcess: controllerUser, schedulerProcess: schedulerUser} {
		if err := writeKubeconfig(in, n, user, in.File(n, name+".kubeconfig")); err != nil {
			return err
		}
	}
	certs := in.File(n, "certs")
	if err := in.Start(n, controllerManagerProcess, filepath.Join(Programs(), controllerManagerProcess),
		"--kubeconfig", in.File(n, controllerManagerProcess+".kubeconfig"), "--root-ca-file", certificate(in, n),
		"--service-account-private-key-file", in.File(n, "accounts.key"), "--use-service-account-credentials",
		"--allocate-node-cidrs", "--cluster-cidr", ranges(in, podRanges),
		"--service-cluster-ip-range", ranges(in, serviceRanges), "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs); err != nil {
		return err
	}
	config := in.File(n, schedulerProcess+".kubeconfig")
	return in.Start(n, schedulerProcess, filepath.Join(Programs(), schedulerProcess), "--kubeconfig", config,
		"--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", certs)
}

const (
	controllerManagerProcess = "kube-controller-manager"
	schedulerProcess         = "kube-scheduler"
)
