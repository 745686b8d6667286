package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Pod is a pod of this node, as its packets see it.
type Pod struct {
	Ifindex   int              // of the host's end of its veth
	MAC       net.HardwareAddr // of the pod's end
	Addresses []netip.Addr     // its own
}

// pod is one that is in the tables.
type pod struct {
	index     uint32
	value     abi.Pod
	addresses []netip.Addr
	kept      bool // put since Open
}

// PutPod has packets to a pod's addresses given to it, and its own handled; or
// changes which those are. An address that is somebody else's already is an
// error (ErrTaken). A pod that is put twice is as one that is put once.
func (d *DataPlane) PutPod(p Pod) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.putPod(p); err != nil {
		return fmt.Errorf("pod at interface %s: %w", interfaceName(p.Ifindex), err)
	}
	return nil
}

func (d *DataPlane) putPod(p Pod) error {
	addresses, err := d.checkPod(p)
	if err != nil {
		return err
	}
	there := d.pods[p.Ifindex]
	next := there
	if there == nil {
		next = &pod{}
		if next.index, err = d.podIndex.Alloc(); err != nil {
			return err
		}
	}
	value := abi.Pod{Ifindex: uint32(p.Ifindex), Identity: next.value.Identity}
	copy(value.Mac[:], p.MAC)
	if err := d.writePod(next, value); err != nil {
		if there == nil {
			d.podIndex.Retire(next.index)
		}
		return err
	}
	d.pods[p.Ifindex] = next
	if err := d.connectPod(p.Ifindex, next, addresses); err != nil {
		if there == nil {
			err = errors.Join(err, d.deletePod(p.Ifindex))
		}
		return err
	}
	next.kept = true
	return nil
}

// checkPod returns the addresses as the tables have them.
func (d *DataPlane) checkPod(p Pod) ([]netip.Addr, error) {
	if err := checkIfindex(p.Ifindex); err != nil {
		return nil, err
	}
	if len(p.MAC) != 6 {
		return nil, fmt.Errorf("address %q: want 6 bytes", p.MAC)
	}
	var out []netip.Addr
	for _, a := range p.Addresses {
		a = a.Unmap()
		if !a.IsGlobalUnicast() {
			return nil, fmt.Errorf("address %s: want a pod's own", a)
		}
		prefix := netip.PrefixFrom(a, a.BitLen())
		owner, isPod := d.podOf[a]
		switch {
		case isPod && owner != p.Ifindex:
			return nil, fmt.Errorf("address %s %w: it is that of the pod at interface %s", a, ErrTaken, interfaceName(owner))
		case d.local[a], d.steerings[prefix.String()] != nil,
			d.targetAt(prefix).Kind == uint32(abi.TargetKindTARGET_PDR):
			return nil, fmt.Errorf("address %s %w: packets to it go elsewhere", a, ErrTaken)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

func (d *DataPlane) writePod(p *pod, value abi.Pod) error {
	if p.value == value {
		return nil
	}
	if err := d.maps[abi.MapPod].Put(p.index, &value); err != nil {
		return fmt.Errorf("write table pod: %w", err)
	}
	p.value = value
	return nil
}

// connectPod has packets find the pod, and the program find its packets. Pods are
// outside of the SR domain.
func (d *DataPlane) connectPod(ifindex int, p *pod, addresses []netip.Addr) error {
	target := abi.Target{Kind: uint32(abi.TargetKindTARGET_POD), Index: p.index}
	for _, a := range addresses {
		if err := d.putTarget(netip.PrefixFrom(a, a.BitLen()), target); err != nil {
			return err
		}
		d.podOf[a] = ifindex
		if !slices.Contains(p.addresses, a) {
			p.addresses = append(p.addresses, a)
		}
	}
	for _, a := range slices.Clone(p.addresses) {
		if !slices.Contains(addresses, a) {
			if err := d.dropPodAddress(p, a); err != nil {
				return err
			}
		}
	}
	d.ports[ifindex] = true
	flags := abi.PortFlagsPORT_ATTACHED | abi.PortFlagsPORT_EXTERNAL
	if err := d.writePort(ifindex, abi.Port{Flags: uint32(flags)}); err != nil {
		return err
	}
	return d.attachHook(ifindex, hookPod)
}

func (d *DataPlane) dropPodAddress(p *pod, a netip.Addr) error {
	if err := d.delTarget(netip.PrefixFrom(a, a.BitLen())); err != nil {
		return err
	}
	delete(d.podOf, a)
	p.addresses = slices.DeleteFunc(p.addresses, func(b netip.Addr) bool { return b == a })
	return nil
}

// DeletePod ends that. A pod that is gone is not an error, nor is one whose
// interface is.
func (d *DataPlane) DeletePod(ifindex int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.deletePod(ifindex); err != nil {
		return fmt.Errorf("pod at interface %s: %w", interfaceName(ifindex), err)
	}
	return nil
}

func (d *DataPlane) deletePod(ifindex int) error {
	p := d.pods[ifindex]
	if p == nil {
		return nil
	}
	for _, a := range slices.Clone(p.addresses) {
		if err := d.dropPodAddress(p, a); err != nil {
			return err
		}
	}
	delete(d.ports, ifindex)
	if err := errors.Join(d.detachHook(ifindex, hookPod), d.writePort(ifindex, abi.Port{}), d.writePod(p, abi.Pod{})); err != nil {
		return err
	}
	delete(d.pods, ifindex)
	d.podIndex.Retire(p.index)
	return nil
}

// Pods lists the pods that are put, those of an earlier daemon until Sweep among
// them, by ifindex.
func (d *DataPlane) Pods() []Pod {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Pod, 0, len(d.pods))
	for ifindex, p := range d.pods {
		addresses := slices.SortedFunc(slices.Values(p.addresses), netip.Addr.Compare)
		out = append(out, Pod{Ifindex: ifindex, MAC: slices.Clone(p.value.Mac[:]), Addresses: addresses})
	}
	slices.SortFunc(out, func(a, b Pod) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	return out
}

// recoverPods finds what an earlier daemon had put.
func (d *DataPlane) recoverPods() error {
	d.pods, d.podOf = map[int]*pod{}, map[netip.Addr]int{}
	byIndex, taken := map[uint32]*pod{}, map[uint32]bool{}
	table, err := table.ReadArray[abi.Pod](d.maps[abi.MapPod])
	if err != nil {
		return err
	}
	for i, value := range table {
		if index := uint32(i); value.Ifindex != 0 {
			p := &pod{index: index, value: value}
			byIndex[index], taken[index] = p, true
			d.pods[int(value.Ifindex)] = p
		}
	}
	d.podIndex.Restore(taken)
	own := func(t abi.Target, a netip.Addr) {
		if p := byIndex[t.Index]; p != nil && t.Kind == uint32(abi.TargetKindTARGET_POD) {
			p.addresses = append(p.addresses, a)
			d.podOf[a] = int(p.value.Ifindex)
		}
	}
	for k, t := range d.target4.All() {
		own(t, abi.FromBE32(k.Addr))
	}
	for k, t := range d.target6.All() {
		own(t, netip.AddrFrom16(k.Addr.B))
	}
	return nil
}

// sweepPods removes those that were not put since Open.
func (d *DataPlane) sweepPods() error {
	var errs []error
	for _, ifindex := range slices.Collect(maps.Keys(d.pods)) {
		if !d.pods[ifindex].kept {
			errs = append(errs, d.deletePod(ifindex))
		}
	}
	return errors.Join(append(errs, d.sweepHooks())...)
}
