package lan

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/upf/stats"
)

// Bounds of what frames for all sessions of a link cost: how many frames wait, how
// many copies are made of them in a second, and how many at once.
const (
	mostFloods  = 256
	floodRate   = 10000
	floodsBurst = 2000
)

// Options are what Links needs. All fields are required.
type Options struct {
	// Inject gives a frame that came in on an interface to a session.
	Inject func(session uint64, frame []byte, ifindex int) error
	Log    *slog.Logger
	Now    func() time.Time
	Stats  *stats.Counters
}

// Links knows which Ethernet sessions are on which link, and gives floods to them.
type Links struct {
	o    Options
	wait chan flood

	mu sync.Mutex
	of map[uint64]ethernet.Link
	on map[ethernet.Link]map[uint64]bool

	// The copies that may be made now, and when that was reckoned. Only Run uses
	// them.
	left float64
	last time.Time
}

// flood is a frame for all sessions of a link.
type flood struct {
	link    ethernet.Link
	ifindex int
	data    []byte
}

// NewLinks returns Links without sessions.
func NewLinks(o Options) *Links {
	return &Links{
		o: o, wait: make(chan flood, mostFloods), left: floodsBurst, last: o.Now(),
		of: map[uint64]ethernet.Link{}, on: map[ethernet.Link]map[uint64]bool{},
	}
}

// Join notes which link a session is on, if any, now that its rules are in the data
// path.
func (l *Links) Join(s datapath.Session) {
	if len(s.Rules) == 0 || !s.Rules[0].Ethernet {
		return
	}
	l.Leave(s.ID)
	for i := range s.Rules {
		link := s.Rules[i].Link
		if link == (ethernet.Link{}) {
			continue
		}
		l.mu.Lock()
		if l.on[link] == nil {
			l.on[link] = map[uint64]bool{}
		}
		l.of[s.ID], l.on[link][s.ID] = link, true
		l.mu.Unlock()
		return
	}
}

// Leave notes that a session is on no link.
func (l *Links) Leave(seid uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if link, is := l.of[seid]; is {
		delete(l.of, seid)
		delete(l.on[link], seid)
	}
}

// Flood has Run give a frame that came in on a link to all sessions of the link. It
// keeps data.
func (l *Links) Flood(link ethernet.Link, ifindex int, data []byte) {
	select {
	case l.wait <- flood{link, ifindex, data}:
	default:
		l.o.Stats.FloodsDropped.Add(1)
	}
}

// Run gives frames to sessions until ctx ends.
func (l *Links) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-l.wait:
			l.mu.Lock()
			seids := slices.Collect(maps.Keys(l.on[f.link]))
			l.mu.Unlock()
			for _, seid := range seids {
				l.copyTo(seid, f)
			}
		}
	}
}

func (l *Links) copyTo(seid uint64, f flood) {
	if !l.allow() {
		l.o.Stats.FloodsDropped.Add(1)
		return
	}
	if err := l.o.Inject(seid, f.data, f.ifindex); err != nil {
		l.o.Stats.FloodsDropped.Add(1)
		l.o.Log.Debug("cannot give a frame to a session", "seid", seid, "error", err)
		return
	}
	l.o.Stats.Floods.Add(1)
}

// allow takes one copy from the budget.
func (l *Links) allow() bool {
	now := l.o.Now()
	l.left = min(floodsBurst, l.left+now.Sub(l.last).Seconds()*floodRate)
	l.last = now
	if l.left < 1 {
		return false
	}
	l.left--
	return true
}

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
