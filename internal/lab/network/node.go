package network

import (
	"context"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Get asks a server that listens in a node's namespace.
func Get(ctx context.Context, in *instance.Instance, n *topology.Node, listen, path string) (*http.Response, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = in.Namespace(n).Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
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
