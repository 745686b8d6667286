package port

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// countLost has what an interface does not send counted (bpf/lost.h), on top of what is
// counted already. Its namespace tells it from interfaces elsewhere.
func (t *Table) countLost(ifindex int) error {
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return fmt.Errorf("interface %s: name the network namespace: %w", Name(ifindex), err)
	}
	var there abi.Lost
	if err := t.lost.Lookup(uint32(ifindex), &there); err != nil {
		return fmt.Errorf("interface %s: read table %s: %w", Name(ifindex), abi.MapLostByDevice, err)
	}
	next := abi.Lost{Netns: uint32(namespace.Ino), Device: t.deviceID}
	if there.Netns == next.Netns {
		next.Frames = there.Frames
	}
	if there == next {
		return nil
	}
	if err := t.lost.Put(uint32(ifindex), &next); err != nil {
		return fmt.Errorf("interface %s: write table %s: %w", Name(ifindex), abi.MapLostByDevice, err)
	}
	return nil
}

// idOf is the kernel's number of a map.
func idOf(m *ebpf.Map) (uint32, error) {
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("table %s: %w", abi.MapDevice, err)
	}
	id, _ := info.ID() // the kernels that we need have it
	return uint32(id), nil
}

// Lost is how many frames were redirected to an interface and did not leave it, since the
// tables were made. DeleteDevice keeps the count. 0: also where frames never left.
func (t *Table) Lost(ifindex int) (uint64, error) {
	if err := CheckIndex(ifindex); err != nil {
		return 0, err
	}
	var there abi.Lost
	if err := t.lost.Lookup(uint32(ifindex), &there); err != nil {
		return 0, fmt.Errorf("interface %s: read table %s: %w", Name(ifindex), abi.MapLostByDevice, err)
	}
	return there.Frames, nil
}
