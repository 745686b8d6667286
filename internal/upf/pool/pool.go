package upf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
	"sync"

	"github.com/culvert-net/culvert/internal/pfcp"
)

// Pool is where UE addresses of a network instance come from.
type Pool struct {
	NetworkInstance string // empty: of any
	Prefixes        []netip.Prefix
}

// addresses are the UE addresses that sessions have: of the pools, and others.
type addresses struct {
	mu     sync.Mutex
	ranges []*addressRange
	others map[netip.Prefix]struct{}
}

// addressRange is one prefix of a pool, with a bit for each UE: an IPv4
// address or an IPv6 /64.
type addressRange struct {
	instance string
	prefix   netip.Prefix
	first    uint32 // that is handed out: not the address of the network
	end      uint32 // and not its broadcast address
	size     uint32
	next     uint32 // an address that was given back is not handed out at once
	used     int
	taken    []uint64
}

func newAddresses(list []Pool) *addresses {
	a := &addresses{others: map[netip.Prefix]struct{}{}}
	for _, p := range list {
		for _, prefix := range p.Prefixes {
			a.ranges = append(a.ranges, newRange(p.NetworkInstance, prefix.Masked()))
		}
	}
	return a
}

func newRange(instance string, prefix netip.Prefix) *addressRange {
	r := &addressRange{instance: instance, prefix: prefix}
	r.size = 1 << (r.unit() - prefix.Bits())
	r.end = r.size
	if prefix.Addr().Is4() && r.size > 2 {
		r.first, r.end = 1, r.size-1
	}
	r.next = r.first
	r.taken = make([]uint64, (r.size+63)/64)
	return r
}

// unit is the length of what a UE has.
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

// take finds a free one, from where the last was found on.
func (r *addressRange) take() (uint32, bool) {
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

// at is the address or prefix of an index.
func (r *addressRange) at(i uint32) netip.Prefix {
	if r.unit() == 32 {
		a := r.prefix.Addr().As4()
		binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|i)
		return netip.PrefixFrom(netip.AddrFrom4(a), 32)
	}
	a := r.prefix.Addr().As16()
	binary.BigEndian.PutUint64(a[:8], binary.BigEndian.Uint64(a[:8])|uint64(i))
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// indexes of what a prefix covers; false: it is not in the range.
func (r *addressRange) indexes(p netip.Prefix) (from, end uint32, ok bool) {
	if !r.prefix.Contains(p.Addr()) || p.Bits() < r.prefix.Bits() {
		return 0, 0, false
	}
	n := uint32(1) << (r.unit() - p.Bits())
	if r.unit() == 32 {
		a := p.Addr().As4()
		from = binary.BigEndian.Uint32(a[:])
	} else {
		a := p.Addr().As16()
		from = uint32(binary.BigEndian.Uint64(a[:8]))
	}
	from &= r.size - 1
	return from, from + n, true
}

// ofUE is what a UE's address means to the data path: of IPv6 the /64.
func ofUE(p netip.Prefix) netip.Prefix {
	if p.Addr().Is6() && p.Bits() > 64 {
		p = netip.PrefixFrom(p.Addr(), 64)
	}
	return p.Masked()
}

// allocate takes addresses out of the pools of an instance.
func (a *addresses) allocate(instance string, v4, v6 bool) ([]netip.Prefix, error) {
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
		p, ok := a.one(instance, family.unit)
		if !ok {
			for _, taken := range out {
				a.mark(taken, false)
			}
			return nil, fmt.Errorf("UE addresses: %w: no %s pool of network instance %q has a free one", pfcp.ErrNoResources, family.name, instance)
		}
		out = append(out, p)
	}
	return out, nil
}

// one prefers pools that name the instance to those of any.
func (a *addresses) one(instance string, unit int) (netip.Prefix, bool) {
	for _, named := range []bool{true, false} {
		for _, r := range a.ranges {
			if r.unit() != unit || named != (r.instance != "") || named && !strings.EqualFold(r.instance, instance) {
				continue
			}
			if i, ok := r.take(); ok {
				return r.at(i), true
			}
		}
	}
	return netip.Prefix{}, false
}

// take takes given ones, all or none.
func (a *addresses) take(list []netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, p := range list {
		if p = ofUE(p); !a.free(p) {
			for _, taken := range list[:i] {
				a.mark(ofUE(taken), false)
			}
			return fmt.Errorf("UE address %s: %w", p, pfcp.ErrTaken)
		}
		a.mark(p, true)
	}
	return nil
}

func (a *addresses) free(p netip.Prefix) bool {
	for _, r := range a.ranges {
		if from, end, ok := r.indexes(p); ok {
			for i := from; i < end; i++ {
				if r.has(i) {
					return false
				}
			}
			return true
		}
	}
	_, taken := a.others[p]
	return !taken
}

func (a *addresses) mark(p netip.Prefix, taken bool) {
	for _, r := range a.ranges {
		if from, end, ok := r.indexes(p); ok {
			for i := from; i < end; i++ {
				if r.has(i) != taken {
					r.set(i, taken)
				}
			}
			return
		}
	}
	if taken {
		a.others[p] = struct{}{}
	} else {
		delete(a.others, p)
	}
}

func (a *addresses) give(list []netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range list {
		a.mark(ofUE(p), false)
	}
}

// any says that there are pools to take addresses out of.
func (a *addresses) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ranges) > 0
}

// PoolUsage is how full a prefix of a pool is.
type PoolUsage struct {
	NetworkInstance string
	Prefix          netip.Prefix
	Used, Size      int
}

func (a *addresses) usage() []PoolUsage {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []PoolUsage
	for _, r := range a.ranges {
		out = append(out, PoolUsage{r.instance, r.prefix, r.used, int(r.end - r.first)})
	}
	return out
}

// replace makes other pools; what is taken stays so.
func (a *addresses) replace(list []Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := newAddresses(list)
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
