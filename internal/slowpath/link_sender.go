package slowpath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/netdev"
)

// LinkSender sends by the routes and neighbours of a snapshot, straight out of
// the link. It needs no raw sockets, and so no CAP_NET_RAW; in return it can
// send only where the data path can.
type LinkSender struct {
	// Network is the newest snapshot, nil before there is one.
	Network func() *netdev.Snapshot
	// Transmit sends a frame out of an interface.
	Transmit func(frame []byte, ifindex int) error
	// Solicit, if not nil, asks for a neighbour that is not resolved: the next
	// error will reach it.
	Solicit func(netdev.Key)
}

// ErrKernelOnly says that only the kernel can send there.
var ErrKernelOnly = errors.New("only the kernel can send there: with CAP_NET_RAW the daemon could ask it to")

// Source is the address that the kernel would send from.
func (s *LinkSender) Source(dst netip.Addr, ifindex int) (netip.Addr, error) {
	return kernelSource(dst, ifindex)
}

// Send sends an IP packet.
func (s *LinkSender) Send(packet []byte, ifindex int) error {
	dst, kind, ok := destination(packet)
	if !ok {
		return fmt.Errorf("not an IP packet: %d bytes", len(packet))
	}
	network := s.Network()
	if network == nil {
		return errors.New("the routes are not known yet")
	}
	key := netdev.Key{NextHop: dst}
	if dst.IsLinkLocalUnicast() {
		l, found := network.LinkByIndex(ifindex)
		if !found {
			return fmt.Errorf("%s on interface %d: no such interface", dst, ifindex)
		}
		key.Interface = l.Name
	}
	nh, err := netdev.Resolve(network, key)
	switch {
	case errors.Is(err, netdev.ErrNoNeighbour) && s.Solicit != nil:
		s.Solicit(key)
		return err
	case err != nil:
		return err
	case nh.Pass:
		return fmt.Errorf("%s: %w (%s)", dst, ErrKernelOnly, nh.Why)
	case len(packet) > nh.MTU:
		return fmt.Errorf("%s: %d bytes are more than the MTU of %d", dst, len(packet), nh.MTU)
	}
	return s.Transmit(append(ethernetHeader(nh, kind), packet...), nh.Ifindex)
}

// destination returns a packet's destination and EtherType.
func destination(packet []byte) (netip.Addr, uint16, bool) {
	if ip, _, ok := parseIPv4(packet); ok {
		return ip.dst(), 0x0800, true
	}
	if ip, _, ok := parseIPv6(packet); ok {
		return ip.dst(), 0x86dd, true
	}
	return netip.Addr{}, 0, false
}

func ethernetHeader(nh netdev.NextHop, kind uint16) []byte {
	b := append(append([]byte(nil), nh.Dst...), nh.Src...)
	for _, v := range nh.VLANs {
		b = binary.BigEndian.AppendUint16(b, v.TPID)
		b = binary.BigEndian.AppendUint16(b, v.ID)
	}
	return binary.BigEndian.AppendUint16(b, kind)
}
