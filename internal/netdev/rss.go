package netdev

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HashFields are what a card makes the hash of that chooses a packet's receive queue
// (RXH_* of linux/ethtool.h).
type HashFields uint64

// The fields of a packet.
const (
	HashSource      HashFields = 1 << 4
	HashDestination HashFields = 1 << 5
	HashTEID        HashFields = 1 << 8 // Linux 6.9
)

// FlowType is a sort of packets that a card may tell apart, by the name that ethtool(8)
// has for it.
type FlowType string

// gtpuFlows are the numbers of G-PDUs (linux/ethtool.h, Linux 6.9): without a PDU Session
// Container, and with one, as 5G has it, of either direction and of each.
var gtpuFlows = map[FlowType]uint32{"gtpu4": 0x13, "gtpu4e": 0x19, "gtpu4u": 0x1b, "gtpu4d": 0x1d}

// FlowsOf5G are the G-PDUs that gNBs and UPFs send.
var FlowsOf5G = []FlowType{"gtpu4e", "gtpu4u", "gtpu4d"}

// rxnfc is struct ethtool_rxnfc as far as ETHTOOL_GRXFH goes; the rest is room for the
// rule that other commands have there.
type rxnfc struct {
	command  uint32
	flowType uint32
	data     uint64
	_        [176]byte
}

// hashAsker does ETHTOOL_GRXFH for a device.
type hashAsker func(device string, r *rxnfc) error

// gtpuHash asks what a device hashes of each sort of G-PDUs. Nothing: its driver knows
// none of them.
func gtpuHash(device string, ask hashAsker) (map[FlowType]HashFields, error) {
	var out map[FlowType]HashFields
	for flow, number := range gtpuFlows {
		r := rxnfc{command: unix.ETHTOOL_GRXFH, flowType: number}
		err := ask(device, &r)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: ask ethtool for the hash of %s: %w", device, flow, err)
		}
		if out == nil {
			out = map[FlowType]HashFields{}
		}
		out[flow] = HashFields(r.data)
	}
	return out, nil
}

// askHash does ETHTOOL_GRXFH, which neither library has that this package uses.
func (k *kernel) askHash(device string, r *rxnfc) error {
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	request.data = unsafe.Pointer(r)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k.ioctl), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
