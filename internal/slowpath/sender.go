package slowpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// RawSender sends through raw sockets: packets by the kernel's main table, and frames.
// It needs CAP_NET_RAW when it is made, not later.
type RawSender struct {
	ipv4, ipv6, frames int
}

// NewRawSender opens the sockets in the calling thread's network namespace.
func NewRawSender() (*RawSender, error) {
	s := &RawSender{-1, -1, -1}
	for _, of := range []struct {
		fd               *int
		family, protocol int
	}{
		{&s.ipv4, unix.AF_INET, unix.IPPROTO_RAW}, // takes whole packets
		{&s.ipv6, unix.AF_INET6, unix.IPPROTO_RAW},
		{&s.frames, unix.AF_PACKET, 0}, // receives nothing
	} {
		fd, err := unix.Socket(of.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, of.protocol)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a raw socket (needs CAP_NET_RAW): %w", err), s.Close())
		}
		*of.fd = fd
	}
	return s, nil
}

// Close closes the sockets.
func (s *RawSender) Close() error {
	for _, fd := range []*int{&s.ipv4, &s.ipv6, &s.frames} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

// KernelSource asks the kernel's routing for the source address to a destination, in the
// calling thread's network namespace. It connects a UDP socket, which sends nothing and
// needs no privileges.
func KernelSource(dst netip.Addr, ifindex int) (netip.Addr, error) {
	if dst.IsLinkLocalUnicast() && dst.Is6() {
		dst = dst.WithZone(strconv.Itoa(ifindex))
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9)))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the source address for %s: %w", dst, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// Transmit sends a frame on an interface.
func (s *RawSender) Transmit(frame []byte, ifindex int) error {
	return unix.Sendto(s.frames, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex})
}

// Send sends an IP packet.
func (s *RawSender) Send(packet []byte, ifindex int) error {
	if ip, _, ok := parseIPv4(packet); ok {
		return unix.Sendto(s.ipv4, packet, 0, &unix.SockaddrInet4{Addr: ip.dst().As4()})
	}
	ip, _, ok := parseIPv6(packet)
	if !ok {
		return fmt.Errorf("not an IP packet: %d bytes", len(packet))
	}
	to := &unix.SockaddrInet6{Addr: ip.dst().As16()}
	if ip.dst().IsLinkLocalUnicast() {
		to.ZoneId = uint32(ifindex)
	}
	return unix.Sendto(s.ipv6, packet, 0, to)
}
