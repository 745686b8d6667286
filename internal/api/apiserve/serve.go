// Package apiserve serves the management API in tests.
package apiserve

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/config"
)

// Serve starts a server, which ends with the test.
func Serve(t *testing.T, c config.API, h *api.Handler) *api.Server {
	t.Helper()
	s, err := api.Listen(c, h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
	})
	return s
}
