package port

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Roles say what may enter by a port (docs/adr/0019-ports-have-roles.md). A port
// without roles is not guarded.
type Roles uint32

// The roles. N3 stands for n9 too.
const (
	N3   = Roles(abi.PortFlagsPORT_N3)
	N6   = Roles(abi.PortFlagsPORT_N6)
	N4   = Roles(abi.PortFlagsPORT_N4)
	SR   = Roles(abi.PortFlagsPORT_SR)
	Edge = Roles(abi.PortFlagsPORT_EDGE)
)

// RoleOf are the roles by their names in the configuration.
var RoleOf = map[string]Roles{"n3": N3, "n9": N3, "n6": N6, "n4": N4, "sr": SR, "edge": Edge}

// Access says who may send GTP-U by a port, and what of this host may be reached.
type Access struct {
	Peers    []netip.Prefix // at most MaxPeers of each family
	Services []Service      // at most MaxServices
	// HostAny lets everything for this host pass to the kernel, HostForward what is for
	// others, which the kernel may forward.
	HostAny, HostForward bool
}

// Service is one of the host's.
type Service struct {
	Protocol uint8
	Port     uint16 // of TCP, UDP or SCTP; 0: all of the protocol
	// Answers lets TCP segments with ACK in that come from the port, too: the host is
	// also the client.
	Answers bool
}

// The most that an Access holds.
const (
	MaxPeers    = len(abi.Access{}.Peers4)
	MaxServices = len(abi.Access{}.Service)
	// MaxAccesses is how many different ones there may be at a time.
	MaxAccesses = 63
)

// Flags are those of the port.
func (a Access) Flags() (f abi.PortFlags) {
	if a.HostAny {
		f |= abi.PortFlagsPORT_HOST_ANY
	}
	if a.HostForward {
		f |= abi.PortFlagsPORT_HOST_FORWARD
	}
	return f
}

// Entry is what the data path reads.
func (a Access) Entry() (e abi.Access, err error) {
	for _, p := range a.Peers {
		p = p.Masked()
		switch {
		case p.Addr().Is4() && e.Peers4Count < uint32(MaxPeers):
			mask := netip.AddrFrom4([4]byte{255, 255, 255, 255})
			all, _ := mask.Prefix(p.Bits()) // of an IPv4 prefix
			e.Peers4[e.Peers4Count] = abi.Prefix4{Address: abi.BE32(p.Addr()), Mask: abi.BE32(all.Addr())}
			e.Peers4Count++
		case p.Addr().Is6() && e.Peers6Count < uint32(MaxPeers):
			hi, lo := abi.Halves(p.Addr())
			e.Peers6[e.Peers6Count] = abi.Prefix6{Hi: hi, Lo: lo, MaskHi: abi.Ones(p.Bits()), MaskLo: abi.Ones(p.Bits() - 64)}
			e.Peers6Count++
		default:
			return e, fmt.Errorf("more than %d peers of one address family", MaxPeers)
		}
	}
	if len(a.Services) > MaxServices {
		return e, errors.New("too many services of the host")
	}
	for i, s := range a.Services {
		e.Service[i] = abi.Service{Protocol: s.Protocol, Port: s.Port}
		abi.SetFlag(&e.Service[i].Answers, s.Answers)
	}
	e.ServicesCount = uint32(len(a.Services))
	return e, nil
}
