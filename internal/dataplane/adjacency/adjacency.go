package adjacency

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Key names a next hop that tables refer to and that has to be
// resolved: NextHop alone is looked up in Table (0 is main), Interface alone
// means that the packet's own destination is on that link, and both together
// are a neighbour on a link.
type Key struct {
	NextHop   netip.Addr
	Interface string
	Table     uint32
	// MTU is that of a path that leads on from there, where it is known to be lower than the
	// link's (layer 3, octets); 0: it is not. Each has an adjacency of its own.
	MTU int
}

// IsZero says that the key names nothing.
func (k Key) IsZero() bool { return !k.NextHop.IsValid() && k.Interface == "" }

// name is the key as name_by_index has it. Interface names have neither spaces nor slashes.
func (k Key) name() string {
	next, dev := "-", "-"
	if k.NextHop.IsValid() {
		next = k.NextHop.String()
	}
	if k.Interface != "" {
		dev = k.Interface
	}
	if k.MTU != 0 {
		dev += "/" + strconv.Itoa(k.MTU)
	}
	return fmt.Sprintf("%s %d %s", next, k.Table, dev)
}

func parseKey(name string) (Key, error) {
	f := strings.Split(name, " ")
	if len(f) != 3 {
		return Key{}, fmt.Errorf("adjacency %q: want three fields", name)
	}
	table, err := strconv.ParseUint(f[1], 10, 32)
	k := Key{Table: uint32(table)}
	if f[0] != "-" {
		var errAddr error
		k.NextHop, errAddr = netip.ParseAddr(f[0])
		err = errors.Join(err, errAddr)
	}
	dev, mtu, limited := strings.Cut(f[2], "/")
	if limited {
		var errMTU error
		k.MTU, errMTU = strconv.Atoi(mtu)
		err = errors.Join(err, errMTU)
	}
	if dev != "-" {
		k.Interface = dev
	}
	return k, err
}

// VLAN is a tag to push.
type VLAN struct{ TPID, ID uint16 }

// NextHop is where an adjacency leads: the device that frames leave by (of a
// VLAN its parent), and what is before the packet.
type NextHop struct {
	Ifindex  int
	MTU      int // of layer 3
	Dst, Src net.HardwareAddr
	VLANs    []VLAN // outermost first, at most two
	Pass     bool   // XDP cannot send there; tcx can if Dst is set
}

// Table is the table adjacency, and who refers to which of its entries.
type Table struct {
	mu      *sync.Mutex
	hops    *ebpf.Map
	parts   *Parts
	names   *table.Names
	grace   *table.Grace
	indexes *table.Indexes
	entries map[Key]*adjacency
	changed map[Key]bool // since Changes; true: it is a new one
	pathMTU map[Path]int // of paths that take less than their first link
}

// Open takes the tables, and from names what an earlier daemon put. mu is the data
// path's lock.
func Open(mu *sync.Mutex, hops *ebpf.Map, parts *Parts, names *table.Names, grace *table.Grace) (*Table, error) {
	t := &Table{
		mu: mu, hops: hops, parts: parts, names: names, grace: grace, entries: map[Key]*adjacency{}, changed: map[Key]bool{},
		pathMTU: map[Path]int{},
		indexes: table.NewIndexes(grace, abi.MapAdjacency, "adjacencies", 1, hops.MaxEntries()),
	}
	taken := map[uint32]bool{}
	var errs []error
	for index, name := range names.All(table.NameAdjacency) {
		k, err := parseKey(name)
		a := &adjacency{index: index}
		if err == nil {
			err = hops.Lookup(index, &a.value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recover adjacency %d: %w", index, err))
			continue
		}
		taken[index] = true
		t.entries[k] = a
	}
	t.indexes.Restore(taken)
	return t, errors.Join(errs...)
}

// Sweep forgets what nothing refers to. The caller holds the lock.
func (t *Table) Sweep() error {
	var errs []error
	for k, a := range t.entries {
		if a.refs == 0 {
			errs = append(errs, t.forget(k))
		}
	}
	return errors.Join(errs...)
}

// Usage says how full the table is.
func (t *Table) Usage() table.Usage { return t.indexes.Usage() }

// IndexOf is the index of a key that something refers to; 0: none.
func (t *Table) IndexOf(k Key) uint32 {
	if a := t.entries[k]; a != nil {
		return a.index
	}
	return 0
}

// KeyAt is the key at an index; the zero Key: none.
func (t *Table) KeyAt(index uint32) Key {
	return table.KeyOf(t.entries, func(a *adjacency) bool { return index != 0 && a.index == index })
}

type adjacency struct {
	index uint32
	refs  int
	value abi.Adjacency
	// members are the next hops that its flows share.
	members []Key
	// flipped is the epoch in which the other half became idle.
	flipped uint64
}

// Acquire refers to an adjacency and returns its index; 0 for the zero key.
func (t *Table) Acquire(k Key) (uint32, error) {
	if k.IsZero() {
		return 0, nil
	}
	if a := t.entries[k]; a != nil {
		if a.refs++; a.refs == 1 {
			t.changed[k] = true
		}
		return a.index, nil
	}
	index, err := t.indexes.Alloc()
	if err != nil {
		return 0, err
	}
	a := &adjacency{index: index, refs: 1}
	if err := t.hops.Put(index, &a.value); err != nil {
		return 0, fmt.Errorf("write table adjacency: %w", err)
	}
	t.parts.Put(index, &abi.SharedHop{})
	if err := t.names.Put(table.NameAdjacency, index, k.name()); err != nil {
		return 0, err
	}
	t.entries[k] = a
	t.changed[k] = true
	return index, nil
}

// Use is what one write refers to, and then no longer refers to.
type Use struct{ Acquire, Release []Key }

// Rehearse says whether the table has room for uses that follow each other (*table.FullError). It
// changes nothing. at is the first use that has none.
func (t *Table) Rehearse(uses []Use) (at int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	refs := map[Key]int{}
	room := t.indexes.Room()
	count := func(k Key, by int) (was, is int) {
		n, ok := refs[k]
		if a := t.entries[k]; !ok && a != nil {
			n = a.refs
		}
		refs[k] = n + by
		return n, n + by
	}
	for i, u := range uses {
		for _, k := range u.Acquire {
			if was, _ := count(k, 1); !k.IsZero() && was <= 0 {
				room--
			}
		}
		if room < 0 {
			return i, t.indexes.Full()
		}
		for _, k := range u.Release {
			if was, is := count(k, -1); !k.IsZero() && was > 0 && is == 0 {
				room++
			}
		}
	}
	return 0, nil
}

// Release gives up one reference to each key; a next hop without references is
// forgotten.
func (t *Table) Release(keys ...Key) error {
	var errs []error
	for _, k := range keys {
		a := t.entries[k]
		if a == nil {
			continue
		}
		if a.refs--; a.refs <= 0 {
			errs = append(errs, t.forget(k))
		}
	}
	return errors.Join(errs...)
}

func (t *Table) forget(k Key) error {
	a := t.entries[k]
	delete(t.entries, k)
	t.changed[k] = false
	t.indexes.Retire(a.index)
	return errors.Join(t.names.Delete(table.NameAdjacency, a.index), t.Release(a.members...))
}

// OrRelease releases keys after a failure, and returns err with what failed then.
func (t *Table) OrRelease(err error, keys []Key) error {
	if undo := t.Release(keys...); undo != nil {
		return fmt.Errorf("%w (and %w)", err, undo)
	}
	return err
}

// Keys lists the next hops that tables refer to.
func (t *Table) Keys() []Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Key, 0, len(t.entries))
	for k, a := range t.entries {
		if a.refs > 0 {
			out = append(out, k)
		}
	}
	return out
}

