package lab

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// errNotBuilt says that programs of others are missing.
var errNotBuilt = errors.New("is not there: tools/cluster/build.sh builds it, once: with `api` what the overlay laboratory runs, with `all` what the cluster does")

// clusterPrograms is where tools/cluster/build.sh leaves what it builds.
func clusterPrograms() string {
	cache, err := os.UserCacheDir()
	if err != nil { // neither HOME nor XDG_CACHE_HOME: build.sh has no place either
		cache = os.TempDir()
	}
	return filepath.Join(cache, "culvert", "cluster", "bin")
}

// havePrograms wants programs to be there.
func havePrograms(names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(clusterPrograms(), name)); err != nil {
			return fmt.Errorf("%s %w", name, errNotBuilt)
		}
	}
	return nil
}

// startAPIServer starts etcd and kube-apiserver, where they do not run yet, and
// tells them of the nodes.
func startAPIServer(ctx context.Context, in *instance.Instance) error {
	n := in.APIServer()
	if n == nil {
		return errors.New("the lab has no node of kind apiserver")
	}
	if p, ok := in.Process(n, topology.ApiServerProcess); ok && p.Alive() {
		return nil
	}
	if err := havePrograms(topology.EtcdProcess, topology.ApiServerProcess, proxyProcess); err != nil {
		return err
	}
	if err := writeSecrets(in, n); err != nil {
		return err
	}
	if err := runEtcd(in, n); err != nil {
		return err
	}
	if err := runAPIServer(ctx, in, n); err != nil {
		return err
	}
	for _, node := range in.ClusterNodes() {
		if err := register(ctx, in, node); err != nil {
			return err
		}
	}
	if len(in.Kubelets()) > 0 {
		return nil // the manifest does all of it
	}
	return defineResources(ctx, in)
}

// startFor starts them in their node, where the variant needs them.
func startFor(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if n.Kind != topology.APIServer || in.State.Variant != topology.KubeMode && len(in.Kubelets()) == 0 {
		return nil
	}
	if err := startAPIServer(ctx, in); err != nil {
		return err
	}
	return startControllers(in, n)
}

// register makes the Node that a kubelet would, with the podCIDRs that a
// controller would give it. It is no patch: of that the API server takes one
// address of each type only. The first address is of the pods' first family:
// kube-proxy wants it so.
func register(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	list := in.Addresses(n)
	first := netip.MustParsePrefix(n.PodCIDRs[0]).Addr().Is4() // it is valid: validateCluster
	slices.SortStableFunc(list, func(a, b netip.Addr) int {
		switch {
		case a.Is4() == b.Is4():
			return 0
		case a.Is4() == first:
			return -1
		}
		return 1
	})
	var addresses []map[string]any
	for _, a := range list {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a.String()})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n.Name, "labels": n.Labels},
		"spec":   map[string]any{"podCIDR": n.PodCIDRs[0], "podCIDRs": n.PodCIDRs},
		"status": map[string]any{"addresses": addresses},
	})
	if err != nil {
		return err
	}
	_, err = kube(ctx, in, http.MethodPost, "/api/v1/nodes", text)
	return err
}

// defineResources installs what our manifest defines, and waits until the API
// server knows it.
func defineResources(ctx context.Context, in *instance.Instance) error {
	const kind = "CustomResourceDefinition"
	for text := range strings.SplitSeq(kubernetes.Manifest, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return fmt.Errorf("the manifest: %w", err)
		}
		if object["kind"] != kind {
			continue
		}
		if err := applyObject(ctx, in, object); err != nil {
			return err
		}
	}
	var last error
	instance.WaitFor(instance.ReadyTime, func() bool {
		_, last = kube(ctx, in, http.MethodGet, "/apis/culvert.net/v1alpha1/srv6policies", nil)
		return last == nil || ctx.Err() != nil
	})
	return last
}

