package pathmtu

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/slowpath"
	"github.com/culvert-net/culvert/internal/tally"
)

const (
	// Least is the least MTU that is believed, of IPv4 too: a T-PDU of 1280 octets must pass
	// (RFC 8200 section 5, RFC 8201 section 4).
	Least = 1280
	// Lasting is how long a path keeps its MTU after it was last told (RFC 8201 section 4).
	Lasting = 10 * time.Minute

	perSecond = 20   // errors that are looked at
	mostPaths = 1024 // that have an MTU of their own
	// mostTaken are those of them whose destination a behaviour took from a packet: peers could
	// name any.
	mostTaken = 512
	settling  = 10 * time.Second
	lookEvery = 5 * time.Second
)

// DataPath is what a Learner needs.
type DataPath struct {
	// Find returns the paths that match.
	Find func(match func(*dataplane.Path) bool) []dataplane.Path
	// Set limits what is sent along a path; 0: as the links have it.
	Set func(mtu int, ends ...netip.Addr) error
	// Resolve has the adjacencies resolved that Set made.
	Resolve func()
}

// MTU is what was learned of a path.
type MTU struct {
	MTU int // of layer 3, octets
	// Age is the time since a router said so.
	Age time.Duration
}

// Counters count what became of the errors that were handed up.
type Counters struct {
	Lowered atomic.Uint64 `metric:"path_mtu_lowered"` // paths that got a lower MTU
	Refused atomic.Uint64 `metric:"path_mtu_refused"` // errors that are not about a packet of this node, or say less than 1280 or nothing new
	Limited atomic.Uint64 `metric:"path_mtu_limited"` // errors beyond 20 in a second, or 1024 paths
	Aged    atomic.Uint64 `metric:"path_mtu_aged"`    // paths whose MTU is the links' again
}

// All yields the counters with their metric names, in the order of the fields.
func (c *Counters) All() iter.Seq2[string, uint64] { return tally.All(c) }

// Learner knows the MTU of paths.
type Learner struct {
	Counters Counters

	dp     DataPath
	log    *slog.Logger
	now    func() time.Time
	budget *rate.Limiter

	mu      sync.Mutex
	learned map[adjacency.Path]*learned
	taken   int // of learned
}

type learned struct {
	ends        []netip.Addr
	mtu         int
	taken       bool      // a behaviour took the destination from a packet
	since, told time.Time // first and last
}

// New makes a Learner. now is the clock: nil is time.Now.
func New(dp DataPath, log *slog.Logger, now func() time.Time) *Learner {
	l := &Learner{dp: dp, log: cmp.Or(log, slog.Default()), now: now, budget: rate.NewLimiter(perSecond, perSecond), learned: map[adjacency.Path]*learned{}}
	if now == nil {
		l.now = time.Now
	}
	return l
}

// Handle looks at an error that the data path handed up. packet is its IP packet; vouches says
// which roles vouch for its sender.
func (l *Learner) Handle(packet []byte, vouches uint32) {
	if l.handle(packet, vouches) {
		l.dp.Resolve()
	}
}

// handle says whether the data path has new adjacencies.
func (l *Learner) handle(packet []byte, vouches uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.budget.AllowN(l.now(), 1) {
		l.Counters.Limited.Add(1)
		return false
	}
	e, ok := slowpath.ParseTooBig(packet)
	if !ok || e.MTU < Least || e.MTU >= e.Length || vouches&roleOf(&e) == 0 {
		l.refuse(&e)
		return false
	}
	fits := map[adjacency.Path]int{}
	found := l.dp.Find(func(p *dataplane.Path) bool {
		how := fit(&e, p)
		if how != other {
			path := adjacency.PathOf(endsOf(&e, p)...)
			fits[path] = max(fits[path], how)
		}
		return how != other
	})
	news := false
	for _, how := range []int{quoted, possible} {
		for _, p := range found {
			ends := endsOf(&e, &p)
			path := adjacency.PathOf(ends...)
			if fits[path] != how {
				continue
			}
			delete(fits, path) // others send along it, too
			switch l.learn(path, learned{ends: ends, mtu: e.MTU, taken: p.To.IsValid()}, p.MTU) {
			case lowered:
				news = true
			case known:
				return news
			}
		}
		if news {
			return true
		}
	}
	l.refuse(&e)
	return false
}

// roleOf is the role that must vouch for the sender of an error.
func roleOf(e *slowpath.TooBig) uint32 {
	if e.GTPU {
		return event.VouchesGTPU
	}
	return event.VouchesSR
}

func (l *Learner) refuse(e *slowpath.TooBig) {
	l.Counters.Refused.Add(1)
	l.log.Debug("an error about the MTU of a path is not believed", "mtu", e.MTU, "source", e.Source, "destination", e.Destination)
}

// What became of a path.
const (
	unchanged = iota
	known     // it has that MTU, or cannot get it
	lowered
)

// learn gives a path a lower MTU than it has now (0: nothing says). Errors that were on their way
// when it got that are about packets from before. If they go on, they are about another path that
// may be meant.
func (l *Learner) learn(path adjacency.Path, is learned, was int) int {
	now := l.now()
	k := l.learned[path]
	switch {
	case k != nil && k.mtu == is.mtu:
		k.told = now
		if now.Sub(k.since) < settling {
			return known
		}
		return unchanged
	case was != 0 && is.mtu >= was, k != nil && is.mtu > k.mtu:
		return unchanged
	case k == nil && (len(l.learned) >= mostPaths || is.taken && l.taken >= mostTaken):
		l.Counters.Limited.Add(1)
		return known
	}
	if err := l.dp.Set(is.mtu, is.ends...); err != nil {
		l.log.Warn("cannot lower the MTU of a path", "event", logevent.DataPathOutOfStep, "path", is.ends, "mtu", is.mtu, "error", err)
		return known
	}
	l.forget(path)
	is.since, is.told = now, now
	l.learned[path] = &is
	if is.taken {
		l.taken++
	}
	l.Counters.Lowered.Add(1)
	l.log.Info("the MTU of a path is lower", "event", logevent.PathMTULowered, "path", is.ends, "mtu", is.mtu, "was", was)
	return lowered
}

func (l *Learner) forget(path adjacency.Path) {
	if k := l.learned[path]; k != nil && k.taken {
		l.taken--
	}
	delete(l.learned, path)
}

// Run ends what was learned when it is too old, until ctx ends, which is not an error.
func (l *Learner) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			l.Expire()
		}
	}
}

// Expire ends what is too old.
func (l *Learner) Expire() {
	if l.expire() {
		l.dp.Resolve()
	}
}

// expire says whether the data path has new adjacencies.
func (l *Learner) expire() (some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, k := range l.learned {
		if l.now().Sub(k.told) < Lasting {
			continue
		}
		if err := l.dp.Set(0, k.ends...); err != nil { // it is tried again
			l.log.Warn("cannot raise the MTU of a path", "event", logevent.DataPathOutOfStep, "path", k.ends, "error", err)
			continue
		}
		l.forget(path)
		some = true
		l.Counters.Aged.Add(1)
		l.log.Info("the MTU of a path is that of the links again", "event", logevent.PathMTUAged, "path", k.ends, "was", k.mtu)
	}
	return some
}

// Of returns what was learned of a path; the zero MTU: nothing.
func (l *Learner) Of(ends ...netip.Addr) MTU {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.learned[adjacency.PathOf(ends...)]; k != nil {
		return MTU{MTU: k.mtu, Age: l.now().Sub(k.told)}
	}
	return MTU{}
}
