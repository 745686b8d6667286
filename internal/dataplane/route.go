package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

type routeKey struct {
	table  uint32
	prefix netip.Prefix
}

// PutRoute mirrors one of the kernel's routes. Of several next hops one is
// chosen by flow; a weight is a repetition. Without any, the data path asks
// the kernel for each packet.
func (d *DataPlane) PutRoute(table uint32, p netip.Prefix, via []AdjacencyKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var r abi.Route
	if len(via) > len(r.Adjacency) {
		return fmt.Errorf("route %s: %d next hops: at most %d", p, len(via), len(r.Adjacency))
	}
	k := routeKey{abi.KernelTable(table), p.Masked()}
	old, known := d.routes[k]
	if known && slices.Equal(old, via) {
		return nil
	}
	r.Count = uint32(len(via))
	for i, key := range via {
		index, err := d.acquire(key)
		if err != nil {
			return fmt.Errorf("route %s: %w", p, orRelease(d, err, via[:i]))
		}
		r.Adjacency[i] = index
	}
	if err := d.writeRoute(k, &r); err != nil {
		return fmt.Errorf("route %s: %w", p, orRelease(d, err, via))
	}
	d.routes[k] = slices.Clone(via)
	return d.release(old...)
}

// orRelease undoes acquisitions on the way out of a failure.
func orRelease(d *DataPlane, err error, keys []AdjacencyKey) error {
	if undo := d.release(keys...); undo != nil {
		return fmt.Errorf("%w (and %v)", err, undo)
	}
	return err
}

// writeRoute puts the entry, or deletes it where r is nil.
func (d *DataPlane) writeRoute(k routeKey, r *abi.Route) error {
	switch {
	case k.prefix.Addr().Is4() && r != nil:
		return d.route4.Put(abi.LPM4(k.table, k.prefix), *r)
	case k.prefix.Addr().Is4():
		return d.route4.Delete(abi.LPM4(k.table, k.prefix))
	case r != nil:
		return d.route6.Put(abi.LPM6(k.table, k.prefix), *r)
	default:
		return d.route6.Delete(abi.LPM6(k.table, k.prefix))
	}
}

// DeleteRoute removes what PutRoute put.
func (d *DataPlane) DeleteRoute(table uint32, p netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := routeKey{abi.KernelTable(table), p.Masked()}
	if err := d.writeRoute(k, nil); err != nil {
		return err
	}
	old := d.routes[k]
	delete(d.routes, k)
	return d.release(old...)
}
