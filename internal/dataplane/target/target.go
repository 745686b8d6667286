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
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// ErrTaken says that a TEID, a UE address or a prefix belongs to something else.
var ErrTaken = errors.New("is taken")

// Table is the three tables.
type Table struct {
	by     *lpm.Table[abi.Target] // destination
	ByPort *table.Hash[abi.PortKey, abi.Target]
	ports  *port.Table
	own    map[uint32]int // targets in the table of an interface
	hooks  Hooks
}

// Hooks are what the rest of the data path learns of targets by destination.
type Hooks struct {
	Changed func() // after each write
	Steers  func() // before each write of one that isSteering
}

// Tables are the tables as packets see them.
type Tables struct {
	Four   *table.Hash[abi.Lpm4Key, abi.Target] `map:"target_by_dst4" limit:"routes"`
	Six    *table.Hash[abi.Lpm6Key, abi.Target] `map:"target_by_dst6" limit:"routes"`
	ByPort *table.Hash[abi.PortKey, abi.Target] `map:"target_by_port"`
}

// New takes the tables. None of hooks is nil.
func New(tables Tables, trie *lpm.Trie, ports *port.Table, hooks Hooks) *Table {
	t := &Table{ByPort: tables.ByPort, ports: ports, own: map[uint32]int{}, hooks: hooks}
	t.by = lpm.New(lpm.Families[abi.Target]{Four: tables.Four, Six: tables.Six}, trie, uint32(abi.TrieTableTRIE_TARGETS), leafOf, hooks.Changed)
	t.countOwn()
	ports.HasTable = func(ifindex int) bool { return t.own[uint32(ifindex)] > 0 }
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

// leafOf is a target as a leaf of the trie.
func leafOf(to abi.Target) uint32 {
	if to.Index >= 1<<abi.TrieLeafLEAF_KIND_SHIFT {
		return uint32(abi.TrieLeafLEAF_ASK)
	}
	return to.Kind<<abi.TrieLeafLEAF_KIND_SHIFT | to.Index
}

// Put has packets to a prefix go to a target.
func (t *Table) Put(p netip.Prefix, to abi.Target) error { return t.PutFrom(0, p, to) }

// PutFrom has untagged packets that arrive by an interface go to a target, before the
// targets of all; table is its ifindex. Or, of a tenant (abi.TenantTable), what its pods send
// and get. Table 0 is that of all.
func (t *Table) PutFrom(table uint32, p netip.Prefix, to abi.Target) error {
	at := At{Table: table, Prefix: p}
	_, had := t.by.Lookup(at)
	to.Bits = uint32(p.Bits())
	if table == 0 && isSteering(abi.TargetKind(to.Kind)) {
		t.hooks.Steers()
	}
	if err := t.by.Put(at, to); err != nil || had {
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
	at := At{Table: table, Prefix: p}
	_, had := t.by.Lookup(at)
	if err := t.by.Delete(at); err != nil || !had {
		return err
	}
	return t.count(table, -1)
}

// At is where packets to exactly this prefix go; the zero Target: nowhere.
func (t *Table) At(p netip.Prefix) abi.Target { return t.AtFrom(0, p) }

// AtFrom is where PutFrom has them go.
func (t *Table) AtFrom(table uint32, p netip.Prefix) abi.Target {
	to, _ := t.by.Lookup(At{Table: table, Prefix: p})
	to.Bits = 0
	return to
}

// countOwn counts the targets of each interface's own table.
func (t *Table) countOwn() {
	clear(t.own)
	for at := range t.by.All() {
		if abi.IsPortTable(at.Table) {
			t.own[at.Table]++
		}
	}
}

// At is where a target is: a destination in a table of steering, as PutFrom names it.
type At = lpm.At

// All are the targets by destination, those of an earlier daemon among them.
func (t *Table) All() iter.Seq2[At, abi.Target] { return t.by.All() }

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
	for _, to := range t.by.Stale() {
		drop(to)
	}
	ports := t.ByPort.Stale()
	for _, to := range ports {
		drop(to)
	}
	errs := []error{t.by.Sweep(), t.ByPort.Sweep()}
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
	t.by.Settle()
	t.ByPort.Settle()
}
