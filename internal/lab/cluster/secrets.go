package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// administrator is the user who may do everything, and whose file never leaves the
// lab's directory. Users' tokens are their names.
const administrator = "lab"

// writeSecrets makes what kube-apiserver does not make by itself.
func writeSecrets(in *instance.Instance, n *topology.Node) error {
	_, err := writeKey(in.File(n, "accounts.key"))
	return errors.Join(err, writeCertificates(in, n), os.WriteFile(in.File(n, "tokens.csv"), []byte(users(in)), 0o600))
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
