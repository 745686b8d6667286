package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Kernel routing tables that have a name.
const (
	TableDefault uint32 = 253
	TableMain    uint32 = 254
	TableLocal   uint32 = 255
)

// Key names a next hop. A NextHop alone is looked up in Table (0 is the main table). An
// Interface alone means that the packet's own destination is on that link. Both mean
// that NextHop is on that link.
type Key struct {
	NextHop   netip.Addr
	Interface string
	Table     uint32
}

func (k Key) String() string {
	var parts []string
	if k.NextHop.IsValid() {
		parts = append(parts, k.NextHop.String())
	}
	if k.Interface != "" || !k.NextHop.IsValid() {
		parts = append(parts, "dev "+k.Interface)
	}
	if k.Table != 0 {
		parts = append(parts, fmt.Sprintf("table %d", k.Table))
	}
	return strings.Join(parts, " ")
}

// VLAN is one tag of a frame.
type VLAN struct {
	TPID uint16 // 0x8100 or 0x88a8
	ID   uint16
}

// NextHop is how frames reach a Key.
type NextHop struct {
	// Ifindex is the device that sends the frames. For a VLAN device it is the
	// parent, which gets frames with the tags in VLANs.
	Ifindex int
	// MTU is of layer 3, the smallest along the devices.
	MTU int
	// Dst is nil if the Key is an Interface alone.
	Dst, Src net.HardwareAddr
	VLANs    []VLAN // outermost first
	// Pass says that XDP cannot send there, but the kernel can; Why says why. If Dst
	// is set, the kernel only has to transmit the frame.
	Pass bool
	Why  string
}

// XDPFeatures are what a driver can do (netdev-genl's xdp-features).
type XDPFeatures uint64

// The features of netdev-genl.
const (
	XDPBasic    XDPFeatures = 1 << iota // native XDP programs: pass, drop, TX
	XDPRedirect                         // XDP_REDIRECT from it
	XDPTransmit                         // XDP_REDIRECT to it (ndo_xdp_xmit)

	XDPReceivePieces  XDPFeatures = 1 << 5 // programs get frames in several pieces
	XDPTransmitPieces XDPFeatures = 1 << 6 // and these may be redirected to it
)

// Link is a network device.
type Link struct {
	Index int
	Name  string
	// Kind is the kernel's name for a virtual device ("veth", "vlan",
	// "bridge", ...), or "device".
	Kind   string
	Driver string // as ethtool says, "" if it says nothing
	MTU    int
	MAC    net.HardwareAddr
	Up     bool // administratively
	// Carrier says that the layer below is up.
	Carrier  bool
	Loopback bool
	Ethernet bool
	// Parent is the ifindex of a VLAN's real device, or of a veth's peer when
	// ParentElsewhere is false. ParentElsewhere: it is in another network
	// namespace.
	Parent          int
	ParentElsewhere bool
	VLAN            VLAN // of a VLAN device
	Master          int  // bridge, bond or VRF that it is a port of
	MasterKind      string
	XDP             XDPFeatures
	// Program is the id of the attached XDP program, or 0.
	Program uint32
	// Generic says that the program runs on what the kernel made of frames.
	Generic bool
}

// LinkState says whether frames come and leave by a link.
type LinkState string

// The states of a link.
const (
	LinkUp        LinkState = "up"         // and with carrier
	LinkDown      LinkState = "down"       // administratively
	LinkNoCarrier LinkState = "no_carrier" // the layer below is down
)

// State is the state of a link.
func (l Link) State() LinkState {
	switch {
	case !l.Up:
		return LinkDown
	case !l.Carrier:
		return LinkNoCarrier
	}
	return LinkUp
}

// Problem says what is wrong, to follow the link's name; empty: nothing is, or there is no link.
func (s LinkState) Problem() string {
	switch s {
	case LinkDown:
		return "is down"
	case LinkNoCarrier:
		return "has no carrier"
	}
	return ""
}

// virtualDrivers lists drivers whose devices pass frames of stacks on the same machine.
// The checksums of such frames may be left to hardware that does not exist.
var virtualDrivers = map[string]bool{
	"veth": true, "tun": true, "tap": true, "bridge": true, "virtio_net": true,
	"hv_netvsc": true, "vif": true, "vmxnet3": true, "netkit": true, "macvlan": true,
	"macvtap": true, "ipvlan": true, "dummy": true, "ifb": true, "nlmon": true,
}

// Virtual says whether frames that arrive on the link may have partial layer 4
// checksums: they come from a stack on this machine, and no hardware has completed
// them.
func (l Link) Virtual() bool {
	switch l.Kind {
	case "device", "vlan", "bond", "team":
		// What a VLAN or bond receives is what the devices below receive.
		return virtualDrivers[l.Driver]
	}
	return true
}

// Address is one of the node's addresses.
type Address struct {
	Ifindex int
	Prefix  netip.Prefix // the address with the length of its link's prefix
	// Peer is the other end of a point-to-point address.
	Peer netip.Addr
	// Tentative addresses are still being checked for duplicates.
	Tentative bool
}

// RouteType says what happens to packets that a route matches (RTN_*).
type RouteType uint8

// The route types.
const (
	RouteUnicast     RouteType = 1
	RouteLocal       RouteType = 2
	RouteBroadcast   RouteType = 3
	RouteAnycast     RouteType = 4
	RouteBlackhole   RouteType = 6
	RouteUnreachable RouteType = 7
	RouteProhibit    RouteType = 8
	RouteThrow       RouteType = 9
)

// Route is a route of a kernel table.
type Route struct {
	Table  uint32
	Prefix netip.Prefix
	Type   RouteType
	Metric uint32
	// Protocol says who made it (RTPROT_*).
	Protocol uint8
	Hops     []Hop
	// KernelOnly says why only the kernel can follow the route: it has a condition or
	// an effect that is not modelled here. "" if the data path can too.
	KernelOnly string
}

// Hop is one next hop of a route.
type Hop struct {
	Gateway netip.Addr // invalid: destinations are on the link
	Ifindex int
	Weight  int
	Dead    bool // or the link has no carrier
}

// NUD is a neighbour's state (neighbour unreachability detection, RFC 4861).
type NUD uint16

// The states of a neighbour (NUD_*).
const (
	NUDIncomplete NUD = 0x01
	NUDReachable  NUD = 0x02
	NUDStale      NUD = 0x04
	NUDDelay      NUD = 0x08
	NUDProbe      NUD = 0x10
	NUDFailed     NUD = 0x20
	NUDNoARP      NUD = 0x40
	NUDPermanent  NUD = 0x80
)

// Neighbour is an entry of the neighbour table.
type Neighbour struct {
	Ifindex int
	Addr    netip.Addr
	MAC     net.HardwareAddr
	State   NUD
	Managed bool // the kernel keeps it resolved (NTF_EXT_MANAGED)
}

// Usable says whether frames may be sent to MAC. A stale entry is usable: it was right,
// and using it makes the kernel check it.
func (n Neighbour) Usable() bool {
	const usable = NUDReachable | NUDStale | NUDDelay | NUDProbe | NUDPermanent
	return n.State&usable != 0 && len(n.MAC) == 6
}

// Rule is a policy rule (`ip rule`). Standard is one of the three that the
// kernel starts with: local, main, default.
type Rule struct {
	IPv6     bool
	Priority int
	Table    uint32
	Standard bool
}
