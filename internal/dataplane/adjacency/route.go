package adjacency

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Routes are the tables route4 and route6.
type Routes struct {
	mu   *sync.Mutex
	hops *Table
	RouteTables
	have map[routeKey][]Key
	// limited are the routes to one address whose path has an MTU of its own, and what the
	// kernel has in their place.
	limited map[routeKey]mirrored
	trie    *trie
	changed func()
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
	Trie TrieTables
}

// NewRoutes takes the tables, whose routes refer to hops. changed runs after each
// write.
func NewRoutes(mu *sync.Mutex, hops *Table, t RouteTables, changed func()) *Routes {
	t.Six.Changed = changed
	r := &Routes{mu: mu, hops: hops, RouteTables: t, have: map[routeKey][]Key{}, limited: map[routeKey]mirrored{}, changed: changed}
	r.trie = newTrie(t.Trie, hops.grace, t.Four)
	changed()
	return r
}

// Sweep deletes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (r *Routes) Sweep() error {
	err := r.Six.Sweep()
	for k := range r.Four.Stale() {
		err = errors.Join(err, r.delete4(k))
	}
	r.Four.Settle()
	r.Six.Settle()
	return err
}

type routeKey struct {
	table  uint32
	prefix netip.Prefix
}

// Put mirrors one of the kernel's routes. Of several next hops one is
// chosen by flow; a weight is a repetition. Without any, the data path asks
// the kernel for each packet.
func (r *Routes) Put(table uint32, p netip.Prefix, via []Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := routeKey{abi.KernelTable(table), p.Masked()}
	if _, is := r.limited[k]; is {
		r.limited[k] = mirrored{via: slices.Clone(via), there: true}
		return nil
	}
	return r.put(k, via)
}

func (r *Routes) put(k routeKey, via []Key) error {
	var e abi.Route
	p := k.prefix
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
	if err := r.write(k, &e); err != nil {
		return fmt.Errorf("route %s: %w", p, r.hops.OrRelease(err, via))
	}
	r.have[k] = slices.Clone(via)
	return r.hops.Release(old...)
}

// write puts the entry, or deletes it where e is nil.
func (r *Routes) write(k routeKey, e *abi.Route) error {
	switch {
	case k.prefix.Addr().Is4() && e != nil:
		return r.put4(abi.LPM4(k.table, k.prefix), *e)
	case k.prefix.Addr().Is4():
		return r.delete4(abi.LPM4(k.table, k.prefix))
	case e != nil:
		return r.Six.Put(abi.LPM6(k.table, k.prefix), *e)
	default:
		return r.Six.Delete(abi.LPM6(k.table, k.prefix))
	}
}

// Delete removes what Put put.
func (r *Routes) Delete(table uint32, p netip.Prefix) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := routeKey{abi.KernelTable(table), p.Masked()}
	if _, is := r.limited[k]; is {
		r.limited[k] = mirrored{}
		return nil
	}
	return r.delete(k)
}

func (r *Routes) delete(k routeKey) error {
	if err := r.write(k, nil); err != nil {
		return err
	}
	old := r.have[k]
	delete(r.have, k)
	return r.hops.Release(old...)
}

// PathChanged follows Table.SetPathMTU for what the main table routes to an address: where its
// path has an MTU of its own it has a route of its own. The caller holds the lock.
func (r *Routes) PathChanged(to netip.Addr) error {
	k := routeKey{abi.KernelTable(0), netip.PrefixFrom(to, to.BitLen())}
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
func (r *Routes) longest(k routeKey) []Key {
	for bits := k.prefix.Bits(); bits >= 0; bits-- {
		k.prefix = netip.PrefixFrom(k.prefix.Addr(), bits).Masked()
		if via, there := r.have[k]; there {
			return via
		}
	}
	return nil
}

// put4 writes an IPv4 route, which route4 has before the trie says to look there.
func (r *Routes) put4(k abi.Lpm4Key, e abi.Route) error {
	old, known := r.Four.Lookup(k)
	if err := r.Four.Put(k, e); err != nil || known && old == e {
		return err
	}
	r.trie.put(k, e, !known)
	r.changed()
	return nil
}

func (r *Routes) delete4(k abi.Lpm4Key) error {
	if _, known := r.Four.Lookup(k); !known {
		return nil
	}
	if err := r.Four.Delete(k); err != nil {
		return err
	}
	r.trie.delete(k, r.Four)
	r.changed()
	return nil
}
