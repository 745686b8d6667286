package lan

import (
	"context"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
)

// lookEvery is how often Run looks for hosts.
const lookEvery = time.Second

// Hosts are the sessions whose hosts are reported.
type Hosts struct {
	mu  sync.Mutex
	all map[uint64]bool
}

// Watch says whether a session's hosts are reported.
func (h *Hosts) Watch(seid uint64, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !is {
		delete(h.all, seid)
		return
	}
	if h.all == nil {
		h.all = map[uint64]bool{}
	}
	h.all[seid] = true
}

// Run calls look every second, until ctx ends.
func (h *Hosts) Run(ctx context.Context, look func()) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
			look()
		}
	}
}

// Look calls found for each watched session, with its hosts.
func (h *Hosts) Look(stations func() ([]dataplane.Station, error), found func(seid uint64, hosts []dataplane.Station)) error {
	h.mu.Lock()
	watched := map[uint64][]dataplane.Station{}
	for seid := range h.all {
		watched[seid] = nil
	}
	h.mu.Unlock()
	if len(watched) == 0 {
		return nil
	}
	all, err := stations()
	if err != nil {
		return err
	}
	for _, s := range all {
		if _, is := watched[s.Session]; is {
			watched[s.Session] = append(watched[s.Session], s)
		}
	}
	for seid, hosts := range watched {
		found(seid, hosts)
	}
	return nil
}
