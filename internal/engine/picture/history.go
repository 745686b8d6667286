package picture

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// What a History holds at most: 720 rounds are two hours of 10 s. Fewer rounds are held of a
// network with many links, so that utilisations take 4 MB at most.
const (
	mostRounds, mostCells = 720, 1 << 20
	mostEvents, mostPaths = 200, 30
	mostShares            = 1 << 18 // 4 MB
	// mostFrames is how many rounds a page has, and mostValues how many utilisations.
	mostFrames, mostValues = 120, 200_000
)

// History remembers the last rounds of an engine: how full links were, where the largest demands
// went, and what happened. Methods may be called by several goroutines.
type History struct {
	mu     sync.Mutex
	rounds []round
	events []Event
	began  int // rounds that were there before the first one that is held
	// links are all that a round which is held has, and nodes theirs.
	links   []te.Link
	index   map[[3]string]int // of links
	nodes   []string
	demands map[te.Key]*Demand // From counts from the first round that ever was
	all     int
	shares  int // that demands hold
	target  float64
	every   time.Duration
}

// round is what links carried.
type round struct {
	at   time.Time
	used []float32 // shorter than links where some came later
}

// Seen is what a round of an engine found.
type Seen struct {
	At      time.Time
	Network te.Network // with what is installed when the round has ended
	Events  []string
	// Target is the utilisation that the engine aims at, and Every the time to the next round.
	Target float64
	Every  time.Duration
}

// Add remembers a round. One without a network only has events.
func (h *History) Add(s Seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range s.Events {
		h.events = append(h.events, Event{s.At, what})
	}
	h.events = h.events[max(0, len(h.events)-mostEvents):]
	if len(s.Network.Topology.Links) == 0 {
		return
	}
	h.target, h.every = s.Target, s.Every
	if known := 4*len(s.Network.Topology.Links) + 100; h.demands == nil || len(h.links) > known || len(h.nodes) > known {
		h.begin() // links that never return fill it
	}
	g := graph.New(s.Network.Topology, graph.Without{})
	places := h.place(s)
	r := round{at: s.At, used: make([]float32, len(h.links))}
	for i := range r.used {
		r.used[i] = -1
	}
	for i, u := range usedBy(g, s.Network.Demands, s.Network.Routing) {
		r.used[places[i]] = u
	}
	h.rounds = append(h.rounds, r)
	h.follow(s, g, places)
	h.forget()
}

// begin forgets all but events.
func (h *History) begin() {
	h.rounds, h.links, h.nodes, h.began, h.shares = nil, nil, nil, 0, 0
	h.index, h.demands = map[[3]string]int{}, map[te.Key]*Demand{}
}

// place finds the places of a round's links among all, which get those that are new. What links
// and nodes went is said as events.
func (h *History) place(s Seen) []int {
	places, there := make([]int, len(s.Network.Topology.Links)), map[int]bool{}
	for i, l := range s.Network.Topology.Links {
		key := [3]string{l.From, l.To, l.Name}
		at, known := h.index[key]
		if !known {
			at = len(h.links)
			h.index[key], h.links = at, append(h.links, l)
		}
		h.links[at], places[i], there[at] = l, at, true
	}
	for _, n := range s.Network.Topology.Nodes {
		if !slices.Contains(h.nodes, n.Name) {
			h.nodes = append(h.nodes, n.Name)
		}
	}
	if n := len(h.rounds); n > 0 {
		h.compare(s.At, h.rounds[n-1], there)
	}
	return places
}

// compare says which links have gone or come since the last round: one event for both directions.
func (h *History) compare(at time.Time, last round, there map[int]bool) {
	said := map[string]bool{}
	for i, l := range h.links {
		was, is := i < len(last.used) && last.used[i] >= 0, there[i]
		if was == is {
			continue
		}
		ends := []string{l.From, l.To}
		slices.Sort(ends)
		what := "link " + te.Link{From: ends[0], To: ends[1], Name: l.Name}.Direction()
		if is {
			what += " has come"
		} else {
			what += " has gone"
		}
		if !said[what] {
			said[what] = true
			h.events = append(h.events, Event{at, what})
		}
	}
}

