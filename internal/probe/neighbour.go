package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Discovery is a message of Neighbor Discovery (RFC 4861) that a host or a router
// sends on its own.
type Discovery struct {
	From   Space
	Device string
	To     netip.Addr // a multicast address
	Octets []byte     // from the ICMPv6 type on; the kernel fills in the checksum
	Count  int
}

// RouterSolicitation and RouterAdvertisement are the shortest of their kind (RFC 4861
// sections 4.1 and 4.2): without options, and a router that is nobody's default.
var (
	RouterSolicitation  = []byte{133, 0, 0, 0, 0, 0, 0, 0}
	RouterAdvertisement = []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
)

// Send sends the message so often, with a hop limit of 255.
func (d Discovery) Send(ctx context.Context) error {
	return d.From.Do(func() error {
		config := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
			if err := boundTo(d.Device)(network, address, c); err != nil {
				return err
			}
			return controlRaw(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255) })
		}}
		c, err := config.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
		if err != nil {
			return fmt.Errorf("open a socket for ICMPv6: %w", err)
		}
		defer c.Close()
		for range d.Count {
			if _, err := c.WriteTo(d.Octets, &net.IPAddr{IP: d.To.AsSlice(), Zone: d.Device}); err != nil {
				return fmt.Errorf("send by %s: %w", d.Device, err)
			}
		}
		return nil
	})
}