// Changes lists what differs of Keys since it was asked last: those
// that are new, which lead nowhere until SetNextHop, and those that are gone.
func (t *Table) Changes() (fresh, gone []Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, isNew := range t.changed {
		if isNew {
			fresh = append(fresh, k)
		} else {
			gone = append(gone, k)
		}
	}
	clear(t.changed)
	return fresh, gone
}

// SetNextHop says where an adjacency leads; nil: it is not ready. A key that
// nothing refers to any more is ignored.
func (t *Table) SetNextHop(k Key, n *NextHop) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.entries[k]
	if a == nil {
		return nil
	}
	hop, err := nextHopEntry(n)
	if err != nil {
		return fmt.Errorf("next hop %s: %w", k.name(), err)
	}
	before := a.members
	a.members = nil
	return errors.Join(t.point(a, hop), t.Release(before...))
}

// point has an adjacency lead to a next hop.
func (t *Table) point(a *adjacency, hop abi.NextHop) error {
	if a.value.Half[a.value.Current&1] == hop {
		return nil
	}
	// A packet may still read the half that was true before the last flip.
	if a.flipped == t.grace.Epoch+1 {
		t.grace.Wait()
	}
	next := a.value
	next.Half[^next.Current&1] = hop
	m := t.hops
	if err := m.Put(a.index, &next); err != nil {
		return fmt.Errorf("write table adjacency: %w", err)
	}
	next.Current ^= 1
	if err := m.Put(a.index, &next); err != nil {
		return fmt.Errorf("write table adjacency: %w", err)
	}
	a.value, a.flipped = next, t.grace.Epoch+1
	return nil
}

func nextHopEntry(n *NextHop) (abi.NextHop, error) {
	if n == nil {
		return abi.NextHop{}, nil
	}
	e := abi.NextHop{
		Ifindex: uint32(n.Ifindex), Mtu: uint16(min(n.MTU, 65535)),
		Flags: uint8(abi.NextHopFlagsNEXT_HOP_READY), Tags: uint8(len(n.VLANs)),
	}
	switch known := len(n.Dst) == 6 && len(n.Src) == 6; {
	case n.Pass && known:
		e.Flags |= uint8(abi.NextHopFlagsNEXT_HOP_PASS | abi.NextHopFlagsNEXT_HOP_KNOWN)
	case n.Pass:
		e.Flags |= uint8(abi.NextHopFlagsNEXT_HOP_PASS)
	case !known:
		return e, fmt.Errorf("addresses %s and %s: want 6 bytes each", n.Dst, n.Src)
	}
	if len(n.VLANs) > len(e.Tpid) {
		return e, fmt.Errorf("%d VLAN tags: at most %d", len(n.VLANs), len(e.Tpid))
	}
	copy(e.Dst[:], n.Dst)
	copy(e.Src[:], n.Src)
	for i, v := range n.VLANs {
		e.Tpid[i], e.Vlan[i] = v.TPID, v.ID
	}
	return e, nil
}
