package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// AdjacencyKey names a next hop that tables refer to and that has to be
// resolved: NextHop alone is looked up in Table (0 is main), Interface alone
// means that the packet's own destination is on that link, and both together
// are a neighbour on a link.
type AdjacencyKey struct {
	NextHop   netip.Addr
	Interface string
	Table     uint32
}

// IsZero says that the key names nothing.
func (k AdjacencyKey) IsZero() bool { return !k.NextHop.IsValid() && k.Interface == "" }

// name is the key as name_by_index has it. Interface names have no spaces.
func (k AdjacencyKey) name() string {
	next, dev := "-", "-"
	if k.NextHop.IsValid() {
		next = k.NextHop.String()
	}
	if k.Interface != "" {
		dev = k.Interface
	}
	return fmt.Sprintf("%s %d %s", next, k.Table, dev)
}

func parseAdjacencyKey(name string) (AdjacencyKey, error) {
	f := strings.Split(name, " ")
	if len(f) != 3 {
		return AdjacencyKey{}, fmt.Errorf("adjacency %q: want three fields", name)
	}
	table, err := strconv.ParseUint(f[1], 10, 32)
	k := AdjacencyKey{Table: uint32(table)}
	if f[0] != "-" {
		var errAddr error
		k.NextHop, errAddr = netip.ParseAddr(f[0])
		err = errors.Join(err, errAddr)
	}
	if f[2] != "-" {
		k.Interface = f[2]
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

type adjacency struct {
	index uint32
	refs  int
	value abi.Adjacency
	// flipped is the epoch in which the other half became idle.
	flipped uint64
}

// acquire refers to an adjacency and returns its index; 0 for the zero key.
func (d *DataPlane) acquire(k AdjacencyKey) (uint32, error) {
	if k.IsZero() {
		return 0, nil
	}
	if a := d.adjacencies[k]; a != nil {
		if a.refs++; a.refs == 1 {
			d.noteAdjacency(k, true)
		}
		return a.index, nil
	}
	index, err := d.adjacencyIndex.Alloc()
	if err != nil {
		return 0, err
	}
	a := &adjacency{index: index, refs: 1}
	if err := d.maps[abi.MapAdjacency].Put(index, &a.value); err != nil {
		return 0, fmt.Errorf("write table adjacency: %w", err)
	}
	if err := d.names.Put(table.NameAdjacency, index, k.name()); err != nil {
		return 0, err
	}
	d.adjacencies[k] = a
	d.noteAdjacency(k, true)
	return index, nil
}

func (d *DataPlane) noteAdjacency(k AdjacencyKey, isNew bool) {
	if d.changedAdj == nil {
		d.changedAdj = map[AdjacencyKey]bool{}
	}
	d.changedAdj[k] = isNew
}

func (d *DataPlane) release(keys ...AdjacencyKey) error {
	var errs []error
	for _, k := range keys {
		a := d.adjacencies[k]
		if a == nil {
			continue
		}
		if a.refs--; a.refs <= 0 {
			errs = append(errs, d.forgetAdjacency(k))
		}
	}
	return errors.Join(errs...)
}

func (d *DataPlane) forgetAdjacency(k AdjacencyKey) error {
	a := d.adjacencies[k]
	delete(d.adjacencies, k)
	d.noteAdjacency(k, false)
	d.adjacencyIndex.Retire(a.index)
	return d.names.Delete(table.NameAdjacency, a.index)
}

// AdjacencyKeys lists the next hops that tables refer to.
func (d *DataPlane) AdjacencyKeys() []AdjacencyKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]AdjacencyKey, 0, len(d.adjacencies))
	for k, a := range d.adjacencies {
		if a.refs > 0 {
			out = append(out, k)
		}
	}
	return out
}

// AdjacencyChanges lists what differs of AdjacencyKeys since it was asked last: those
// that are new, which lead nowhere until SetNextHop, and those that are gone.
func (d *DataPlane) AdjacencyChanges() (fresh, gone []AdjacencyKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, isNew := range d.changedAdj {
		if isNew {
			fresh = append(fresh, k)
		} else {
			gone = append(gone, k)
		}
	}
	d.changedAdj = nil
	return fresh, gone
}

// SetNextHop says where an adjacency leads; nil: it is not ready. A key that
// nothing refers to any more is ignored.
func (d *DataPlane) SetNextHop(k AdjacencyKey, n *NextHop) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.adjacencies[k]
	if a == nil {
		return nil
	}
	hop, err := nextHopEntry(n)
	if err != nil {
		return fmt.Errorf("next hop %s: %w", k.name(), err)
	}
	if a.value.Half[a.value.Current&1] == hop {
		return nil
	}
	// A packet may still read the half that was true before the last flip.
	if a.flipped == d.grace.Epoch+1 {
		d.grace.Wait()
	}
	next := a.value
	next.Half[^next.Current&1] = hop
	m := d.maps[abi.MapAdjacency]
	if err := m.Put(a.index, &next); err != nil {
		return fmt.Errorf("write table adjacency: %w", err)
	}
	next.Current ^= 1
	if err := m.Put(a.index, &next); err != nil {
		return fmt.Errorf("write table adjacency: %w", err)
	}
	a.value, a.flipped = next, d.grace.Epoch+1
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
