package netdev

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// blackholeProtocol marks routes of Blackhole (rtm_protocol).
const blackholeProtocol = 85

// Blackhole keeps the kernel from forwarding packets to an address, until remove is called.
func Blackhole(a netip.Addr) (remove func() error, err error) {
	r := &netlink.Route{
		Dst:  &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Type: unix.RTN_BLACKHOLE, Protocol: blackholeProtocol,
	}
	if err := netlink.RouteReplace(r); err != nil {
		return nil, fmt.Errorf("keep the kernel from forwarding %s: %w", a, err)
	}
	return func() error { return netlink.RouteDel(r) }, nil
}
