// Package target owns the tables that say where packets go that no SID and no TEID
// leads anywhere: target_by_dst4 and target_by_dst6 by destination, target_by_port
// by interface and VLANs. Steering, sessions, links and pods put their own targets
// into them. Callers hold the data path's lock.
package target

import (
	"errors"
	"iter"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// ErrTaken says that a TEID, a UE address or a prefix belongs to something else.
var ErrTaken = errors.New("is taken")

// Table is the three tables.
type Table struct {
	four   *table.Hash[abi.Lpm4Key, abi.Target]
	six    *table.Hash[abi.Lpm6Key, abi.Target]
	byPort *table.Hash[abi.PortKey, abi.Target]
	ports  *port.Table
}

// Open takes the maps. changed runs after each write of a target by destination.
func Open(four, six, byPort *ebpf.Map, ports *port.Table, changed func()) (*Table, error) {
	t := &Table{ports: ports}
	var err4, err6, errPort error
	t.four, err4 = table.OpenHash[abi.Lpm4Key, abi.Target](abi.MapTargetByDst4, "routes", four)
	t.six, err6 = table.OpenHash[abi.Lpm6Key, abi.Target](abi.MapTargetByDst6, "routes", six)
	t.byPort, errPort = table.OpenHash[abi.PortKey, abi.Target](abi.MapTargetByPort, "", byPort)
	if err := errors.Join(err4, err6, errPort); err != nil {
		return nil, err
	}
	t.four.Changed, t.six.Changed = changed, changed
	ports.Steered = func(ifindex int) bool {
		for k := range t.byPort.All() {
			if k.Ifindex == uint32(ifindex) {
				return true
			}
		}
		return false
	}
	return t, nil
}

// Put has packets to a prefix go to a target.
func (t *Table) Put(p netip.Prefix, to abi.Target) error {
	if p.Addr().Is4() {
		return t.four.Put(abi.LPM4(0, p), to)
	}
	return t.six.Put(abi.LPM6(0, p), to)
}

// Delete ends that.
func (t *Table) Delete(p netip.Prefix) error {
	if p.Addr().Is4() {
		return t.four.Delete(abi.LPM4(0, p))
	}
	return t.six.Delete(abi.LPM6(0, p))
}

// At is where packets to exactly this prefix go; the zero Target: nowhere.
func (t *Table) At(p netip.Prefix) abi.Target {
	if p.Addr().Is4() {
		return t.four.Get(abi.LPM4(0, p))
	}
	return t.six.Get(abi.LPM6(0, p))
}

// All are the targets by destination, those of an earlier daemon among them.
func (t *Table) All() iter.Seq2[netip.Prefix, abi.Target] {
	return func(yield func(netip.Prefix, abi.Target) bool) {
		for k, to := range t.four.All() {
			if !yield(netip.PrefixFrom(abi.FromBE32(k.Addr), int(k.Prefixlen)-32), to) {
				return
			}
		}
		for k, to := range t.six.All() {
			if !yield(netip.PrefixFrom(netip.AddrFrom16(k.Addr.B), int(k.Prefixlen)-32), to) {
				return
			}
		}
	}
}

// PutPort has frames of a port go to a target.
func (t *Table) PutPort(k abi.PortKey, to abi.Target) error {
	if err := t.byPort.Put(k, to); err != nil {
		return err
	}
	return t.ports.MarkSteered(int(k.Ifindex))
}

// DeletePort ends that.
func (t *Table) DeletePort(k abi.PortKey) error {
	if err := t.byPort.Delete(k); err != nil {
		return err
	}
	return t.ports.MarkSteered(int(k.Ifindex))
}

// Sweep deletes what an earlier daemon put and this one has not, after drop was
// called with it.
func (t *Table) Sweep(drop func(abi.Target)) error {
	for _, to := range t.four.Stale() {
		drop(to)
	}
	ports := t.byPort.Stale()
	errs := []error{t.four.Sweep(), t.six.Sweep(), t.byPort.Sweep()}
	for k := range ports {
		errs = append(errs, t.ports.MarkSteered(int(k.Ifindex)))
	}
	return errors.Join(errs...)
}

// Settle ends the time in which targets may be an earlier daemon's.
func (t *Table) Settle() {
	t.four.Settle()
	t.six.Settle()
	t.byPort.Settle()
}

// Usage says how full the three tables are.
func (t *Table) Usage() (four, six, byPort table.Usage) {
	return t.four.Usage(), t.six.Usage(), t.byPort.Usage()
}
