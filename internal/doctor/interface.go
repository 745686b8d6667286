package doctor

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/netdev"
)

const (
	ipv6Header    = 40
	srhHeader     = 8
	segmentLength = 16
	gtpuOverIPv6  = ipv6Header + 8 + 16 // UDP; GTP-U with a PDU Session Container
	ipv6MinMTU    = 1280
	usualMTU      = 1500
	// maxNativeMTU is what a page holds besides headroom, Ethernet header with
	// a tag, and the kernel's bookkeeping: 4096 - 256 - 18 - 320, and 4 more
	// that some drivers take.
	maxNativeMTU = 3498
)

// device is what there is to know of an interface.
type device struct {
	netdev.Link
	netdev.Facts
	segments int
	// peer is the other end of a veth, if it is in this network namespace.
	peer      string
	peerFacts *netdev.Facts
}

func (d device) name(what string) string { return d.Link.Name + ": " + what }

func (d device) isVeth() bool { return d.Kind == "veth" }

// onPeer is a command about the other end of a veth. It can be run here if that
// is here.
func (d device) onPeer(c Check, format string) Check {
	if d.peer != "" {
		return c.fix(format, d.peer)
	}
	return c.advice("in the peer's network namespace: "+format, "PEER")
}

func (d device) up() Check {
	c := Check{Name: d.name("up"), Level: OK, Detail: "up, with carrier"}
	switch {
	case !d.Up:
		c.Level, c.Detail = Fail, "down"
		return c.fix("ip link set dev %s up", d.Link.Name)
	case !d.Carrier:
		c.Level, c.Detail = Warn, "no carrier"
		return c.advice("plug the cable in, or set the other end up")
	}
	return c
}

func (d device) nativeXDP() Check {
	c := Check{Name: d.name("native XDP"), Level: OK, Detail: "possible (driver " + d.driver() + ")"}
	if d.XDP&netdev.XDPBasic != 0 {
		return c
	}
	c.Level, c.Detail = Warn, "not possible (driver "+d.driver()+"): generic mode is several times slower"
	if d.isVeth() {
		return c.advice("the peer must not have more transmit queues than this end has receive queues: ethtool -L %s rx N", d.Link.Name)
	}
	return c.advice("use an interface whose driver has native XDP, or mode generic")
}

func (d device) driver() string {
	if d.Link.Driver == "" {
		return "unknown"
	}
	return d.Link.Driver
}

// redirectTarget: frames that the data path sends out of an interface with
// native XDP need the driver's ndo_xdp_xmit. A veth has it while its peer
// receives with NAPI.
func (d device) redirectTarget() Check {
	c := Check{Name: d.name("redirect target"), Level: OK, Detail: "frames can be redirected to it"}
	if d.XDP&netdev.XDPTransmit != 0 {
		return c
	}
	if d.isVeth() {
		c.Level, c.Detail = Fail, "frames redirected to it are lost: its peer has neither GRO nor an XDP program"
		return d.onPeer(c, "ethtool -K %s gro on")
	}
	if d.Program == 0 && d.XDP&netdev.XDPRedirect != 0 {
		// virtio_net and some others get it ready with their first program.
		c.Detail = "not known before a program is attached: look again while culvert runs"
		return c
	}
	c.Level, c.Detail = Warn, "frames cannot be redirected to it: the kernel sends them, which is slower"
	return c.advice("use an interface whose driver has ndo_xdp_xmit")
}

// lro: merged segments are larger than any MTU and cannot be taken apart.
func (d device) lro() Check {
	c := Check{Name: d.name("large receive offload"), Level: OK, Detail: "off"}
	if !d.LRO {
		return c
	}
	c.Level, c.Detail = Fail, "on: received segments are merged, and cannot be forwarded as they came"
	return c.fix("ethtool -K %s lro off", d.Link.Name)
}

