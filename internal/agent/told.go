package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// told is what BGP peers and the Kubernetes API say. It is kept over a restart:
// that must not move traffic. It is no part of what was asked for: a
// configuration has to hold together without it.
type told struct {
	paths   map[string]heard // by learnedName
	nodes   map[string]member
	reaches map[netip.Prefix]reached
	spoken  map[netip.Addr][]string // address families, by BGP peer
	self    selfTold
	// former are the nodes that another control plane told of, before the one that
	// is asked now: each stands until that one has told of it, or has had time to.
	former []overlay.Node
	// last is the number of the newest: of two that claim the same the first that
	// came stands.
	last uint64
	// touched are the paths that differ from those of what this was made of, and
	// narrow says that nothing else does.
	touched map[string]bool
	narrow  bool
}

// heard is a candidate path that a peer advertises.
type heard struct {
	bgp.Path
	// Kube names the object that it is from, and KubeName what it is known by to
	// the watcher; empty: a peer told it.
	Kube     string `json:"kube,omitempty"`
	KubeName string `json:"kube_name,omitempty"`
	// restored says that an earlier daemon was told it: it holds until who told
	// it has told everything again, or has had time to.
	restored bool
}

// member is another node, as Kubernetes tells of it.
type member struct {
	overlay.Node
	Number uint64 `json:"number"`
}

// reached is a prefix that peers advertise, with all routes to it, best first.
type reached struct {
	Prefix netip.Prefix `json:"prefix"`
	Routes []bgp.Route  `json:"routes"`
	Number uint64       `json:"number"`
	// awaited are the peers that told an earlier daemon of it: it holds until one of
	// them has told it again, or all have told everything.
	awaited []netip.Addr
}

func (h heard) unmarked() heard     { h.restored = false; return h }
func (m member) unmarked() member   { return m }
func (r reached) unmarked() reached { r.awaited = nil; return r }

// selfTold is what Kubernetes says of this node.
type selfTold struct {
	kube.Self
	Locator netip.Prefix   `json:"locator,omitzero"`
	SIDs    kube.LocalSIDs `json:"sids,omitzero"`
}

// clone is one that can be changed.
func (t told) clone() told {
	t = t.narrowClone()
	t.nodes, t.reaches, t.spoken, t.narrow = cloned(t.nodes), cloned(t.reaches), cloned(t.spoken), false
	return t
}

// narrowClone is one of which the paths can be.
func (t told) narrowClone() told {
	t.paths, t.touched, t.narrow = cloned(t.paths), map[string]bool{}, true
	return t
}

func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// whatIsOn is without what control planes told that are off now.
func (t told) whatIsOn(c *config.Config) told {
	t = t.clone()
	kube, reach := c.Overlay.UsesKube(), c.BGP.IsSet() && c.Overlay.Mode == config.OverlayBGP
	t.forget(func(h heard) bool { return h.Kube != "" && !kube || h.Kube == "" && !c.BGP.IsSet() }, func(reached) bool { return !reach })
	maps.DeleteFunc(t.spoken, func(peer netip.Addr, _ []string) bool {
		return !slices.ContainsFunc(c.BGP.Peers, func(p config.BGPPeer) bool { return p.Address == peer })
	})
	if !kube {
		clear(t.nodes)
		t.self = selfTold{}
	}
	return t
}

// is says that the two are one.
func (t told) is(o told) bool {
	return sameMap(t.paths, o.paths) && sameMap(t.nodes, o.nodes) && sameMap(t.reaches, o.reaches) && sameMap(t.spoken, o.spoken) && same(t.self, o.self)
}

// formerTime is how long what the control plane before told stands at most.
const formerTime = time.Minute

// succeeds is t of a configuration that has another control plane tell of nodes.
func (t told) succeeds(d *desired, c *config.Config) told {
	before, now := d.process.Overlay.Mode, c.Overlay.Mode
	switch {
	case before == now:
		return t
	case now != config.OverlayBGP && now != config.OverlayKube: // the file tells all of them
		t.former = nil
		return t
	}
	t.former = d.formerNodes()
	return t
}

// formerNodes are the others as this node reaches them now.
func (d *desired) formerNodes() []overlay.Node {
	if d.wanted == nil {
		return nil
	}
	var out []overlay.Node
	for _, p := range d.wanted.Peers {
		n := p.Node
		n.Name = cmp.Or(n.Name, n.Address.String())
		for color, list := range map[uint32]*[]netip.Addr{overlay.ColorIPv4: &n.IPv4, overlay.ColorIPv6: &n.IPv6} {
			if paths := d.told.of(overlay.Color{Color: color, Endpoint: n.Address}); len(*list) == 0 && len(paths) > 0 {
				*list = paths[0].SegmentLists[0].Segments
			}
		}
		if len(p.Problems) == 0 {
			out = append(out, n)
		}
	}
	return out
}

