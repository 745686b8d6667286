package gtpulink

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"time"
)

// Request calls an endpoint by its control socket.
type Request struct {
	Op     string        `json:"-"` // a method of Endpoint: Stats, EndMarker, Echo, Tunnel or Delay
	Device string        `json:"device,omitempty"`
	To     netip.Addr    `json:"to,omitzero"`    // Echo: the link's remote unless set; Tunnel: the new one
	TEID   uint32        `json:"teid,omitempty"` // Tunnel: that the link sends to
	Count  int           `json:"count,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
}

// Response answers a Request.
type Response struct {
	Received int   `json:"received"` // Echo
	Stats    Stats `json:"stats"`
}

// Serve runs the endpoint of links in the current network namespace until
// ctx ends, with its control socket at path.
func Serve(ctx context.Context, links []Link, path string) error {
	e, err := Open(links)
	if err != nil {
		return err
	}
	return e.serve(ctx, path)
}

// serve answers requests by JSON-RPC while the endpoint runs.
func (e *Endpoint) serve(ctx context.Context, path string) error {
	// What is left of an endpoint that was killed has the same name.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, e.Close())
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	server := rpc.NewServer()
	if err := server.Register(e); err != nil {
		return errors.Join(err, e.Close(), listener.Close())
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed: serve ends
			}
			go server.ServeCodec(jsonrpc.NewServerCodec(c))
		}
	}()
	err = e.Run(ctx)
	return errors.Join(err, listener.Close())
}

// Ask sends a request to the control socket at path.
func Ask(path string, request Request) (response Response, err error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return response, err
	}
	client := jsonrpc.NewClient(c)
	defer client.Close()
	if err := c.SetDeadline(time.Now().Add(request.Wait + 5*time.Second)); err != nil {
		return response, err
	}
	err = client.Call("Endpoint."+request.Op, request, &response)
	return response, err
}
