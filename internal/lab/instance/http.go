package instance

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// GetFrom asks a server that listens in a node's namespace.
func (in *Instance) GetFrom(ctx context.Context, n *topology.Node, listen, path string) (*http.Response, error) {
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