// still are the former nodes that nobody else has told of, all that there was of them.
func (t told) still() []overlay.Node {
	if len(t.former) == 0 {
		return nil
	}
	names, addresses, ways := map[string]bool{}, map[netip.Addr]bool{}, map[overlay.Color]bool{}
	for _, m := range t.nodes {
		names[m.Name], addresses[m.Address] = true, true
	}
	for _, h := range t.paths {
		ways[h.color()] = true
	}
	missing := func(p netip.Prefix, node netip.Addr) bool {
		color := overlay.Color{Color: overlay.ColorIPv6, Endpoint: node}
		if p.Addr().Is4() {
			color.Color = overlay.ColorIPv4
		}
		return len(t.reaches[p].Routes) == 0 || !ways[color]
	}
	return slices.DeleteFunc(slices.Clone(t.former), func(n overlay.Node) bool {
		return names[n.Name] || addresses[n.Address] ||
			!slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return missing(p, n.Address) })
	})
}

// members are the other nodes in the order in which they came.
func (t told) members() []overlay.Node {
	list := slices.SortedFunc(maps.Values(t.nodes), func(a, b member) int { return cmp.Compare(a.Number, b.Number) })
	out := make([]overlay.Node, len(list))
	for i, m := range list {
		out[i] = m.Node
	}
	return out
}

// best are the routes that are used, in the order in which they came.
func (t told) best() []overlay.Reach {
	list := slices.SortedFunc(maps.Values(t.reaches), func(a, b reached) int { return cmp.Compare(a.Number, b.Number) })
	var out []overlay.Reach
	for _, r := range list {
		if len(r.Routes) > 0 && r.Routes[0].Best {
			out = append(out, r.Routes[0].Reach)
		}
	}
	return out
}

// rivals are the routes of the cluster that are not used, and lead to another node
// than the one that is.
func (t told) rivals() (out []overlay.Rival) {
	for _, r := range t.reaches {
		if len(r.Routes) == 0 {
			continue
		}
		var owner netip.Addr
		if r.Routes[0].Best {
			owner = r.Routes[0].Address
		}
		for _, o := range r.Routes {
			if !o.Best && o.Distinguisher == "" && o.Address != owner {
				out = append(out, overlay.Rival{Reach: o.Reach, Owner: owner, Why: r.Routes[0].Why})
			}
		}
	}
	slices.SortFunc(out, func(a, b overlay.Rival) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), a.Address.Compare(b.Address))
	})
	return slices.CompactFunc(out, func(a, b overlay.Rival) bool { return a.Prefix == b.Prefix && a.Address == b.Address })
}

func (t *told) putNode(n overlay.Node) {
	m, there := t.nodes[n.Name]
	if !there {
		t.last++
		m.Number = t.last
	}
	m.Node = n
	t.nodes[n.Name] = m
}

func (t *told) putReach(p netip.Prefix, routes []bgp.Route) {
	r, there := t.reaches[p]
	if !there {
		t.last++
		r.Number = t.last
	}
	r.Prefix, r.Routes, r.awaited = p, routes, nil
	t.reaches[p] = r
}

// forget removes paths that peers told of, and prefixes, and leaves the rest.
func (t *told) forget(path func(heard) bool, reach func(reached) bool) {
	for name, h := range t.paths {
		if path(h) {
			t.dropPath(name)
		}
	}
	maps.DeleteFunc(t.reaches, func(_ netip.Prefix, r reached) bool { return reach(r) })
}

// restore marks what peers say as what an earlier daemon was told. A watcher of
// Kubernetes is told what was known, and says what of it is gone.
func (t *told) restore() {
	for name, h := range t.paths {
		h.restored = h.Kube == ""
		t.paths[name] = h
	}
	for p, r := range t.reaches {
		r.awaited = nil
		for _, o := range r.Routes {
			r.awaited = append(r.awaited, o.From)
		}
		t.reaches[p] = r
	}
}

// complete removes what a peer had told of before and, having told everything, has
// not again.
func (t *told) complete(peer netip.Addr) {
	for name, h := range t.paths {
		if h.restored && h.Peer == peer {
			t.dropPath(name)
		}
	}
	for p, r := range t.reaches {
		if !slices.Contains(r.awaited, peer) {
			continue
		}
		r.awaited = slices.DeleteFunc(slices.Clone(r.awaited), func(a netip.Addr) bool { return a == peer })
		t.reaches[p] = r
		if len(r.awaited) == 0 {
			delete(t.reaches, p)
		}
	}
}

