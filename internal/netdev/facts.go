package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Facts are what ethtool says of a device, as far as tunnels mind.
type Facts struct {
	Driver string
	// The offloads that are on.
	TxChecksum bool // checksums of what local stacks send are left to the device
	RxChecksum bool
	GRO        bool
	GSO        bool
	TSO        bool
	LRO        bool // received segments are merged for good
	RxVLAN     bool // tags are taken off before XDP sees the frame
	TxVLAN     bool // tags of local stacks are left to the device
	// TxScatter: frames of several buffers.
	TxScatter bool
	// PeerIfindex is the other end of a veth, in whatever network namespace;
	// 0 for other devices.
	PeerIfindex int
	RxQueues    int
	TxQueues    int
	// GTPUHash is what the card hashes of G-PDUs to choose a receive queue; nil: it
	// does not tell them from other UDP packets.
	GTPUHash      map[FlowType]HashFields
	FeaturesKnown bool
}

// Inspector asks devices for their Facts. It stays in the network namespace it
// was made in.
type Inspector struct{ kernel *kernel }

// NewInspector opens its sockets in the calling thread's network namespace.
func NewInspector() (*Inspector, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	return &Inspector{k}, nil
}

// Close frees what NewInspector opened.
func (i *Inspector) Close() { i.kernel.close() }

// Snapshot reads the present state once, with the main and the local table.
func (i *Inspector) Snapshot() (*Snapshot, error) {
	w := Watcher{kernel: i.kernel}
	w.setTables(nil)
	return w.read(nil, dirtyAll)
}

// Links reads only links and addresses.
func (i *Inspector) Links() (*Snapshot, error) {
	w := Watcher{kernel: i.kernel}
	return w.read(nil, dirtyLinks|dirtyAddresses)
}

// IsLocal says whether packets to an address are for this host.
func IsLocal(i *Inspector, a netip.Addr) (bool, error) {
	routes, err := i.kernel.handle.RouteGet(a.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the route to %s: %w", a, err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}

// Facts asks one device. A device without ethtool (lo) has FeaturesKnown false
// or few features, and is no error; a device that is not there is.
func (i *Inspector) Facts(name string) (Facts, error) {
	var f Facts
	features, err := i.kernel.ethtool.Features(name)
	if err != nil {
		return f, fmt.Errorf("%s: ask ethtool for features: %w", name, err)
	}
	f.FeaturesKnown = len(features) > 0
	f.Driver, _ = i.kernel.ethtool.DriverName(name)
	// The names are those of the kernel's ethtool strings (netdev_features.h), not of
	// ethtool(8).
	f.TxChecksum = features["tx-checksum-ip-generic"] || features["tx-checksum-ipv4"] || features["tx-checksum-ipv6"]
	f.RxChecksum = features["rx-checksum"]
	f.GRO = features["rx-gro"]
	f.GSO = features["tx-generic-segmentation"]
	f.TSO = features["tx-tcp-segmentation"] || features["tx-tcp6-segmentation"]
	f.LRO = features["rx-lro"]
	f.RxVLAN = features["rx-vlan-hw-parse"]
	f.TxVLAN = features["tx-vlan-hw-insert"]
	f.TxScatter = features["tx-scatter-gather"]
	if f.Driver == "veth" {
		stats, err := i.kernel.ethtool.Stats(name)
		if err != nil {
			return f, fmt.Errorf("%s: ask for the peer: %w", name, err)
		}
		f.PeerIfindex = int(stats["peer_ifindex"])
	}
	if channels, err := i.kernel.ethtool.GetChannels(name); err == nil {
		f.RxQueues = int(channels.RxCount + channels.CombinedCount)
		f.TxQueues = int(channels.TxCount + channels.CombinedCount)
	}
	card := Card{name, f.Driver, i.kernel.callEthtool}
	f.GTPUHash, err = card.GTPUHash()
	return f, err
}
