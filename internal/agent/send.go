package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
)

// transmitter is what xdpSender needs of *dataplane.Transmitter.
type transmitter interface {
	Transmit(frame []byte, ifindex int) error
	Close() error
}

// xdpSender sends the node's own packets without a raw socket: it finds the
// next hop in the snapshot as for any adjacency, and has the frame redirected.
type xdpSender struct {
	out   transmitter
	links func() *netdev.Snapshot
	ask   func(netdev.Key) // for a neighbour that is not resolved
	// kernel chooses source addresses, which takes no raw socket.
	kernel slowpath.RawSender
}

// Source is the address that the kernel would send from.
func (s *xdpSender) Source(dst netip.Addr, ifindex int) (netip.Addr, error) {
	return s.kernel.Source(dst, ifindex)
}

// Send sends an IP packet with all its lengths and checksums.
func (s *xdpSender) Send(packet []byte, ifindex int) error {
	dst, etherType, err := destination(packet)
	if err != nil {
		return err
	}
	links := s.links()
	key := netdev.Key{NextHop: dst}
	if dst.IsLinkLocalUnicast() {
		l, ok := links.LinkByIndex(ifindex)
		if !ok {
			return fmt.Errorf("send to %s: there is no interface %d", dst, ifindex)
		}
		key.Interface = l.Name
	}
	nh, err := netdev.Resolve(links, key)
	switch {
	case errors.Is(err, netdev.ErrNoNeighbour):
		s.ask(key)
		return fmt.Errorf("send to %s: %w", dst, err)
	case err != nil:
		return fmt.Errorf("send to %s: %w", dst, err)
	case nh.Pass:
		return fmt.Errorf("send to %s: only the kernel can (%s), which needs CAP_NET_RAW", dst, nh.Why)
	case len(packet) > nh.MTU:
		return fmt.Errorf("send to %s: %d bytes, the MTU is %d", dst, len(packet), nh.MTU)
	}
	return s.out.Transmit(frameOf(nh, etherType, packet), nh.Ifindex)
}

func destination(packet []byte) (netip.Addr, uint16, error) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20])), 0x0800, nil
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40])), 0x86dd, nil
	}
	return netip.Addr{}, 0, errors.New("send: neither an IPv4 nor an IPv6 packet")
}

func frameOf(nh netdev.NextHop, etherType uint16, packet []byte) []byte {
	b := make([]byte, 0, 14+4*len(nh.VLANs)+len(packet))
	b = append(b, nh.Dst...)
	b = append(b, nh.Src...)
	for _, v := range nh.VLANs {
		b = binary.BigEndian.AppendUint16(b, v.TPID)
		b = binary.BigEndian.AppendUint16(b, v.ID)
	}
	b = binary.BigEndian.AppendUint16(b, etherType)
	return append(b, packet...)
}
