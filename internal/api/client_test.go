package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

// clientOf returns a client of what serves on a Unix socket, and the socket's path.
func clientOf(t *testing.T, serve http.HandlerFunc) (*api.Client, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: serve, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	c, err := api.NewClient(api.Endpoint{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	return c, path
}

// A daemon that hangs, and one that is killed, are told apart.
func TestDaemonHangs(t *testing.T) {
	c, path := clientOf(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Status(ctx)
	if want := "the daemon at " + path + " does not answer"; err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestDaemonEnds(t *testing.T) {
	c, path := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/culvert.v1.Culvert/Trace" {
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			_, _ = w.Write([]byte{0, 0, 0})
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	want := "the daemon at " + path + " has ended, or closed the connection"
	if err := c.Trace(t.Context(), agent.TraceFilter{}, nil, func(agent.TraceEvent) error { return nil }); err == nil || err.Error() != want {
		t.Errorf("trace: %v, want %s", err, want)
	}
	if _, err := c.Status(t.Context()); err == nil || err.Error() != want || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("status: %v, want %s", err, want)
	}
}