func runEtcd(in *instance.Instance, n *topology.Node) error {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return in.Start(n, topology.EtcdProcess, filepath.Join(clusterPrograms(), topology.EtcdProcess), "--data-dir", in.File(n, "etcd"),
		"--unsafe-no-fsync", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
}

func runAPIServer(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	at := known(in, n)[0]
	if err := in.Start(n, topology.ApiServerProcess, append([]string{filepath.Join(clusterPrograms(), topology.ApiServerProcess),
		"--etcd-servers", "http://127.0.0.1:2379", "--bind-address", "::", "--advertise-address", at.String(), "--secure-port", topology.ApiServerPort,
		"--cert-dir", in.File(n, "certs"), "--token-auth-file", in.File(n, "tokens.csv"), "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", in.File(n, "accounts.key"),
		"--service-account-key-file", in.File(n, "accounts.key"), "--service-cluster-ip-range", ranges(in, serviceRanges)}, kubeletOptions(in, n)...)...); err != nil {
		return err
	}
	p, _ := in.Process(n, topology.ApiServerProcess)
	var last error
	ready := instance.WaitFor(topology.ApiServerTime, func() bool {
		_, last = kube(ctx, in, http.MethodGet, "/readyz", nil)
		return last == nil || ctx.Err() != nil || !p.Alive()
	})
	if !ready || last != nil {
		return fmt.Errorf("kube-apiserver did not come up: %w\n%s", errors.Join(last, ctx.Err()), in.LogTail(n, topology.ApiServerProcess))
	}
	return writeKubeconfig(in, n, administrator, in.Kubeconfig())
}

// administrator is the user who may do everything, and whose file never leaves the
// lab's directory. Users' tokens are their names.
const administrator = "lab"

// writeSecrets makes what kube-apiserver does not make by itself.
func writeSecrets(in *instance.Instance, n *topology.Node) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		writeKubeletClient(in, n),
		os.WriteFile(in.File(n, "accounts.key"), text, 0o600),
		os.WriteFile(in.File(n, "tokens.csv"), []byte(users(in)), 0o600))
}

// kubeconfigText is for a user, and trusts the certificate that kube-apiserver
// made for itself.
func kubeconfigText(in *instance.Instance, n *topology.Node, user string) ([]byte, error) {
	trust, err := os.ReadFile(certificate(in, n))
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{
			"server": "https://" + net.JoinHostPort(known(in, n)[0].String(), topology.ApiServerPort), "certificate-authority-data": trust}}},
		"users":    []any{map[string]any{"name": user, "user": map[string]any{"token": user}}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": user}}},
	})
}

// writeKubeconfig writes it to a file.
func writeKubeconfig(in *instance.Instance, n *topology.Node, user, file string) error {
	text, err := kubeconfigText(in, n, user)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func certificate(in *instance.Instance, n *topology.Node) string {
	return in.File(n, "certs/apiserver.crt")
}

// contentTypes of what is asked of the API server, by method.
var contentTypes = map[string]string{http.MethodPost: "application/yaml", http.MethodPatch: "application/apply-patch+yaml"}

// kube asks the Kubernetes API, from the node that it runs in. body is YAML.
func kube(ctx context.Context, in *instance.Instance, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	n := in.APIServer()
	trust, err := os.ReadFile(certificate(in, n))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	request, err := http.NewRequestWithContext(ctx, method, "https://localhost:"+topology.ApiServerPort+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+administrator)
	request.Header.Set("Content-Type", contentTypes[method])
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
			err = in.Namespace(n).Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", topology.ApiServerPort))
				return err
			})
			return c, err
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return text, err
}

// applyObject makes an object in the Kubernetes API what is given (server-side apply).
func applyObject(ctx context.Context, in *instance.Instance, object map[string]any) error {
	path, err := topology.ObjectPath(object)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = kube(ctx, in, http.MethodPatch, path+"?fieldManager=lab&force=true", text)
	return err
}

// deleteObject deletes it.
func deleteObject(ctx context.Context, in *instance.Instance, object map[string]any) error {
	path, err := topology.ObjectPath(object)
	if err != nil {
		return err
	}
	_, err = kube(ctx, in, http.MethodDelete, path, nil)
	return err
}
