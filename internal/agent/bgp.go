package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// headend is the node as one that BGP peers tell candidate paths to. The methods
// of nil are those of a node that speaks no BGP.
type headend struct {
	config  bgp.Config
	speaker *bgp.Speaker

	mu     sync.Mutex
	events []hearing
	some   chan struct{} // there are events
}

// hearing is one thing that a peer said: it changes what was heard.
type hearing struct {
	name  string // of the path that it is about; empty: of several
	apply func(map[string]heard)
}

// newHeadend reads the passwords.
func newHeadend(c config.BGP, log *slog.Logger) (*headend, error) {
	if !c.IsSet() {
		return nil, nil
	}
	h := &headend{some: make(chan struct{}, 1), config: bgp.Config{
		ASN: c.ASN, RouterID: c.RouterID, Listen: c.Listen, Port: c.Port, Restart: time.Duration(c.RestartTime) * time.Second, Log: log,
	}}
	for i, p := range c.Peers {
		password, err := bgp.ReadPassword(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("bgp.peers[%d].password_file: %w", i, err)
		}
		h.config.Peers = append(h.config.Peers, bgp.Peer{
			Address: p.Address, Port: p.Port, ASN: p.ASN, Local: p.Source, Password: password, Hops: p.Hops, Passive: p.Passive,
			Hold: time.Duration(p.HoldTime) * time.Second,
		})
	}
	return h, nil
}

// start connects, and has a take what comes until ctx ends.
func (h *headend) start(ctx context.Context, group *errgroup.Group, a *Agent) (err error) {
	if h == nil {
		return nil
	}
	if h.speaker, err = bgp.Start(ctx, h.config, h); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	group.Go(func() error {
		defer h.speaker.Stop()
		restarted := time.NewTimer(h.config.Restart)
		defer restarted.Stop()
		select {
		case <-a.ready: // before, nothing can be changed
		case <-ctx.Done():
			return nil
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-h.some:
				a.hear(h.take())
			case <-restarted.C:
				h.push(hearing{apply: forgetRestored(func(heard) bool { return true })})
			}
		}
	})
	return nil
}

func (h *headend) push(e hearing) {
	h.mu.Lock()
	h.events = append(h.events, e)
	h.mu.Unlock()
	select {
	case h.some <- struct{}{}:
	default:
	}
}

func (h *headend) take() []hearing {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

// Put, Withdraw and Complete are what h hears as a bgp.Handler.
func (h *headend) Put(p bgp.Path) {
	name := learnedName(p.Node, p.Advertised)
	h.push(hearing{name, func(all map[string]heard) {
		// Another originator may be the best now, of the same NLRI.
		forget(all, p.Advertised)
		all[name] = heard{Path: p}
	}})
}

func (h *headend) Withdraw(gone srpolicy.Advertised) {
	h.push(hearing{apply: func(all map[string]heard) { forget(all, gone) }})
}

func (h *headend) Complete(peer netip.Addr) {
	h.push(hearing{apply: forgetRestored(func(p heard) bool { return p.Peer == peer })})
}

// forget removes what has the NLRI of an advertisement.
func forget(all map[string]heard, a srpolicy.Advertised) {
	maps.DeleteFunc(all, func(_ string, p heard) bool {
		return p.Color == a.Color && p.Endpoint == a.Endpoint && p.Distinguisher == a.Distinguisher
	})
}

// forgetRestored removes what was told before a restart and not again since.
func forgetRestored(of func(heard) bool) func(map[string]heard) {
	return func(all map[string]heard) {
		maps.DeleteFunc(all, func(_ string, p heard) bool { return p.restored && of(p) })
	}
}

// hear goes along with what peers said: with all of it at once if that holds
// together, else with one after the other. What this node cannot use is treated
// as withdrawn, and said.
func (a *Agent) hear(events []hearing) {
	err := a.changeHeard(events)
	if err == nil {
		return
	}
	if len(events) > 1 {
		for i := range events {
			a.hear(events[i : i+1])
		}
		return
	}
	a.log.Warn("a candidate path that a BGP peer advertises cannot be used here: it is treated as withdrawn", "path", events[0].name, "error", err)
	if err := a.changeHeard([]hearing{{apply: func(all map[string]heard) { delete(all, events[0].name) }}}); err != nil {
		a.log.Error("cannot withdraw a candidate path", "path", events[0].name, "error", err)
	}
}

func (a *Agent) changeHeard(events []hearing) error {
	_, err := a.change(context.Background(), false, func(now *desired) (*desired, *applied, error) {
		all := maps.Clone(now.heard)
		if all == nil {
			all = map[string]heard{}
		}
		for _, e := range events {
			e.apply(all)
		}
		next := &desired{file: now.file, api: now.api, process: now.process, heard: all}
		return next.learn(), a.replaced, nil
	})
	if errors.Is(err, ErrNotReady) { // the daemon is ending
		return nil
	}
	return err
}

// BGPPeers are the node's BGP sessions.
func (a *Agent) BGPPeers() ([]BGPPeerStatus, error) {
	if err := a.isReady(); err != nil {
		return nil, err
	}
	if a.headend == nil {
		return nil, ErrNotBGP
	}
	peers, err := a.headend.speaker.Peers(context.Background())
	if err != nil {
		return nil, err
	}
	out := make([]BGPPeerStatus, len(peers))
	for i, p := range peers {
		out[i] = BGPPeerStatus{Address: p.Address, ASN: p.ASN, RouterID: p.RouterID, State: p.State, Reason: p.Reason,
			Since: p.Since, Received: int(p.Received)}
	}
	return out, nil
}

func (s scrape) bgp() error {
	if s.headend == nil {
		return nil
	}
	peers, err := s.BGPPeers()
	if err != nil {
		return err
	}
	states := map[string]int{}
	for _, p := range peers {
		states[p.State]++
	}
	for state, n := range states {
		s.send(metricBGPPeers, float64(n), state)
	}
	return s.read(func() error {
		s.send(metricBGPPaths, float64(len(s.desired.heard)))
		return nil
	})
}
