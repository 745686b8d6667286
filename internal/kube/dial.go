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
	mu      sync.Mutex
	err     error // of the last try
	since   time.Time
	changed func(error) // called with the first failure, and with nil after the last
}

func newDialer() *dialer {
	return &dialer{Dialer: net.Dialer{Timeout: dialLimit}, changed: func(error) {}}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if err == nil || ctx.Err() == nil { // else it is who asked that went away
		d.note(err)
	}
	return c, err
}

func (d *dialer) note(err error) {
	d.mu.Lock()
	changes := (err == nil) != (d.err == nil)
	if changes {
		d.since = time.Now()
	}
	d.err = err
	d.mu.Unlock()
	if changes {
		d.changed(err)
	}
}

// state is how the last try went, and since when it is so.
func (d *dialer) state() (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, d.err
}
