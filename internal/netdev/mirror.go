package netdev

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// MaxNextHops is how many next hops a mirrored route has room for.
const MaxNextHops = 7

// RouteKey is a prefix of a table.
type RouteKey struct {
	Table  uint32
	Prefix netip.Prefix
}

// String returns the prefix and the table.
func (k RouteKey) String() string { return fmt.Sprintf("%s in table %d", k.Prefix, k.Table) }

// Mirror says what the data path may look up itself: for each prefix of the
// tables the next hops, a weight of n as n repetitions. No next hops mean "ask
// the kernel", and so does a prefix that is not there; the former is needed
// where a shorter prefix would be found otherwise.
//
//   - A prefix that is on a link asks the kernel, and its neighbours that are
//     resolved become host routes.
//   - Routes that do more than name next hops (other types, encapsulation, MTU,
//     TOS, source) ask the kernel.
//   - The main table stands for the kernel's whole decision, rules included.
//     With rules besides the standard ones a packet's source, mark or interface
//     may lead elsewhere, which the data path cannot know: all of it asks the
//     kernel. Other tables are looked up by number, which rules do not touch.
//   - What the local table holds is asked of the kernel in the main table.
func Mirror(s *Snapshot, tables []uint32) map[RouteKey][]Key {
	m := map[RouteKey][]Key{}
	for _, number := range tables {
		s.mirrorTable(m, cmp.Or(number, TableMain))
	}
	return m
}

func (s *Snapshot) mirrorTable(m map[RouteKey][]Key, number uint32) {
	x := s.lookup()
	if t := x.tables[number]; t != nil {
		for p, routes := range t.routes {
			if number == TableMain && x.extraRules[family(p.Addr().Is6())] {
				continue
			}
			m[RouteKey{number, p}] = s.mirrorRoute(routes)
		}
		s.mirrorNeighbours(m, number, t)
	}
	local := x.tables[TableLocal]
	if number != TableMain || local == nil {
		return
	}
	for p := range local.routes {
		if !x.extraRules[family(p.Addr().Is6())] {
			m[RouteKey{TableMain, p}] = nil
		}
	}
}

// mirrorRoute returns the next hops of the preferred route of a prefix.
func (s *Snapshot) mirrorRoute(routes []*Route) []Key {
	r := routes[0]
	if r.Type != RouteUnicast || r.KernelOnly != "" {
		return nil
	}
	for _, other := range routes[1:] {
		// Another route with the same metric, or one that holds for some
		// packets only: which one is taken is not the prefix's matter alone.
		if other.Metric == r.Metric || other.KernelOnly != "" {
			return nil
		}
	}
	var keys []Key
	var weights []int
	for _, h := range r.Hops {
		if h.Dead {
			continue
		}
		key, ok := s.hopKey(r, h)
		if !ok {
			return nil
		}
		keys = append(keys, key)
		weights = append(weights, max(h.Weight, 1))
	}
	return repeat(keys, weights)
}

// hopKey names a next hop of a route. A prefix on the link has none, unless it
// is a single address: then the neighbour is that address.
func (s *Snapshot) hopKey(r *Route, h Hop) (Key, bool) {
	l := s.lookup().byIndex[h.Ifindex]
	if l == nil {
		return Key{}, false
	}
	if h.Gateway.IsValid() {
		return Key{NextHop: h.Gateway, Interface: l.Name}, true
	}
	addr := r.Prefix.Addr()
	if !r.Prefix.IsSingleIP() {
		return Key{}, false
	}
	n := s.lookup().neighbours[neighbourKey{h.Ifindex, addr}]
	if n == nil || !n.Usable() {
		return Key{}, false
	}
	return Key{NextHop: addr, Interface: l.Name}, true
}

// mirrorNeighbours makes host routes of the neighbours that an on-link route of
// the table leads to.
func (s *Snapshot) mirrorNeighbours(m map[RouteKey][]Key, number uint32, t *table) {
	x := s.lookup()
	for i := range s.Neighbours {
		n := &s.Neighbours[i]
		// Link-local addresses mean another node on each link: the table
		// cannot tell.
		if !n.Usable() || n.Addr.IsLinkLocalUnicast() || n.Addr.IsMulticast() || x.local[n.Addr] {
			continue
		}
		if number == TableMain && x.extraRules[family(n.Addr.Is6())] {
			continue
		}
		routes := t.match(n.Addr)
		if len(routes) != 1 {
			continue
		}
		// The route's destinations have to be on this link and nowhere else.
		r, l := routes[0], x.byIndex[n.Ifindex]
		if l == nil || r.Prefix.IsSingleIP() || r.Type != RouteUnicast || r.KernelOnly != "" || len(r.Hops) != 1 ||
			r.Hops[0].Ifindex != n.Ifindex || r.Hops[0].Gateway.IsValid() || r.Hops[0].Dead {
			continue
		}
		p := netip.PrefixFrom(n.Addr, n.Addr.BitLen())
		m[RouteKey{number, p}] = []Key{{NextHop: n.Addr, Interface: l.Name}}
	}
}

// repeat writes weights as repetitions, at most MaxNextHops in all. More next
// hops than that are left to the kernel, which can spread over all of them.
func repeat(keys []Key, weights []int) []Key {
	if len(keys) == 0 || len(keys) > MaxNextHops {
		return nil
	}
	var out []Key
	for i, n := range shares(weights) {
		out = append(out, slices.Repeat(keys[i:i+1], n)...)
	}
	return out
}

// shares scales weights to small whole numbers with the same proportions, or
// the nearest that there is room for: everyone gets one, then whoever is
// furthest below its share gets the next.
func shares(weights []int) []int {
	total, divisor := 0, 0
	for _, w := range weights {
		total += w
		for w > 0 { // the greatest common divisor
			divisor, w = w, divisor%w
		}
	}
	if total/divisor <= MaxNextHops {
		out := slices.Clone(weights)
		for i := range out {
			out[i] /= divisor
		}
		return out
	}
	out := slices.Repeat([]int{1}, len(weights))
	for range MaxNextHops - len(weights) {
		lack := func(i int) int { return weights[i]*MaxNextHops - out[i]*total }
		best := 0
		for i := range out {
			if lack(i) > lack(best) {
				best = i
			}
		}
		out[best]++
	}
	return out
}
