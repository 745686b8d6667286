package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Table is the tables port, access, classifier, class_by_source, device and lost_by_device: which interfaces'
// frames the data path handles, what may enter there, which classes it has, and by which
// interfaces frames may leave.
type Table struct {
	mu             *sync.Mutex
	ports, devices *ebpf.Map
	lost           *ebpf.Map
	deviceID       uint32 // of devices
	accesses       *shared[abi.Access]
	classifiers    *shared[abi.Classifier]
	bySource       *table.Hash[abi.Lpm6Key, uint32]
	origins        map[int]map[abi.Lpm6Key]bool // entries of bySource, by ifindex
	// put since Open
	havePorts, haveDevices map[int]bool
	// Steered says whether frames of an interface are steered, and HasTable whether it has
	// a table of targets of its own. Package target sets them.
	Steered, HasTable func(ifindex int) bool
	// CarriesN4Alone is told of each interface what N4Alone of its Port says.
	CarriesN4Alone func(ifindex int, alone bool) error
}

// Maps are the tables as packets see them.
type Maps struct {
	Ports       *ebpf.Map                        `map:"port"`
	Access      *ebpf.Map                        `map:"access"`
	Classifiers *ebpf.Map                        `map:"classifier"`
	BySource    *table.Hash[abi.Lpm6Key, uint32] `map:"class_by_source"`
	Devices     *ebpf.Map                        `map:"device"`
	Lost        *ebpf.Map                        `map:"lost_by_device"`
}

// Open takes the maps, and finds what an earlier daemon left in access and classifier. mu
// is the data path's lock.
func Open(mu *sync.Mutex, maps Maps, grace *table.Grace) (*Table, error) {
	accesses, classifiers := map[user]uint32{}, map[user]uint32{}
	_, named, err := table.ReadAll[uint32, abi.Port](maps.Ports)
	if err != nil {
		return nil, err
	}
	for ifindex, p := range named {
		if p != (abi.Port{}) {
			accesses[user{ifindex: ifindex}], classifiers[user{ifindex: ifindex}] = uint32(p.Access), uint32(p.Classifier)
		}
	}
	origins := map[int]map[abi.Lpm6Key]bool{}
	for k, index := range maps.BySource.All() {
		ifindex := ifindexOf(k)
		classifiers[user{ifindex, k}] = index
		if origins[ifindex] == nil {
			origins[ifindex] = map[abi.Lpm6Key]bool{}
		}
		origins[ifindex][k] = true
	}
	a, err := openShared[abi.Access](maps.Access, abi.MapAccess, accesses, grace)
	if err != nil {
		return nil, err
	}
	c, err := openShared[abi.Classifier](maps.Classifiers, abi.MapClassifier, classifiers, grace)
	if err != nil {
		return nil, err
	}
	id, err := idOf(maps.Devices)
	return &Table{mu: mu, ports: maps.Ports, devices: maps.Devices, lost: maps.Lost, deviceID: id, accesses: a, classifiers: c, bySource: maps.BySource, origins: origins,
		havePorts: map[int]bool{}, haveDevices: map[int]bool{},
		Steered: func(int) bool { return false }, HasTable: func(int) bool { return false }, CarriesN4Alone: func(int, bool) error { return nil }}, err
}

// maxIfindex is where port and device end (bpf/maps.h), less the numbers of tenants' tables.
const maxIfindex = abi.TenantTables - 1

// Port says what may enter by an interface.
type Port struct {
	Roles Roles
	// N4Alone says that nobody but SMFs is to send by the interface, and those mostly PFCP.
	N4Alone         bool
	Access          Access
	PartialChecksum bool // virtual: transport checksums may be partial
	MTU             int  // of layer 3; 0: not known
	// MAC is its own address: IP packets in frames to others are left to the kernel.
	// Zero: not known, and every frame is taken.
	MAC [6]byte
	// Classifier has the column of class_way for each DSCP of the packets that arrive; the
	// zero value: all are best effort.
	Classifier class.Classifier
	// Origins are those of its packets that have a classifier of their own.
	Origins []class.Origin
	// Tenant is that of the pod behind the interface; 0: none.
	Tenant uint8
	// Pod is the index of the pod behind the interface, in table pod; 0: none.
	Pod uint32
	// Silent: XDP can send no frame back by the interface, so that the daemon answers PFCP and
	// Echo Requests which come by it.
	Silent bool
	// ToKernel leaves to the kernel what the pod may send.
	ToKernel bool
}

