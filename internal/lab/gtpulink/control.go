package gtpulink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// Request is one line to an endpoint's control socket.
type Request struct {
	Op     string        `json:"op"` // stats, end_marker, echo, tunnel
	Device string        `json:"device,omitempty"`
	To     netip.Addr    `json:"to,omitzero"`    // echo: the link's remote unless set; tunnel: the new one
	TEID   uint32        `json:"teid,omitempty"` // tunnel: that the link sends to
	Count  int           `json:"count,omitempty"`
	Wait   time.Duration `json:"wait,omitempty"`
}

// Response answers a Request.
type Response struct {
	Error    string `json:"error,omitempty"`
	Received int    `json:"received"` // echo
	Stats    Stats  `json:"stats"`
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

func (e *Endpoint) serve(ctx context.Context, path string) error {
	// What is left of an endpoint that was killed has the same name.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, e.Close())
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	go e.accept(listener)
	err = e.Run(ctx)
	return errors.Join(err, listener.Close())
}

func (e *Endpoint) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return // closed: Serve ends
		}
		go e.answer(c)
	}
}

func (e *Endpoint) answer(c net.Conn) {
	defer c.Close()
	var request Request
	if err := json.NewDecoder(c).Decode(&request); err != nil {
		return // nobody there to be told
	}
	response := e.do(request)
	_ = json.NewEncoder(c).Encode(response) // the asker has gone
}

func (e *Endpoint) do(r Request) (response Response) {
	var err error
	switch r.Op {
	case "stats":
		response.Stats = e.Stats()
	case "end_marker":
		err = e.EndMarker(r.Device, r.Count)
	case "echo":
		response.Received, err = e.Echo(r.Device, r.To, r.Count, r.Wait)
	case "tunnel":
		err = e.Tunnel(r.Device, r.To, r.TEID)
	default:
		err = fmt.Errorf("op: %q: use stats, end_marker, echo or tunnel", r.Op)
	}
	if err != nil {
		response.Error = err.Error()
	}
	return response
}

// Ask sends a request to the control socket at path.
func Ask(path string, request Request) (Response, error) {
	var response Response
	c, err := net.Dial("unix", path)
	if err != nil {
		return response, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(request.Wait + 5*time.Second)); err != nil {
		return response, err
	}
	if err := json.NewEncoder(c).Encode(request); err != nil {
		return response, err
	}
	if err := json.NewDecoder(c).Decode(&response); err != nil {
		return response, fmt.Errorf("endpoint %s: %w", path, err)
	}
	if response.Error != "" {
		return response, errors.New(response.Error)
	}
	return response, nil
}
