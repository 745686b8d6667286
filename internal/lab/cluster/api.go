package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// contentTypes of what is asked of the API server, by method.
var contentTypes = map[string]string{http.MethodPost: "application/yaml", http.MethodPatch: "application/apply-patch+yaml"}

// Request asks the Kubernetes API, from the node that it runs in. body is YAML.
func Request(ctx context.Context, in *instance.Instance, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	n := in.APIServer()
	trust, err := os.ReadFile(certificate(in, n))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trust)
	request, err := http.NewRequestWithContext(ctx, method, "https://localhost:"+apiServerPort+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+administrator)
	request.Header.Set("Content-Type", contentTypes[method])
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
			err = in.Namespace(n).Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", apiServerPort))
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
	if err != nil {
		return err
	}
	_, err = Request(ctx, in, http.MethodDelete, path, nil)
	return err
}