// CheckIndex refuses what cannot be an entry of port and device.
func CheckIndex(ifindex int) error {
	if ifindex < 1 || ifindex > maxIfindex {
		return fmt.Errorf("interface index %d: want 1 to %d", ifindex, maxIfindex)
	}
	return nil
}

// Set lets the data path handle an interface's frames. Until then they
// pass to the kernel, attached or not.
func (t *Table) Set(ifindex int, p Port) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.SetLocked(ifindex, p)
}

// Ensure is Set of a port without guards, unless there is one.
func (t *Table) Ensure(ifindex int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.havePorts[ifindex] {
		return nil
	}
	return t.SetLocked(ifindex, Port{})
}

// SetLocked is Set for a caller that holds the lock.
func (t *Table) SetLocked(ifindex int, p Port) error {
	if err := CheckIndex(ifindex); err != nil {
		return err
	}
	flags := abi.PortFlagsPORT_ATTACHED
	if p.PartialChecksum {
		flags |= abi.PortFlagsPORT_PARTIAL_CHECKSUM
	}
	if p.Silent {
		flags |= abi.PortFlagsPORT_SILENT
	}
	flags |= t.steering(ifindex)
	if p.Tenant != 0 {
		flags = flags&^tableMask | abi.PortFlags(abi.TenantTable(p.Tenant))<<abi.PortFlagsPORT_TABLE_SHIFT
	}
	flags |= abi.PortFlags(p.Roles)
	flags |= p.Access.Flags()
	entry, err := p.Access.Entry()
	if err != nil {
		return err
	}
	access, err := t.accesses.take(user{ifindex: ifindex}, entry)
	if err != nil {
		return err
	}
	classifier, err := t.classifiers.take(user{ifindex: ifindex}, abi.Classifier{Column: p.Classifier})
	if err != nil {
		return err
	}
	if err := t.putOrigins(ifindex, p.Origins); err != nil {
		return err
	}
	if len(p.Origins) > 0 {
		flags |= abi.PortFlagsPORT_SOURCES
	}
	if p.ToKernel {
		flags |= abi.PortFlagsPORT_TO_KERNEL
	}
	t.havePorts[ifindex] = true
	err = t.write(ifindex, abi.Port{Flags: uint32(flags), Mtu: uint16(min(max(p.MTU, 0), math.MaxUint16)), Access: uint8(access), Classifier: uint8(classifier), Mac: Number(p.MAC), Pod: p.Pod})
	if err != nil {
		return err
	}
	t.accesses.leave(user{ifindex: ifindex}, access)
	t.classifiers.leave(user{ifindex: ifindex}, classifier)
	return errors.Join(t.dropOrigins(ifindex, p.Origins), t.CarriesN4Alone(ifindex, p.N4Alone))
}

// IsSilent says whether the daemon answers what comes by an interface, as Set was told.
func (t *Table) IsSilent(ifindex int) bool {
	var p abi.Port
	return t.ports.Lookup(uint32(ifindex), &p) == nil && abi.PortFlags(p.Flags)&abi.PortFlagsPORT_SILENT != 0
}

// MAC is an interface's own address, as Set was told. Zero: not known.
func (t *Table) MAC(ifindex int) (mac [6]byte) {
	var p abi.Port
	if err := t.ports.Lookup(uint32(ifindex), &p); err == nil {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], p.Mac)
		copy(mac[:], b[2:])
	}
	return mac
}

