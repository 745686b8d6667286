package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
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
