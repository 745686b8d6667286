package pool

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"sync"

	"github.com/culvert-net/culvert/internal/pfcp"
)

// Pool is a pool of UE addresses, as configured.
type Pool struct {
	NetworkInstance string // empty: for any
	Prefixes        []netip.Prefix
}

// Pools knows which UE addresses sessions have, in the pools and outside.
type Pools struct {
	mu     sync.Mutex
	ranges []*addressRange
	others map[netip.Prefix]struct{}
}

// addressRange is one prefix of a pool. It has a bit for each UE, which gets an
// IPv4 address or an IPv6 /64.
type addressRange struct {
	instance string
	prefix   netip.Prefix
	first    uint32 // index handed out first: IPv4 network addresses are not
	end      uint32 // index behind the last one: IPv4 broadcast addresses are not
	size     uint32
	next     uint32 // where the search starts, so that freed addresses rest a while
	used     int
	taken    []uint64
}

// New makes Pools in which no address is taken.
func New(list []Pool) *Pools {
	a := &Pools{others: map[netip.Prefix]struct{}{}}
	for _, p := range list {
		for _, prefix := range p.Prefixes {
			r := &addressRange{instance: p.NetworkInstance, prefix: prefix.Masked()}
			r.size = 1 << (r.unit() - prefix.Bits())
			r.end = r.size
			if prefix.Addr().Is4() && r.size > 2 {
				r.first, r.end = 1, r.size-1
			}
			r.next = r.first
			r.taken = make([]uint64, (r.size+63)/64)
			a.ranges = append(a.ranges, r)
		}
	}
	return a
}

// unit is the prefix length of what a UE gets.
func (r *addressRange) unit() int {
	if r.prefix.Addr().Is4() {
		return 32
	}
	return 64
}

func (r *addressRange) has(i uint32) bool { return r.taken[i/64]>>(i%64)&1 != 0 }

func (r *addressRange) set(i uint32, taken bool) {
	if taken {
		r.taken[i/64] |= 1 << (i % 64)
		r.used++
	} else {
		r.taken[i/64] &^= 1 << (i % 64)
		r.used--
	}
}

// takeNext takes the next free index.
func (r *addressRange) takeNext() (uint32, bool) {
	for _, part := range [][2]uint32{{r.next, r.end}, {r.first, r.next}} {
		for i := part[0]; i < part[1]; {
			if free := ^r.taken[i/64] >> (i % 64); free != 0 {
				if i += uint32(bits.TrailingZeros64(free)); i >= part[1] {
					break
				}
				r.set(i, true)
				if r.next = i + 1; r.next >= r.end {
					r.next = r.first
				}
				return i, true
			}
			i = (i/64 + 1) * 64
		}
	}
	return 0, false
}

// at returns the address or prefix of an index.
func (r *addressRange) at(i uint32) netip.Prefix {
	b := r.prefix.Addr().AsSlice()
	low := b[r.unit()/8-4:] // the four octets that the index is in
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)|i)
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, r.unit())
}

// covered returns the range that a prefix lies in, and the indexes that the
// prefix covers. A prefix outside of the ranges covers none.
func (a *Pools) covered(p netip.Prefix) (r *addressRange, from, end uint32) {
	for _, r := range a.ranges {
		if r.prefix.Contains(p.Addr()) && p.Bits() >= r.prefix.Bits() {
			from = binary.BigEndian.Uint32(p.Addr().AsSlice()[r.unit()/8-4:]) & (r.size - 1)
			return r, from, from + 1<<(r.unit()-p.Bits())
		}
	}
	return nil, 0, 0
}

// whole widens an IPv6 address to its /64: the data path knows a UE by that.
func whole(p netip.Prefix) netip.Prefix {
	if p.Addr().Is6() && p.Bits() > 64 {
		p = netip.PrefixFrom(p.Addr(), 64)
	}
	return p.Masked()
}

// Allocate takes an IPv4 address, an IPv6 /64 or both out of the pools for a
// network instance. Where a family has none left it takes nothing and returns
// pfcp.ErrNoResources.
func (a *Pools) Allocate(instance string, v4, v6 bool) ([]netip.Prefix, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []netip.Prefix
	for _, family := range []struct {
		wanted bool
		unit   int
		name   string
	}{{v4, 32, "IPv4"}, {v6, 64, "IPv6"}} {
		if !family.wanted {
			continue
		}
		p, ok := a.allocateOne(instance, family.unit)
		if !ok {
			for _, taken := range out {
				a.mark(taken, false)
			}
			return nil, fmt.Errorf("UE addresses: %w: no %s pool for network instance %q has a free address", pfcp.ErrNoResources, family.name, instance)
		}
		out = append(out, p)
	}
	return out, nil
}

// allocateOne prefers pools that name the instance to pools for any.
func (a *Pools) allocateOne(instance string, unit int) (netip.Prefix, bool) {
	for _, named := range []bool{true, false} {
		for _, r := range a.ranges {
			if r.unit() != unit || named != (r.instance != "") || named && !strings.EqualFold(r.instance, instance) {
				continue
			}
			if i, ok := r.takeNext(); ok {
				return r.at(i), true
			}
		}
	}
	return netip.Prefix{}, false
}

// Take takes the addresses and prefixes in list, all or none. Where a session
// has one of them it returns pfcp.ErrTaken.
func (a *Pools) Take(list []netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, p := range list {
		if p = whole(p); !a.isFree(p) {
			for _, taken := range list[:i] {
				a.mark(whole(taken), false)
			}
			return fmt.Errorf("UE address %s: %w", p, pfcp.ErrTaken)
		}
		a.mark(p, true)
	}
	return nil
}

func (a *Pools) isFree(p netip.Prefix) bool {
	r, from, end := a.covered(p)
	for i := from; i < end; i++ {
		if r.has(i) {
			return false
		}
	}
	_, taken := a.others[p]
	return !taken
}

func (a *Pools) mark(p netip.Prefix, taken bool) {
	r, from, end := a.covered(p)
	for i := from; i < end; i++ {
		if r.has(i) != taken {
			r.set(i, taken)
		}
	}
	switch {
	case r != nil:
	case taken:
		a.others[p] = struct{}{}
	default:
		delete(a.others, p)
	}
}

// Free gives addresses and prefixes back.
func (a *Pools) Free(list []netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range list {
		a.mark(whole(p), false)
	}
}

// Any says whether there are pools that Allocate can use.
func (a *Pools) Any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ranges) > 0
}

// Usage says how full a prefix of a pool is. Used and Size count UEs.
type Usage struct {
	NetworkInstance string       `json:"network_instance,omitempty"`
	Prefix          netip.Prefix `json:"prefix"`
	Used            int          `json:"used"`
	Size            int          `json:"size"`
}

// Usage lists the prefixes of the pools.
func (a *Pools) Usage() []Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Usage
	for _, r := range a.ranges {
		out = append(out, Usage{r.instance, r.prefix, r.used, int(r.end - r.first)})
	}
	return out
}

// Replace changes the pools. Taken addresses stay taken.
func (a *Pools) Replace(list []Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := New(list)
	for p := range a.others {
		next.mark(p, true)
	}
	for _, r := range a.ranges {
		for i := range r.size {
			if r.has(i) {
				next.mark(r.at(i), true)
			}
		}
	}
	a.ranges, a.others = next.ranges, next.others
}
