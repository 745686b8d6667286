package adjacency

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Routes are the tables route4 and route6.
type Routes struct {
	mu   *sync.Mutex
	hops *Table
	*lpm.Table[abi.Route]
	have map[lpm.At][]Key
	// limited are the routes to one address whose path has an MTU of its own, and what the
	// kernel has in their place.
	limited map[lpm.At]mirrored
}

// mirrored is one of the kernel's routes, if it is there.
type mirrored struct {
	via   []Key
	there bool
}

// RouteTables are the tables of each family.
type RouteTables struct {
	Four *table.Hash[abi.Lpm4Key, abi.Route] `map:"route4" limit:"routes"`
	Six  *table.Hash[abi.Lpm6Key, abi.Route] `map:"route6" limit:"routes"`
}

// NewRoutes takes the tables, whose routes refer to hops. changed runs after each
// write.
func NewRoutes(mu *sync.Mutex, hops *Table, t RouteTables, trie *lpm.Trie, changed func()) *Routes {
	return &Routes{
		mu: mu, hops: hops, have: map[lpm.At][]Key{}, limited: map[lpm.At]mirrored{},
		Table: lpm.New(lpm.Families[abi.Route](t), trie, 0, leafOf, changed),
	}
}

// leafOf is a route as a leaf of the trie: its next hop, if it has one.
func leafOf(e abi.Route) uint32 {
	if e.Count == 1 {
		return e.Adjacency[0]
	}
	return uint32(abi.TrieLeafLEAF_ASK)
}

// Sweep deletes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (r *Routes) Sweep() error {
	err := r.Table.Sweep()
	r.Settle()
	return err
}

// kernelRoute is where the tables have a route of a routing table of the kernel.
func kernelRoute(table uint32, p netip.Prefix) lpm.At {
	return lpm.At{Table: abi.KernelTable(table), Prefix: p.Masked()}
}

// Put mirrors one of the kernel's routes. Of several next hops one is
// chosen by flow; a weight is a repetition. Without any, the data path asks
// the kernel for each packet.
func (r *Routes) Put(table uint32, p netip.Prefix, via []Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := kernelRoute(table, p)
	if _, is := r.limited[k]; is {
		r.limited[k] = mirrored{via: slices.Clone(via), there: true}
		return nil
	}
	return r.put(k, via)
}

func (r *Routes) put(k lpm.At, via []Key) error {
	var e abi.Route
	p := k.Prefix
	if len(via) > len(e.Adjacency) {
		return fmt.Errorf("route %s: %d next hops: at most %d", p, len(via), len(e.Adjacency))
	}
	old, known := r.have[k]
	if known && slices.Equal(old, via) {
		return nil
	}
	e.Count, e.Bits = uint16(len(via)), uint16(p.Bits())
	for i, key := range via {
		index, err := r.hops.Acquire(key)
		if err != nil {
			return fmt.Errorf("route %s: %w", p, r.hops.OrRelease(err, via[:i]))
		}
		e.Adjacency[i] = index
	}
	if err := r.Table.Put(k, e); err != nil {
		return fmt.Errorf("route %s: %w", p, r.hops.OrRelease(err, via))
	}
	r.have[k] = slices.Clone(via)
	return r.hops.Release(old...)
}

// Delete removes what Put put.
func (r *Routes) Delete(table uint32, p netip.Prefix) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := kernelRoute(table, p)
	if _, is := r.limited[k]; is {
		r.limited[k] = mirrored{}
		return nil
	}
	return r.delete(k)
}

func (r *Routes) delete(k lpm.At) error {
	if err := r.Table.Delete(k); err != nil {
		return err
	}
	old := r.have[k]
	delete(r.have, k)
	return r.hops.Release(old...)
}

// PathChanged follows Table.SetPathMTU for what the main table routes to an address: where its
// path has an MTU of its own it has a route of its own. The caller holds the lock.
func (r *Routes) PathChanged(to netip.Addr) error {
	k := kernelRoute(0, netip.PrefixFrom(to, to.BitLen()))
	was, is := r.limited[k]
	toward := r.hops.Toward(to)
	switch {
	case toward.MTU != 0:
		if !is {
			was.via, was.there = r.have[k]
		}
		former := r.longest(k)
		if err := r.put(k, []Key{toward}); err != nil {
			return err
		}
		r.limited[k] = was
		if len(former) == 1 {
			return r.hops.begin(toward, former[0])
		}
		return nil
	case !is:
		return nil
	}
	delete(r.limited, k)
	if was.there {
		return r.put(k, was.via)
	}
	return r.delete(k)
}

// longest are the next hops of the longest route to a prefix.
func (r *Routes) longest(k lpm.At) []Key {
	for bits := k.Prefix.Bits(); bits >= 0; bits-- {
		k.Prefix = netip.PrefixFrom(k.Prefix.Addr(), bits).Masked()
		if via, there := r.have[k]; there {
			return via
		}
	}
	return nil
}