// vlanTags: the data path sees tags only if they are in the frame.
func (d device) vlanTags() Check {
	c := Check{Name: d.name("VLAN tags"), Level: OK, Detail: "stay in the frame"}
	switch {
	case !d.isVeth() && d.RxVLAN:
		c.Level, c.Detail = Warn, "are taken off before XDP sees the frame: tagged frames are taken for untagged ones"
		return c.fix("ethtool -K %s rxvlan off", d.Link.Name)
	case d.isVeth() && d.peerFacts == nil:
		c.Detail = "cannot be seen: the peer is in another network namespace. If it sends tagged frames, its txvlan offload must be off there"
		return c
	case d.isVeth() && d.peerFacts.TxVLAN:
		c.Level, c.Detail = Warn, "of the peer's tagged frames do not arrive in the frame"
		return d.onPeer(c, "ethtool -K %s txvlan off")
	}
	return c
}

// partialChecksums: local stacks leave TCP and UDP checksums to a device that
// never comes. The data path completes those of packets that it encapsulates;
// what an endpoint forwards inside of other headers, nobody completes.
func (d device) partialChecksums() Check {
	c := Check{Name: d.name("checksums"), Level: OK, Detail: "are complete when frames arrive"}
	switch {
	case !d.Virtual():
		return c
	case d.isVeth() && d.peerFacts != nil && !d.peerFacts.TxChecksum:
		return c
	case d.isVeth() && d.peerFacts == nil:
		c.Detail = "may be partial, and are completed at encapsulation; the peer is in another network namespace"
		return c
	case d.isVeth():
		c.Level, c.Detail = Warn, "of what the peer sends are partial: completed at encapsulation, but not inside of headers that are there already"
		return d.onPeer(c, "ethtool -K %s tx off")
	}
	c.Detail = "may be partial (" + d.Kind + ", " + d.driver() + "): they are completed at encapsulation"
	return c
}

// segmentation: in generic mode a local stack's segments arrive before they are
// cut. Native XDP on a veth makes the kernel turn that off at the peer.
func (d device) segmentation() Check {
	c := Check{Name: d.name("segmentation offload"), Level: OK, Detail: "does not reach the data path"}
	native := d.XDP&netdev.XDPBasic != 0
	switch {
	case native || !d.Virtual():
		return c
	case d.peerFacts != nil && (d.peerFacts.TSO || d.peerFacts.GSO):
		c.Level, c.Detail = Warn, "of the peer: in generic mode its frames arrive before they are cut to the MTU"
		return d.onPeer(c, "ethtool -K %s tso off gso off")
	case d.peerFacts == nil && d.GRO:
		c.Level, c.Detail = Warn, "in generic mode, received frames may be larger than the MTU"
		return c.fix("ethtool -K %s gro off", d.Link.Name)
	}
	return c
}

// headroom: what the largest inner packet is. IPv6 needs 1280.
func (d device) headroom() Check {
	full := ipv6Header + srhHeader + d.segments*segmentLength
	inner := d.Link.MTU - full
	c := Check{Name: d.name("MTU headroom"), Level: OK, Detail: fmt.Sprintf(
		"MTU %d: inner packets of %d bytes fit with GTP-U over IPv6, %d with one segment, %d with %d",
		d.Link.MTU, d.Link.MTU-gtpuOverIPv6, d.Link.MTU-ipv6Header, inner, d.segments)}
	switch {
	case inner < ipv6MinMTU:
		c.Level = Warn
		c.Detail += fmt.Sprintf(": less than IPv6 needs (%d)", ipv6MinMTU)
		return c.fix("ip link set dev %s mtu %d", d.Link.Name, usualMTU+full)
	case inner < usualMTU:
		c.Detail += fmt.Sprintf("; %d would leave room for %d", usualMTU+full, usualMTU)
	}
	return c
}

func (d device) nativeMTU() Check {
	c := Check{Name: d.name("MTU limit"), Level: OK, Detail: "native XDP takes it"}
	if d.Link.MTU <= maxNativeMTU {
		return c
	}
	c.Level = Warn
	c.Detail = fmt.Sprintf("MTU %d: drivers refuse native XDP beyond about %d", d.Link.MTU, maxNativeMTU)
	return c.fix("ip link set dev %s mtu %d", d.Link.Name, maxNativeMTU)
}