// Number is an address as is_for_port() of bpf/lookup.h compares it.
func Number(mac [6]byte) uint64 {
	var b [8]byte
	copy(b[2:], mac[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Delete leaves an interface's frames to the kernel.
func (t *Table) Delete(ifindex int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.DeleteLocked(ifindex)
}

// DeleteLocked is Delete for a caller that holds the lock.
func (t *Table) DeleteLocked(ifindex int) error {
	if err := CheckIndex(ifindex); err != nil {
		return err
	}
	delete(t.havePorts, ifindex)
	return t.clear(ifindex)
}

// clear leaves an interface without an entry.
func (t *Table) clear(ifindex int) error {
	if err := t.write(ifindex, abi.Port{}); err != nil {
		return err
	}
	t.accesses.leave(user{ifindex: ifindex}, 0)
	t.classifiers.leave(user{ifindex: ifindex}, 0)
	return errors.Join(t.dropOrigins(ifindex, nil), t.CarriesN4Alone(ifindex, false))
}

// write leaves what the data path counts of the interface as it is.
func (t *Table) write(ifindex int, next abi.Port) error {
	var now abi.Port
	if err := t.ports.Lookup(uint32(ifindex), &now); err == nil {
		next.HandedSince, next.Handed, next.HandedBefore = now.HandedSince, now.Handed, now.HandedBefore
		if now == next {
			return nil
		}
	}
	if err := t.ports.Put(uint32(ifindex), &next); err != nil {
		return fmt.Errorf("write table port: %w", err)
	}
	return nil
}

// tableMask is of the flags that name the table of targets.
const tableMask = abi.PortFlags(math.MaxUint16 << abi.PortFlagsPORT_TABLE_SHIFT)

// steering is what says that an interface has targets.
func (t *Table) steering(ifindex int) (flags abi.PortFlags) {
	if t.Steered(ifindex) {
		flags |= abi.PortFlagsPORT_STEERED
	}
	if t.HasTable(ifindex) {
		flags |= abi.PortFlags(ifindex) << abi.PortFlagsPORT_TABLE_SHIFT
	}
	return flags
}

// MarkSteered updates PORT_STEERED and the port's table after targets of an interface
// changed. The caller holds the lock.
func (t *Table) MarkSteered(ifindex int) error {
	var p abi.Port
	if err := t.ports.Lookup(uint32(ifindex), &p); err != nil {
		return fmt.Errorf("read table port: %w", err)
	}
	changing := abi.PortFlagsPORT_STEERED | tableMask
	if abi.IsTenantTable(p.Flags >> abi.PortFlagsPORT_TABLE_SHIFT) { // the pod's, whatever else is steered
		changing = abi.PortFlagsPORT_STEERED
	}
	p.Flags = p.Flags&^uint32(changing) | uint32(t.steering(ifindex)&changing)
	return t.write(ifindex, p)
}

// PutDevice lets frames leave by an interface, of the caller's network namespace.
func (t *Table) PutDevice(ifindex int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := CheckIndex(ifindex); err != nil {
		return err
	}
	if err := t.countLost(ifindex); err != nil {
		return err
	}
	key := uint32(ifindex)
	var there uint32
	if err := t.devices.Lookup(key, &there); err != nil || there != key {
		if err := t.devices.Put(key, key); err != nil {
			return fmt.Errorf("interface %s: write table device: %w", Name(ifindex), err)
		}
	}
	t.haveDevices[ifindex] = true
	return nil
}

// DeleteDevice ends that. The kernel does it itself when an interface goes.
func (t *Table) DeleteDevice(ifindex int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := CheckIndex(ifindex); err != nil {
		return err
	}
	delete(t.haveDevices, ifindex)
	return t.deleteDevice(ifindex)
}

func (t *Table) deleteDevice(ifindex int) error {
	key := uint32(ifindex)
	var there uint32
	if t.devices.Lookup(key, &there) != nil {
		return nil
	}
	if err := t.devices.Delete(key); err != nil {
		return fmt.Errorf("interface %s: delete from table device: %w", Name(ifindex), err)
	}
	return nil
}

// Sweep clears what an earlier daemon set and this one has not. The caller holds
// the lock.
func (t *Table) Sweep() error {
	_, ports, err := table.ReadAll[uint32, abi.Port](t.ports)
	errs := []error{err}
	for ifindex, p := range ports {
		if ifindex != 0 && !t.havePorts[ifindex] && p != (abi.Port{}) {
			errs = append(errs, t.clear(ifindex))
		}
	}
	for ifindex := range t.origins {
		if !t.havePorts[ifindex] {
			errs = append(errs, t.dropOrigins(ifindex, nil))
		}
	}
	// Of devices only the interfaces that exist. The kernel deletes the entries of
	// others, and reading the table takes one call for each of 65,535 entries.
	there, err := net.Interfaces()
	if err != nil {
		errs = append(errs, fmt.Errorf("sweep table device: %w", err))
	}
	for _, i := range there {
		if i.Index <= maxIfindex && !t.haveDevices[i.Index] {
			errs = append(errs, t.deleteDevice(i.Index))
		}
	}
	return errors.Join(errs...)
}

// Name is an interface's name, for messages.
func Name(ifindex int) string {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.Name
	}
	return fmt.Sprintf("#%d", ifindex)
}
