package slowpath

import (
	"container/heap"
	"container/list"
	"net/netip"
)

// share is what a sender of fragments has of the reassembler's memory.
type share struct {
	datagrams, bytes int
}

// weight is what a share takes of the scarcer limit, to compare it with others.
func (s share) weight(o *Options) int {
	return max(s.datagrams*o.MaxBytes, s.bytes*o.MaxDatagrams)
}

// ingress are the sources behind an interface, the one that holds most first.
type ingress struct {
	share
	options *Options
	sources []*origin
	of      map[netip.Addr]*origin
}

// origin has its datagrams, oldest first.
type origin struct {
	share
	addr   netip.Addr
	from   *ingress
	at     int // in from.sources
	oldest list.List
}

func (p *ingress) Len() int { return len(p.sources) }

// Less puts who holds more first; of those that hold as much, who began first.
func (p *ingress) Less(i, j int) bool {
	a, b := p.sources[i], p.sources[j]
	if x, y := a.weight(p.options), b.weight(p.options); x != y {
		return x > y
	}
	return began(a) < began(b)
}

func (p *ingress) Swap(i, j int) {
	p.sources[i], p.sources[j] = p.sources[j], p.sources[i]
	p.sources[i].at, p.sources[j].at = i, j
}

// Push is heap.Interface's.
func (p *ingress) Push(x any) {
	s := x.(*origin)
	s.at = len(p.sources)
	p.sources = append(p.sources, s)
}

// Pop is heap.Interface's.
func (p *ingress) Pop() any {
	last := p.sources[len(p.sources)-1]
	p.sources[len(p.sources)-1], p.sources = nil, p.sources[:len(p.sources)-1]
	return last
}

// began is the number of a source's oldest datagram.
func began(s *origin) uint64 {
	if s.oldest.Len() == 0 {
		return 0
	}
	return s.oldest.Front().Value.(*unfinished).number
}

// origin finds who sends by an interface, or begins to count it.
func (r *reassembler) origin(ifindex int, addr netip.Addr) *origin {
	p := r.ports[ifindex]
	if p == nil {
		p = &ingress{options: &r.options, of: map[netip.Addr]*origin{}}
		r.ports[ifindex] = p
	}
	s := p.of[addr]
	if s == nil {
		s = &origin{addr: addr, from: p}
		p.of[addr] = s
		heap.Push(p, s)
	}
	return s
}

// charge adds to a source's share, and to its interface's.
func (s *origin) charge(datagrams, bytes int) {
	for _, of := range []*share{&s.share, &s.from.share} {
		of.datagrams += datagrams
		of.bytes += bytes
	}
	if s.datagrams == 0 {
		heap.Remove(s.from, s.at)
		delete(s.from.of, s.addr)
		return
	}
	heap.Fix(s.from, s.at)
}

// next is the datagram that gives way: the oldest of the source that holds most, behind the interface that
// holds most. So a flood takes the room of its own sender, and not that of other interfaces.
func (r *reassembler) next() *unfinished {
	var most *ingress
	for _, p := range r.ports {
		if p.datagrams > 0 && (most == nil || p.weight(&r.options) > most.weight(&r.options)) {
			most = p
		}
	}
	return most.sources[0].oldest.Front().Value.(*unfinished)
}
