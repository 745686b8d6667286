package kube

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialLimit is how long to wait for an API server that does not answer, before
// that is reported.
const dialLimit = 5 * time.Second

// dialer knows whether the API server can be reached. client-go does not report it:
// a time-out ends a watch like any other end.
type dialer struct {
	net.Dialer
	health
	changed func(error) // called with the first failure, and with nil after the last
}

func newDialer() *dialer {
	return &dialer{Dialer: net.Dialer{Timeout: dialLimit}, changed: func(error) {}}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if err == nil || ctx.Err() == nil { // else the caller went away
		d.note(err)
	}
	return c, err
}

func (d *dialer) note(err error) {
	if d.health.note(err) {
		d.changed(err)
	}
}

// health is how the last request went, and since when it is so.
type health struct {
	mu    sync.Mutex
	err   error
	since time.Time
}

// note notes how a request went. It says whether failures begin or end with it.
func (h *health) note(err error) (changes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changes = (err == nil) != (h.err == nil)
	if changes || h.since.IsZero() {
		h.since = time.Now()
	}
	h.err = err
	return changes
}

func (h *health) state() (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.err
}