func (t *told) putPath(name string, h heard) {
	t.paths[name], t.touched[name] = h, true
}

func (t *told) dropPath(name string) {
	if _, there := t.paths[name]; there {
		t.touched[name] = true
		delete(t.paths, name)
	}
}

// hearing is one thing that was said: it changes what was told.
type hearing struct {
	name  string // of what it is about; empty: of several
	paths bool   // it is about candidate paths only
	apply func(*told)
	// without is in place of apply where that cannot be: as if it were withdrawn.
	without func(*told)
	// refused, if set, hears why it cannot be.
	refused func(error)
}

// touchedRefs are the names of the paths that differ.
func (t *told) touchedRefs() []Ref {
	var out []Ref
	for _, name := range slices.Sorted(maps.Keys(t.touched)) {
		out = append(out, Ref{KindCandidatePath, name})
	}
	return out
}

// inbox holds what was said until the agent takes it.
type inbox struct {
	mu     sync.Mutex
	events []hearing
	some   chan struct{} // there are events
}

func newInbox() *inbox { return &inbox{some: make(chan struct{}, 1)} }

func (i *inbox) push(e hearing) {
	i.mu.Lock()
	i.events = append(i.events, e)
	i.mu.Unlock()
	select {
	case i.some <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []hearing {
	i.mu.Lock()
	defer i.mu.Unlock()
	events := i.events
	i.events = nil
	return events
}

// listen goes along with what is said until ctx ends.
func (a *Agent) listen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.inbox.some:
			a.hear(a.inbox.take())
		}
	}
}

// hear goes along with what was said: with all of it at once if that holds
// together, else with one half after the other. What this node cannot use is treated
// as withdrawn, and said.
func (a *Agent) hear(events []hearing) {
	err := a.changeTold(events)
	if err == nil {
		return
	}
	if half := len(events) / 2; half > 0 { // the one that cannot be is found in few steps
		a.hear(events[:half])
		a.hear(events[half:])
		return
	}
	a.log.Warn("what was told cannot be used here: it is treated as withdrawn", "what", events[0].name, "error", err)
	if events[0].refused != nil {
		events[0].refused(err)
	}
	if events[0].without == nil {
		return
	}
	if err := a.changeTold([]hearing{{paths: events[0].paths, apply: events[0].without}}); err != nil {
		a.log.Error("cannot withdraw what was told", "what", events[0].name, "error", err)
	}
}

func (a *Agent) changeTold(events []hearing) error {
	_, err := a.change(context.Background(), false, func(now *desired) (proposal, error) {
		next := *now
		if slices.ContainsFunc(events, func(e hearing) bool { return !e.paths }) {
			next.told = now.told.clone()
		} else {
			next.told = now.told.narrowClone()
		}
		for _, e := range events {
			e.apply(&next.told)
		}
		p := proposal{to: &next, replaced: a.replaced}
		if next.told.narrow {
			p.touched = next.told.touchedRefs()
		}
		return p, nil
	})
	if errors.Is(err, ErrNotReady) { // the daemon is ending
		return nil
	}
	return err
}

// unsaved is what of all that was told is not on disk: it is written soon, and much
// of it at once. A crash loses no more than others tell again.
type unsaved struct {
	mu      sync.Mutex
	whole   bool            // anything
	touched map[string]bool // these paths
	some    chan struct{}
}

func newUnsaved() *unsaved { return &unsaved{touched: map[string]bool{}, some: make(chan struct{}, 1)} }

// note is for what the desired state has now.
func (u *unsaved) note(t told) {
	u.mu.Lock()
	u.whole = u.whole || !t.narrow
	maps.Copy(u.touched, t.touched)
	u.mu.Unlock()
	select {
	case u.some <- struct{}{}:
	default:
	}
}

// take is what there is to write of now; nil: anything.
func (u *unsaved) take() (touched map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.whole {
		touched = u.touched
	}
	u.whole, u.touched = false, map[string]bool{}
	return touched
}

// saveInterval is how long what comes is gathered before it is written.
const saveInterval = 100 * time.Millisecond

// keepTold writes what was told to disk until ctx ends.
func (a *Agent) keepTold(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.unsaved.some:
		}
		rest := saveInterval
		if err := a.saveTold(); err != nil {
			a.log.Error("what others told is not on disk; will try again", "error", err)
			rest = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// saveTold writes what is not on disk yet.
func (a *Agent) saveTold() error {
	a.mu.RLock()
	d, touched := a.desired, a.unsaved.take()
	a.mu.RUnlock()
	if d == nil || touched != nil && len(touched) == 0 {
		return nil
	}
	err := a.store.saveTold(d.told, touched)
	if err != nil {
		a.unsaved.note(told{})
	}
	return err
}
