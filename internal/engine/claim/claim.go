// Package claim tells engines apart that write candidate paths by BGP. What headends have of an engine
// is its claim: of several engines one changes headends, and the others stand by while headends have
// paths of that one. So there is nobody else to ask, and the claim of an engine that is gone ends when
// headends drop its paths.
package claim

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/logevent"
)

// Name is what the claim is called as a lease.
const Name = "bgp"

// Claim is of one engine. Its methods may be called at any time.
type Claim struct {
	self  netip.Addr
	keep  time.Duration
	since time.Time
	log   *slog.Logger

	mu      sync.Mutex
	seen    map[string]seen // by headend
	silent  map[string]bool // headends that have never answered
	held    context.Context // of the claim; nil: this engine stands by
	lose    context.CancelFunc
	holder  netip.Addr
	changed time.Time
}

// seen is whose paths a headend has had.
type seen struct {
	at   time.Time
	self bool
	by   []netip.Addr // other engines
}

// New makes the claim of the engine with a router ID. keep is how long headends keep the paths of an
// engine that is gone, and so how long a headend counts that does not answer.
func New(self netip.Addr, keep time.Duration, log *slog.Logger) *Claim {
	return &Claim{self: self, keep: keep, since: time.Now(), log: log, seen: map[string]seen{}, silent: map[string]bool{}}
}

// See takes what a headend answers. Paths with one of the discriminators are those of engines.
func (c *Claim) See(name string, policies []headend.Policy, discriminators ...uint32) {
	s := seen{at: time.Now()}
	for _, p := range policies {
		for _, v := range p.Paths {
			switch {
			case !v.Originator.IsValid() || !slices.Contains(discriminators, v.Discriminator):
			case v.Originator == c.self:
				s.self = true
			case !slices.Contains(s.by, v.Originator):
				s.by = append(s.by, v.Originator)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[name] = s
	delete(c.silent, name)
	if c.held != nil {
		c.judge()
	}
}

// Silent takes that a headend does not answer.
func (c *Claim) Silent(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, answered := c.seen[name]; !answered {
		c.silent[name] = true
	}
}

// judge finds who changes headends. Of several engines that have paths the one with the lowest router
// ID does. One without any changes nothing while another has some, nor before it has looked everywhere.
func (c *Claim) judge() {
	holder, self := netip.Addr{}, false
	for _, s := range c.seen {
		if time.Since(s.at) > c.keep {
			continue
		}
		self = self || s.self
		for _, other := range s.by {
			if !holder.IsValid() || other.Less(holder) {
				holder = other
			}
		}
	}
	looked := len(c.seen) > 0 && len(c.silent) == 0 || time.Since(c.since) > c.keep
	if self && (!holder.IsValid() || c.self.Less(holder)) || !holder.IsValid() && looked {
		holder = c.self
	}
	if holder != c.holder {
		c.holder, c.changed = holder, time.Now()
		c.log.Info("lease", "event", logevent.TELease, "lease", Name, "holder", holder, "self", c.self)
	}
	switch {
	case holder == c.self && c.held == nil:
		c.held, c.lose = context.WithCancel(context.Background())
	case holder != c.self && c.held != nil:
		c.lose()
		c.held, c.lose = nil, nil
	}
}

// Held returns a context that ends when another engine changes headends, and whether this one does.
func (c *Claim) Held() (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.judge(); c.held != nil {
		return c.held, true
	}
	gone, end := context.WithCancel(context.Background())
	end()
	return gone, false
}

// State says who changes headends.
func (c *Claim) State() loop.LeaseState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := loop.LeaseState{Lease: Name, Self: c.self.String(), Held: c.held != nil, Since: c.changed}
	if c.holder.IsValid() {
		s.Holder = c.holder.String()
	}
	return s
}
