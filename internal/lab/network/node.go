package network

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Client is a client of servers that listen in a node's namespace.
func Client(in *instance.Instance, n *topology.Node, config *tls.Config) *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = in.Namespace(n).Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	return &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: config},
	}
}

// Get requests a path of an HTTP server that listens in a node's namespace.
func Get(ctx context.Context, in *instance.Instance, n *topology.Node, listen, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+path, nil)
	if err != nil {
		return nil, err
	}
	return Client(in, n, nil).Do(request)
}

// DropNamespace removes a node's namespace.
func DropNamespace(in *instance.Instance, n *topology.Node) error {
	name := in.Namespace(n).Name
	if err := (namespace.Named{Name: name}).Delete(in.State.Mark); err != nil {
		return err
	}
	in.State.Namespaces = slices.DeleteFunc(in.State.Namespaces, func(s string) bool { return s == name })
	return in.Save()
}
