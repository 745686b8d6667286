package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Tracing runs programs at tracepoints of the kernel while the daemon runs: nothing is pinned.
type Tracing struct {
	links []link.Link
	err   error
}

// NewTracing attaches the programs that load returns, all or none.
func NewTracing(load func() (map[string]*ebpf.Program, error)) *Tracing {
	t := &Tracing{}
	programs, err := load()
	for name, p := range programs {
		l, attachError := link.AttachTracing(link.TracingOptions{Program: p})
		if attachError != nil {
			err = errors.Join(err, fmt.Errorf("attach %s: %w", name, attachError))
		} else {
			t.links = append(t.links, l)
		}
		err = errors.Join(err, p.Close()) // the link keeps it
	}
	if t.err = err; err != nil {
		t.err = errors.Join(err, t.Close())
	}
	return t
}

// Err says why the programs do not run; nil: they do.
func (t *Tracing) Err() error { return t.err }

// Close ends it.
func (t *Tracing) Close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	t.links = nil
	return errors.Join(errs...)
}
