package dataplane

import (
	"fmt"
	"math"
	"net"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// maxIfindex is where port and device end (bpf/maps.h).
const maxIfindex = 1<<16 - 1

// Port says what an interface's frames are allowed.
type Port struct {
	External        bool // beyond the SR domain's edge
	PartialChecksum bool // virtual: transport checksums may be partial
	MTU             int  // of layer 3; 0: not known
}

func checkIfindex(ifindex int) error {
	if ifindex < 1 || ifindex > maxIfindex {
		return fmt.Errorf("interface index %d: want 1 to %d", ifindex, maxIfindex)
	}
	return nil
}

// SetPort lets the data path handle an interface's frames. Until then they
// pass to the kernel, attached or not.
func (d *DataPlane) SetPort(ifindex int, p Port) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkIfindex(ifindex); err != nil {
		return err
	}
	flags := abi.PortFlagsPORT_ATTACHED
	if p.External {
		flags |= abi.PortFlagsPORT_EXTERNAL
	}
	if p.PartialChecksum {
		flags |= abi.PortFlagsPORT_PARTIAL_CHECKSUM
	}
	if d.isSteered(ifindex) {
		flags |= abi.PortFlagsPORT_STEERED
	}
	d.ports[ifindex] = true
	return d.writePort(ifindex, abi.Port{Flags: uint32(flags), Mtu: uint32(min(max(p.MTU, 0), math.MaxUint16))})
}

// DeletePort leaves an interface's frames to the kernel.
func (d *DataPlane) DeletePort(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkIfindex(ifindex); err != nil {
		return err
	}
	delete(d.ports, ifindex)
	return d.writePort(ifindex, abi.Port{})
}

func (d *DataPlane) writePort(ifindex int, next abi.Port) error {
	var now abi.Port
	if err := d.maps[abi.MapPort].Lookup(uint32(ifindex), &now); err == nil && now == next {
		return nil
	}
	if err := d.maps[abi.MapPort].Put(uint32(ifindex), &next); err != nil {
		return fmt.Errorf("write table port: %w", err)
	}
	return nil
}

// isSteered says whether target_by_port has entries of an interface.
func (d *DataPlane) isSteered(ifindex int) bool {
	for k := range d.portRules.All() {
		if k.Ifindex == uint32(ifindex) {
			return true
		}
	}
	return false
}

// markSteered makes PORT_STEERED true after target_by_port changed.
func (d *DataPlane) markSteered(ifindex int) error {
	var p abi.Port
	if err := d.maps[abi.MapPort].Lookup(uint32(ifindex), &p); err != nil {
		return fmt.Errorf("read table port: %w", err)
	}
	flags := p.Flags &^ uint32(abi.PortFlagsPORT_STEERED)
	if d.isSteered(ifindex) {
		flags |= uint32(abi.PortFlagsPORT_STEERED)
	}
	p.Flags = flags
	return d.writePort(ifindex, p)
}

// PutDevice lets frames leave by an interface.
func (d *DataPlane) PutDevice(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkIfindex(ifindex); err != nil {
		return err
	}
	key := uint32(ifindex)
	var there uint32
	m := d.maps[abi.MapDevice]
	if err := m.Lookup(key, &there); err != nil || there != key {
		if err := m.Put(key, key); err != nil {
			return fmt.Errorf("interface %s: write table device: %w", interfaceName(ifindex), err)
		}
	}
	d.devices[ifindex] = true
	return nil
}

// DeleteDevice ends that. The kernel does it itself when an interface goes.
func (d *DataPlane) DeleteDevice(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkIfindex(ifindex); err != nil {
		return err
	}
	delete(d.devices, ifindex)
	return d.deleteDevice(ifindex)
}

func (d *DataPlane) deleteDevice(ifindex int) error {
	key := uint32(ifindex)
	var there uint32
	m := d.maps[abi.MapDevice]
	if m.Lookup(key, &there) != nil {
		return nil
	}
	if err := m.Delete(key); err != nil {
		return fmt.Errorf("interface %s: delete from table device: %w", interfaceName(ifindex), err)
	}
	return nil
}

// sweepPorts clears what an earlier daemon had set of interfaces that are not
// wanted any more.
func (d *DataPlane) sweepPorts() []error {
	ports, err := table.ReadArray[abi.Port](d.maps[abi.MapPort])
	errs := []error{err}
	for ifindex, p := range ports {
		if ifindex != 0 && !d.ports[ifindex] && p != (abi.Port{}) {
			errs = append(errs, d.writePort(ifindex, abi.Port{}))
		}
	}
	return append(errs, d.sweepDevices()...)
}

// sweepDevices looks at the interfaces that there are, since the kernel takes
// out those that go: there is no way to read the table by less than a call for
// each of its 65,535 entries.
func (d *DataPlane) sweepDevices() []error {
	there, err := net.Interfaces()
	if err != nil {
		return []error{fmt.Errorf("sweep table device: %w", err)}
	}
	var errs []error
	for _, i := range there {
		if i.Index <= maxIfindex && !d.devices[i.Index] {
			errs = append(errs, d.deleteDevice(i.Index))
		}
	}
	return errs
}
