package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
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
var gtpuFlows = map[FlowType]uint32{
	"gtpu4": 0x13, "gtpu4e": 0x19, "gtpu4u": 0x1b, "gtpu4d": 0x1d,
	"gtpu6": 0x14, "gtpu6e": 0x1a, "gtpu6u": 0x1c, "gtpu6d": 0x1e,
}

// FlowsOf5G are the G-PDUs that gNBs and UPFs send to addresses; without any, over IPv4.
func FlowsOf5G(addresses []netip.Addr) (out []FlowType) {
	if len(addresses) == 0 || slices.ContainsFunc(addresses, netip.Addr.Is4) {
		out = append(out, "gtpu4e", "gtpu4u", "gtpu4d")
	}
	if slices.ContainsFunc(addresses, netip.Addr.Is6) {
		out = append(out, "gtpu6e", "gtpu6u", "gtpu6d")
	}
	return out
}

// NotSupportedError is what a device's driver cannot do.
type NotSupportedError struct {
	Device, Driver, What string
}

// Error says it.
func (e *NotSupportedError) Error() string {
	return fmt.Sprintf("%s: driver %s does not support %s", e.Device, e.Driver, e.What)
}

// Card is how a device spreads what it receives over its queues (receive-side scaling).
// It was tested with recorded answers, not with hardware.
type Card struct {
	name, driver string
	call         ethtoolCall
}

// ethtoolCall does an ethtool command for a device. The request is the kernel's structure,
// into which the kernel writes its answer.
type ethtoolCall func(device string, request []byte) error

// Card returns a device, which stays usable as long as i does.
func (i *Inspector) Card(name string) (*Card, error) {
	driver, err := i.kernel.ethtool.DriverName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: ask ethtool for the driver: %w", name, err)
	}
	return &Card{name, driver, i.kernel.callEthtool}, nil
}

// GTPUHash says what the card hashes of each sort of G-PDUs that it tells from others.
// Nothing: it knows none of them. Some drivers (ice, bnxt_en) answer without an error, and
// with no field, for those that they do not know.
func (c *Card) GTPUHash() (map[FlowType]HashFields, error) {
	var out map[FlowType]HashFields
	for flow, number := range gtpuFlows {
		r := rxnfc(unix.ETHTOOL_GRXFH, number, 0)
		err := c.call(c.name, r)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: ask ethtool for the hash of %s: %w", c.name, flow, err)
		}
		if fields := HashFields(binary.NativeEndian.Uint64(r[8:])); fields != 0 {
			if out == nil {
				out = map[FlowType]HashFields{}
			}
			out[flow] = fields
		}
	}
	return out, nil
}

// SetGTPUHash has the card hash these fields of a sort of G-PDUs, from now on.
func (c *Card) SetGTPUHash(flow FlowType, fields HashFields) error {
	err := c.call(c.name, rxnfc(unix.ETHTOOL_SRXFH, gtpuFlows[flow], fields))
	return c.explain(err, fmt.Sprintf("a hash of the fields %#x of %s", uint64(fields), flow))
}

// rxnfc is struct ethtool_rxnfc, of which these commands use the first 16 octets.
func rxnfc(command, flow uint32, fields HashFields) []byte {
	r := make([]byte, 192)
	binary.NativeEndian.PutUint32(r, command)
	binary.NativeEndian.PutUint32(r[4:], flow)
	binary.NativeEndian.PutUint64(r[8:], uint64(fields))
	return r
}

// Table is the indirection table: the queue for each value of the hash modulo its length.
func (c *Card) Table() ([]uint32, error) {
	const what = "an indirection table"
	r := rxfhIndir(unix.ETHTOOL_GRXFHINDIR, nil)
	if err := c.call(c.name, r); err != nil { // the length only
		return nil, c.explain(err, what)
	}
	table := make([]uint32, binary.NativeEndian.Uint32(r[4:]))
	if len(table) == 0 {
		return nil, c.explain(unix.EOPNOTSUPP, what)
	}
	r = rxfhIndir(unix.ETHTOOL_GRXFHINDIR, table)
	if err := c.call(c.name, r); err != nil {
		return nil, c.explain(err, what)
	}
	for i := range table {
		table[i] = binary.NativeEndian.Uint32(r[8+4*i:])
	}
	return table, nil
}

// SetTable replaces the indirection table, from now on. Its length must be that of Table;
// nil is the driver's own.
func (c *Card) SetTable(table []uint32) error {
	return c.explain(c.call(c.name, rxfhIndir(unix.ETHTOOL_SRXFHINDIR, table)), "this indirection table")
}

// rxfhIndir is struct ethtool_rxfh_indir.
func rxfhIndir(command uint32, table []uint32) []byte {
	r := make([]byte, 8+4*len(table))
	binary.NativeEndian.PutUint32(r, command)
	binary.NativeEndian.PutUint32(r[4:], uint32(len(table)))
	for i, queue := range table {
		binary.NativeEndian.PutUint32(r[8+4*i:], queue)
	}
	return r
}

// explain says what the driver does not support, or what else is wrong.
func (c *Card) explain(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL):
		return &NotSupportedError{c.name, c.driver, what}
	}
	return fmt.Errorf("%s: %s by ethtool: %w", c.name, what, err)
}

// callEthtool is an ethtoolCall. Neither library has these commands, or only for tables
// of 256 entries.
func (k *kernel) callEthtool(device string, request []byte) error {
	var r struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(r.name[:unix.IFNAMSIZ-1], device)
	r.data = unsafe.Pointer(&request[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k.ioctl), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(request)
	if errno != 0 {
		return errno
	}
	return nil
}
