// Package target owns the tables that say where packets go that no SID and no TEID
// leads anywhere: target_by_dst4 and target_by_dst6 by destination, target_by_port
// by interface and VLANs. Steering, sessions, links and pods put their own targets
// into them. Callers hold the data path's lock.
package target

import (
	"errors"
	"iter"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// ErrTaken says that a TEID, a UE address or a prefix belongs to something else.
var ErrTaken = errors.New("is taken")

// Table is the three tables.
type Table struct {
	Tables
	ports *port.Table
	own   map[uint32]int // targets in the table of an interface
	hooks Hooks
}

// Hooks are what the rest of the data path learns of targets by destination.
type Hooks struct {
	Changed func()             // after each write
	Steers  func()             // before each write of one that isSteering
	NearV4  func(netip.Prefix) // before each write of one of NearV4
}

// Tables are the tables as packets see them.
type Tables struct {
	Four   *table.Hash[abi.Lpm4Key, abi.Target] `map:"target_by_dst4" limit:"routes"`
	Six    *table.Hash[abi.Lpm6Key, abi.Target] `map:"target_by_dst6" limit:"routes"`
	ByPort *table.Hash[abi.PortKey, abi.Target] `map:"target_by_port"`
}

// New takes the tables. None of hooks is nil.
func New(tables Tables, ports *port.Table, hooks Hooks) *Table {
	t := &Table{Tables: tables, ports: ports, own: map[uint32]int{}, hooks: hooks}
	for p := range t.NearV4() {
		hooks.NearV4(p)
	}
	t.countOwn()
	ports.HasTable = func(ifindex int) bool { return t.own[uint32(ifindex)] > 0 }
	t.Four.Changed, t.Six.Changed = hooks.Changed, hooks.Changed
	ports.Steered = func(ifindex int) bool {
		for k := range t.ByPort.All() {
			if k.Ifindex == uint32(ifindex) {
				return true
			}
		}
		return false
	}
	return t
}

// Put has packets to a prefix go to a target.
func (t *Table) Put(p netip.Prefix, to abi.Target) error { return t.PutFrom(0, p, to) }

// PutFrom has untagged packets that arrive by an interface go to a target, before the
// targets of all; table is its ifindex. Or, of a tenant (abi.TenantTable), what its pods send
// and get. Table 0 is that of all.
func (t *Table) PutFrom(table uint32, p netip.Prefix, to abi.Target) error {
	_, had := t.lookup(table, p)
	to.Bits = uint32(p.Bits())
	if table == 0 && t.hooks.Steers != nil && isSteering(abi.TargetKind(to.Kind)) {
		t.hooks.Steers()
	}
	if t.hooks.NearV4 != nil && isNearV4(At{table, p}, to) {
		t.hooks.NearV4(p)
	}
	var err error
	if p.Addr().Is4() {
		err = t.Four.Put(abi.LPM4(table, p), to)
	} else {
		err = t.Six.Put(abi.LPM6(table, p), to)
	}
	if err != nil || had {
		return err
	}
	return t.count(table, 1)
}

// isSteering says whether packets from a tunnel of this node may be meant (bpf/again.h).
func isSteering(kind abi.TargetKind) bool {
	switch kind {
	case abi.TargetKindTARGET_POLICY, abi.TargetKindTARGET_TUNNEL, abi.TargetKindTARGET_GTP4D, abi.TargetKindTARGET_PDR, abi.TargetKindTARGET_CLASSES:
		return true
	default:
		return false
	}
}

// count follows the number of targets of a table, which makes a port use it.
func (t *Table) count(table uint32, more int) error {
	if !abi.IsPortTable(table) {
		return nil
	}
	t.own[table] += more
	return t.ports.MarkSteered(int(table))
}

// Delete ends what Put began.
func (t *Table) Delete(p netip.Prefix) error { return t.DeleteFrom(0, p) }

// DeleteFrom ends what PutFrom began.
func (t *Table) DeleteFrom(table uint32, p netip.Prefix) error {
	_, had := t.lookup(table, p)
	var err error
	if p.Addr().Is4() {
		err = t.Four.Delete(abi.LPM4(table, p))
	} else {
		err = t.Six.Delete(abi.LPM6(table, p))
	}
	if err != nil || !had {
		return err
	}
	return t.count(table, -1)
}

// At is where packets to exactly this prefix go; the zero Target: nowhere.
func (t *Table) At(p netip.Prefix) abi.Target { return t.AtFrom(0, p) }

// AtFrom is where PutFrom has them go.
func (t *Table) AtFrom(table uint32, p netip.Prefix) abi.Target {
	to, _ := t.lookup(table, p)
	to.Bits = 0
	return to
}

func (t *Table) lookup(table uint32, p netip.Prefix) (abi.Target, bool) {
	if p.Addr().Is4() {
		return t.Four.Lookup(abi.LPM4(table, p))
	}
	return t.Six.Lookup(abi.LPM6(table, p))
}

// countOwn counts the targets of each interface's own table.
func (t *Table) countOwn() {
	clear(t.own)
	count := func(table uint32) {
		if abi.IsPortTable(table) {
			t.own[table]++
		}
	}
	for k := range t.Four.All() {
		count(k.Table)
	}
	for k := range t.Six.All() {
		count(k.Table)
	}
}

// At is where a target is: a destination in a table of steering, as PutFrom names it.
type At struct {
	Table  uint32
	Prefix netip.Prefix
}

// All are the targets by destination, those of an earlier daemon among them.
func (t *Table) All() iter.Seq2[At, abi.Target] {
	return func(yield func(At, abi.Target) bool) {
		for k, to := range t.Four.All() {
			if !yield(At{k.Table, netip.PrefixFrom(abi.FromBE32(k.Addr), int(k.Prefixlen)-32)}, to) {
				return
			}
		}
		for k, to := range t.Six.All() {
			if !yield(At{k.Table, netip.PrefixFrom(netip.AddrFrom16(k.Addr.B), int(k.Prefixlen)-32)}, to) {
				return
			}
		}
	}
}

// NearV4 are the IPv4 prefixes in the table of all that decide whether a UE's packet may go there:
// this node's own, and those of UEs.
func (t *Table) NearV4() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for at, to := range t.All() {
			if isNearV4(at, to) && !yield(at.Prefix) {
				return
			}
		}
	}
}