// follow adds the paths of the largest demands.
func (h *History) follow(s Seen, g *graph.Graph, places []int) {
	flows, frame, seen := g.Flows(), h.began+len(h.rounds)-1, map[te.Key]bool{}
	for _, d := range largest(s.Network.Demands) {
		seen[d.Key] = true
		known := h.demands[d.Key]
		if known == nil {
			known = &Demand{}
			h.demands[d.Key] = known
		}
		known.Demand = d
		before := len(known.Paths)
		next := Path{frame, engine.Words(s.Network.Topology, s.Network.Routing[d.Key]), sharesOf(flows, d.Key, s.Network.Routing[d.Key])}
		for i := range next.Shares {
			next.Shares[i].Link = places[next.Shares[i].Link]
		}
		known.see(next)
		if len(known.Paths) > before {
			h.shares += len(known.Paths[before].Shares)
		}
		if len(known.Paths) > mostPaths {
			h.drop(known, 1)
		}
	}
	h.all = len(s.Network.Demands)
	for key, d := range h.demands {
		if !seen[key] {
			h.drop(d, len(d.Paths))
			delete(h.demands, key)
		}
	}
}

// drop forgets the first paths of a demand.
func (h *History) drop(d *Demand, n int) {
	for _, p := range d.Paths[:n] {
		h.shares -= len(p.Shares)
	}
	d.Paths = slices.Delete(d.Paths, 0, n)
}

// forget drops what is more than is held.
func (h *History) forget() {
	over := len(h.rounds) - max(2, min(mostRounds, mostCells/max(1, len(h.links))))
	if over > 0 {
		h.rounds, h.began = slices.Delete(h.rounds, 0, over), h.began+over
	}
	for _, d := range h.demands {
		for len(d.Paths) > 1 && (d.Paths[1].From <= h.began || h.shares > mostShares) {
			h.drop(d, 1)
		}
	}
}

// Page is what the history shows.
func (h *History) Page(title string) Page {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Page{Title: title, Nodes: slices.Clone(h.nodes), Links: slices.Clone(h.links), Target: h.target, Every: h.every, All: h.all}
	picks := h.picks()
	for _, i := range picks {
		r := h.rounds[i]
		f := Frame{At: r.at, Used: slices.Clone(r.used)}
		for len(f.Used) < len(h.links) {
			f.Used = append(f.Used, -1)
		}
		p.Frames = append(p.Frames, f)
	}
	for _, e := range h.events {
		if len(p.Frames) > 0 && !e.At.Before(p.Frames[0].At) {
			p.Events = append(p.Events, e)
		}
	}
	for _, d := range h.demands {
		p.Demands = append(p.Demands, Demand{d.Demand, h.shown(d.Paths, picks)})
	}
	slices.SortFunc(p.Demands, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Name(), b.Name()))
	})
	return p
}

// picks are the rounds that a page has: the last one, and others as far apart.
func (h *History) picks() (list []int) {
	most := max(2, min(mostFrames, mostValues/max(1, len(h.links))))
	apart := (len(h.rounds) + most - 1) / most
	for i := len(h.rounds) - 1; i >= 0; i -= apart {
		list = append(list, i)
	}
	slices.Reverse(list)
	return list
}

// shown are paths by the frames from which on they are seen. Of those between two frames it is the last.
func (h *History) shown(paths []Path, picks []int) (list []Path) {
	for _, p := range paths {
		p.From, _ = slices.BinarySearch(picks, p.From-h.began)
		if n := len(list); n > 0 && list[n-1].From == p.From {
			list = list[:n-1]
		}
		list = append(list, p)
	}
	return list
}
