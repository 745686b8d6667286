package adjacency

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Routes are the tables route4 and route6.
type Routes struct {
	mu   *sync.Mutex
	hops *Table
	four *table.Hash[abi.Lpm4Key, abi.Route]
	six  *table.Hash[abi.Lpm6Key, abi.Route]
	have map[routeKey][]Key
}

// OpenRoutes takes the two maps, whose routes refer to hops. changed runs after
// each write.
func OpenRoutes(mu *sync.Mutex, hops *Table, four, six *ebpf.Map, changed func()) (*Routes, error) {
	r := &Routes{mu: mu, hops: hops, have: map[routeKey][]Key{}}
	var err4, err6 error
	r.four, err4 = table.OpenHash[abi.Lpm4Key, abi.Route](abi.MapRoute4, "routes", four)
	r.six, err6 = table.OpenHash[abi.Lpm6Key, abi.Route](abi.MapRoute6, "routes", six)
	if err := errors.Join(err4, err6); err != nil {
		return nil, err
	}
	r.four.Changed, r.six.Changed = changed, changed
	return r, nil
}

// Sweep deletes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (r *Routes) Sweep() error {
	err := errors.Join(r.four.Sweep(), r.six.Sweep())
	r.four.Settle()
	r.six.Settle()
	return err
}

// Usage says how full the tables of each family are.
func (r *Routes) Usage() (four, six table.Usage) { return r.four.Usage(), r.six.Usage() }

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
	var e abi.Route
	if len(via) > len(e.Adjacency) {
		return fmt.Errorf("route %s: %d next hops: at most %d", p, len(via), len(e.Adjacency))
	}
	k := routeKey{abi.KernelTable(table), p.Masked()}
	old, known := r.have[k]
	if known && slices.Equal(old, via) {
		return nil
	}
	e.Count = uint32(len(via))
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
		return r.four.Put(abi.LPM4(k.table, k.prefix), *e)
	case k.prefix.Addr().Is4():
		return r.four.Delete(abi.LPM4(k.table, k.prefix))
	case e != nil:
		return r.six.Put(abi.LPM6(k.table, k.prefix), *e)
	default:
		return r.six.Delete(abi.LPM6(k.table, k.prefix))
	}
}

// Delete removes what Put put.
func (r *Routes) Delete(table uint32, p netip.Prefix) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := routeKey{abi.KernelTable(table), p.Masked()}
	if err := r.write(k, nil); err != nil {
		return err
	}
	old := r.have[k]
	delete(r.have, k)
	return r.hops.Release(old...)
}