func isNearV4(at At, to abi.Target) bool {
	kind := abi.TargetKind(to.Kind)
	return at.Table == 0 && at.Prefix.Addr().Is4() && (kind == abi.TargetKindTARGET_PASS || kind == abi.TargetKindTARGET_PDR)
}

// PutPort has frames of a port go to a target.
func (t *Table) PutPort(k abi.PortKey, to abi.Target) error {
	if err := t.ByPort.Put(k, to); err != nil {
		return err
	}
	return t.ports.MarkSteered(int(k.Ifindex))
}

// DeletePort ends that.
func (t *Table) DeletePort(k abi.PortKey) error {
	if err := t.ByPort.Delete(k); err != nil {
		return err
	}
	return t.ports.MarkSteered(int(k.Ifindex))
}

// Sweep deletes what an earlier daemon put and this one has not, after drop was
// called with it.
func (t *Table) Sweep(drop func(abi.Target)) error {
	for _, to := range t.Four.Stale() {
		drop(to)
	}
	for _, to := range t.Six.Stale() {
		drop(to)
	}
	ports := t.ByPort.Stale()
	for _, to := range ports {
		drop(to)
	}
	errs := []error{t.Four.Sweep(), t.Six.Sweep(), t.ByPort.Sweep()}
	changed := map[uint32]bool{}
	for k := range ports {
		changed[k.Ifindex] = true
	}
	for ifindex := range t.own {
		changed[ifindex] = true
	}
	t.countOwn()
	for ifindex := range changed {
		errs = append(errs, t.ports.MarkSteered(int(ifindex)))
	}
	return errors.Join(errs...)
}

// Settle ends the time in which targets may be an earlier daemon's.
func (t *Table) Settle() {
	t.Four.Settle()
	t.Six.Settle()
	t.ByPort.Settle()
}
