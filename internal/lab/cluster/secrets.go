package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// administrator is the user who may do everything, and whose file never leaves the
// lab's directory. Users' tokens are their names.
const administrator = "lab"

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
			"server": "https://" + net.JoinHostPort(known(in, n)[0].String(), apiServerPort), "certificate-authority-data": trust}}},
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

// Users of kube-apiserver beside the administrator. Kubernetes gives them their
// rights by their names, and nodes theirs by their group.
const (
	controllerUser = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
	proxyUser      = "system:kube-proxy"
)

// nodeUser is who a node's kubelet is.
func nodeUser(n *topology.Node) string { return "system:node:" + n.Name }

// users are what kube-apiserver reads: token, name, number, groups.
func users(in *instance.Instance) string {
	var b strings.Builder
	line := func(name, group string) { fmt.Fprintf(&b, "%s,%s,%s,%q\n", name, name, name, group) }
	line(administrator, "system:masters")
	if len(in.Kubelets()) == 0 {
		return b.String()
	}
	for _, name := range []string{controllerUser, schedulerUser, proxyUser} {
		line(name, "")
	}
	for _, n := range in.Kubelets() {
		line(nodeUser(n), "system:nodes")
	}
	return b.String()
}

// certificates of kube-apiserver as a client of kubelets, and of pods, each signed by
// the one before it and the first by itself.
var certificates = []struct {
	file     string
	template x509.Certificate
}{
	{"kubelet-ca", x509.Certificate{
		Subject: pkix.Name{CommonName: "culvert lab"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}},
	{"kubelet-client", x509.Certificate{
		Subject:  pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}},
	{"localhost", x509.Certificate{ // of pods of tests, which nobody verifies
		Subject:  pkix.Name{CommonName: "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}},
}

// writeCertificates writes FILE.crt and FILE.key of each.
func writeCertificates(in *instance.Instance, n *topology.Node) error {
	var signer crypto.Signer
	var by *x509.Certificate
	for i, c := range certificates {
		key, err := writeKey(in.File(n, c.file+".key"))
		if err != nil {
			return err
		}
		t := c.template
		t.SerialNumber = big.NewInt(int64(i + 1))
		t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
		if signer == nil {
			signer, by = key, &t
		}
		der, err := x509.CreateCertificate(rand.Reader, &t, by, key.Public(), signer)
		if err != nil {
			return err
		}
		if err := os.WriteFile(in.File(n, c.file+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
			return err
		}
		signer, by = key, &t
	}
	return nil
}

// writeKey makes a private key and writes it to a file.
func writeKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, errors.Join(err, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
}
