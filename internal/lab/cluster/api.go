package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// contentTypes of what is asked of the API server, by method.
var contentTypes = map[string]string{http.MethodPost: "application/yaml", http.MethodPatch: "application/apply-patch+yaml"}

// Request asks the Kubernetes API, from the node that it runs in. body is YAML.
func Request(ctx context.Context, in *instance.Instance, method, path string, body []byte) ([]byte, error) {
	n := in.APIServer()
	trust, err := os.ReadFile(certificate(in, n))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	request, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:"+apiServerPort+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+administrator)
	request.Header.Set("Content-Type", contentTypes[method])
	response, err := network.Client(in, n, &tls.Config{RootCAs: roots, ServerName: "localhost"}).Do(request)
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

// ApplyObject makes an object in the Kubernetes API what is given (server-side apply).
func ApplyObject(ctx context.Context, in *instance.Instance, object map[string]any) error {
	path, err := topology.ObjectPath(object)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = Request(ctx, in, http.MethodPatch, path+"?fieldManager=lab&force=true", text)
	return err
}

// DeleteObject deletes it.
func DeleteObject(ctx context.Context, in *instance.Instance, object map[string]any) error {
	path, err := topology.ObjectPath(object)
	if err == nil {
		_, err = Request(ctx, in, http.MethodDelete, path, nil)
	}
	return err
}

// Kubectl runs kubectl as the administrator, where it reaches kube-apiserver.
func Kubectl(ctx context.Context, in *instance.Instance, input []byte, args ...string) (out []byte, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(Programs(), "kubectl"), append([]string{"--kubeconfig", instance.Kubeconfig(in)}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	err = in.Namespace(in.APIServer()).Do(func() error {
		out, err = namespace.Output(cmd)
		return err
	})
	return out, errors.Join(err, ctx.Err())
}

// RunKubectl runs a command of a topology, and returns what kubectl printed, or why it was
// refused where that is wanted. Anything that does not match is an error.
func RunKubectl(ctx context.Context, in *instance.Instance, c *topology.Command) (string, error) {
	input, err := list(c.Input)
	if err != nil {
		return "", err
	}
	args := c.Args
	if c.Agent != "" {
		config, err := agentConfig(ctx, in, c.Agent)
		if err != nil {
			return "", err
		}
		args = append([]string{"--kubeconfig", config}, args...) // the later one of two counts
	}
	out, err := Kubectl(ctx, in, input, args...)
	if c.Refused != "" {
		return refused(c, err)
	}
	text := strings.TrimSpace(string(out))
	if err == nil && !regexp.MustCompile(c.Output).MatchString(text) {
		err = fmt.Errorf("kubectl %s: %q does not match %q", strings.Join(c.Args, " "), text, c.Output)
	}
	return text, err
}

// refused is why a command was refused, as it should be.
func refused(c *topology.Command, err error) (string, error) {
	if err == nil {
		return "", fmt.Errorf("kubectl %s is not refused", strings.Join(c.Args, " "))
	}
	if !regexp.MustCompile(c.Refused).MatchString(err.Error()) {
		return "", fmt.Errorf("refused for another reason than %q: %w", c.Refused, err)
	}
	return "refused: " + regexp.MustCompile(c.Refused).FindString(err.Error()), nil
}

// agentConfig is a file with a token as the agent of a node has it: of the manifest's service
// account, and bound to that node.
func agentConfig(ctx context.Context, in *instance.Instance, node string) (file string, err error) {
	token, err := Kubectl(ctx, in, nil, "--namespace", "kube-system", "create", "token", "culvert", "--bound-object-kind", "Node", "--bound-object-name", node)
	if err != nil {
		return "", err
	}
	file = in.File(in.APIServer(), "agent-"+node+".kubeconfig")
	return file, writeKubeconfig(in, in.APIServer(), strings.TrimSpace(string(token)), file)
}

// list is objects as one for kubectl's standard input.
func list(objects []map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
}

// Create has Kubernetes create objects, or update them.
func Create(ctx context.Context, in *instance.Instance, objects []map[string]any) error {
	if len(objects) == 0 {
		return nil
	}
	text, err := list(objects)
	if err == nil {
		_, err = Kubectl(ctx, in, text, "apply", "-f", "-")
	}
	return err
}
