package netdev

import (
	"bytes"
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"sync"
)

// Snapshot is the network at one time. It never changes, so any goroutine may keep and
// read it.
type Snapshot struct {
	Links      []Link
	Addresses  []Address
	Routes     []Route
	Neighbours []Neighbour
	Rules      []Rule

	// AnyEthernet says that XDP programs run in generic mode everywhere, which can
	// redirect frames to every Ethernet device.
	AnyEthernet bool

	pods  *podLinks // which are none of Links
	once  sync.Once
	index *index
}

// index is what lookups need. It is made on first use, because many snapshots are never
// used.
type index struct {
	byIndex    map[int]*Link
	byName     map[string]*Link
	neighbours map[neighbourKey]*Neighbour
	local      map[netip.Addr]bool
	tables     map[uint32]*table
	extraRules [2]bool // IPv4, IPv6
}

type neighbourKey struct {
	ifindex int
	addr    netip.Addr
}

// table is a routing table: for each prefix the routes in the order of preference, and
// the prefix lengths in use, longest first.
type table struct {
	routes  map[netip.Prefix][]*Route
	lengths [2][]int // IPv4, IPv6
}

func (s *Snapshot) lookup() *index {
	s.once.Do(func() { s.index = newIndex(s) })
	return s.index
}

func newIndex(s *Snapshot) *index {
	x := &index{
		byIndex:    make(map[int]*Link, len(s.Links)),
		byName:     make(map[string]*Link, len(s.Links)),
		neighbours: make(map[neighbourKey]*Neighbour, len(s.Neighbours)),
		local:      make(map[netip.Addr]bool, len(s.Addresses)),
		tables:     map[uint32]*table{},
	}
	for i := range s.Links {
		x.byIndex[s.Links[i].Index] = &s.Links[i]
		x.byName[s.Links[i].Name] = &s.Links[i]
	}
	for i := range s.Neighbours {
		n := &s.Neighbours[i]
		x.neighbours[neighbourKey{n.Ifindex, n.Addr}] = n
	}
	for _, a := range s.Addresses {
		x.local[a.Prefix.Addr()] = true
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		t := x.tables[r.Table]
		if t == nil {
			t = &table{routes: map[netip.Prefix][]*Route{}}
			x.tables[r.Table] = t
		}
		if lengths := &t.lengths[family(r.Prefix.Addr().Is6())]; !slices.Contains(*lengths, r.Prefix.Bits()) {
			*lengths = append(*lengths, r.Prefix.Bits())
		}
		t.routes[r.Prefix] = append(t.routes[r.Prefix], r)
	}
	for _, t := range x.tables {
		for f := range t.lengths {
			slices.SortFunc(t.lengths[f], func(a, b int) int { return b - a })
		}
		for _, routes := range t.routes {
			slices.SortStableFunc(routes, func(a, b *Route) int { return cmp.Compare(a.Metric, b.Metric) })
		}
	}
	for _, r := range s.Rules {
		if !r.Standard {
			x.extraRules[family(r.IPv6)] = true
		}
	}
	return x
}

// match returns the routes of the longest prefix that contains addr, the preferred one
// first, or nil.
func (t *table) match(addr netip.Addr) []*Route {
	if t == nil {
		return nil
	}
	for _, bits := range t.lengths[family(addr.Is6())] {
		p, err := addr.WithZone("").Prefix(bits)
		if err != nil {
			continue
		}
		if routes := t.routes[p]; routes != nil {
			return routes
		}
	}
	return nil
}

func family(ipv6 bool) int {
	if ipv6 {
		return 1
	}
	return 0
}

// Link finds a link by its name.
func (s *Snapshot) Link(name string) (Link, bool) {
	l := s.lookup().byName[name]
	if l == nil {
		return s.pods.named(name)
	}
	return *l, true
}

// LinkByIndex finds a link by its index.
func (s *Snapshot) LinkByIndex(ifindex int) (Link, bool) {
	l := s.lookup().byIndex[ifindex]
	if l == nil {
		return s.pods.link(ifindex)
	}
	return *l, true
}

// Local returns the node's own addresses in ascending order, without link-local and
// loopback addresses, which the data path never forwards, and without tentative ones,
// which another node may have.
func (s *Snapshot) Local() []netip.Addr {
	var addrs []netip.Addr
	for _, a := range s.Addresses {
		addr := a.Prefix.Addr()
		if a.Tentative || addr.IsLinkLocalUnicast() || addr.IsLoopback() {
			continue
		}
		addrs = append(addrs, addr)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// Own returns what packets the kernel takes as its own, whatever the interface: its addresses as
// Local does, and what the tables local and main have as such by a route: prefixes of local
// addresses (AnyIP), broadcast addresses, and anycast addresses of routers (RFC 4291 section 2.6.1).
func (s *Snapshot) Own() []netip.Prefix {
	var own []netip.Prefix
	for _, a := range s.Local() {
		own = append(own, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
	}
	for _, r := range s.Routes {
		addr := r.Prefix.Addr()
		if r.Table != TableLocal && r.Table != TableMain || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
			continue
		}
		if r.Type == RouteLocal && !s.tentative(r.Prefix) || r.Type == RouteBroadcast || r.Type == RouteAnycast {
			own = append(own, r.Prefix)
		}
	}
	slices.SortFunc(own, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
	})
	return slices.Compact(own)
}

// tentative says whether a prefix is an address that another node may have.
func (s *Snapshot) tentative(p netip.Prefix) bool {
	return p.IsSingleIP() && slices.ContainsFunc(s.Addresses, func(a Address) bool { return a.Tentative && a.Prefix.Addr() == p.Addr() })
}

// ExtraRules says whether the kernel decides by more than the destination: there are
// policy rules in addition to the three that it starts with.
func (s *Snapshot) ExtraRules(ipv6 bool) bool {
	return s.lookup().extraRules[family(ipv6)]
}

// same says whether nothing differs that Resolve, Mirror and Own depend on. Steps
// between usable neighbour states do not count: they are frequent and change no frame.
func (s *Snapshot) same(o *Snapshot) bool {
	sameRoute := func(a, b Route) bool {
		return a.Table == b.Table && a.Prefix == b.Prefix && a.Type == b.Type &&
			a.Metric == b.Metric && a.KernelOnly == b.KernelOnly && slices.Equal(a.Hops, b.Hops)
	}
	sameNeighbour := func(a, b Neighbour) bool {
		return a.Ifindex == b.Ifindex && a.Addr == b.Addr && bytes.Equal(a.MAC, b.MAC) &&
			a.Usable() == b.Usable() && (a.State == NUDNoARP) == (b.State == NUDNoARP)
	}
	return s.AnyEthernet == o.AnyEthernet && reflect.DeepEqual(s.Links, o.Links) && slices.Equal(s.Addresses, o.Addresses) &&
		slices.EqualFunc(s.Routes, o.Routes, sameRoute) && slices.EqualFunc(s.Neighbours, o.Neighbours, sameNeighbour) &&
		slices.Equal(s.Rules, o.Rules)
}
