package cluster

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/dist/kubernetes"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// installChart has Helm install the chart that is shipped, with the topology's values, and with
// the Secret by which the traffic engineering engine reads agents.
func installChart(ctx context.Context, in *instance.Instance) error {
	folder := in.File(in.APIServer(), "helm")
	if err := os.CopyFS(folder, kubernetes.Chart); err != nil {
		return err
	}
	repository, tag, _ := strings.Cut(nodeImage, ":")
	nodes, err := yaml.Marshal(map[string]any{
		"image": map[string]any{"repository": repository, "tag": tag}, "cni": map[string]any{"version": containers[in.State.Variant].cni},
	})
	if err != nil {
		return err
	}
	own, err := yaml.Marshal(in.Chart)
	if err != nil {
		return err
	}
	secret, err := engineSecret(in)
	if err != nil {
		return err
	}
	args := []string{"install", "culvert", filepath.Join(folder, "chart"), "--namespace", "kube-system", "--kubeconfig", instance.Kubeconfig(in)}
	for name, text := range map[string][]byte{"nodes.yaml": nodes, "values.yaml": own} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		args = append(args, "--values", file)
	}
	if _, err := Kubectl(ctx, in, secret, "apply", "-f", "-"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(Programs(), "helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+folder, "HELM_CACHE_HOME="+folder, "HELM_DATA_HOME="+folder) // nothing of the user's
	return in.Namespace(in.APIServer()).Do(func() error {
		_, err := namespace.Output(cmd)
		return err
	})
}

// engineSecret is a Secret with what the chart's README names: a certificate for the DNS name
// culvert, which is its own authority, its key, and a token.
func engineSecret(in *instance.Instance) ([]byte, error) {
	file := in.File(in.APIServer(), "culvert-te.key")
	key, err := writeKey(file)
	if err != nil {
		return nil, err
	}
	t := x509.Certificate{
		Subject: pkix.Name{CommonName: "culvert"}, DNSNames: []string{"culvert"}, SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, &t, &t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "culvert-te", "namespace": "kube-system"},
		"stringData": map[string]any{"tls.crt": certificate, "tls.key": string(private), "ca.crt": certificate, "token": rand.Text()},
	})
}
