package netdev

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OverlayProtocol marks the routes to other nodes and their pods
// (rtm_protocol, as RouteProtocol).
const OverlayProtocol = 84

// EntryName is the interface that the kernel sends into for pods of other nodes,
// and exitName its other end, where the data path takes these packets.
const (
	EntryName = "culvert0"
	exitName  = "culvert1"
)

// Entry is the pair of the two.
type Entry struct {
	Ifindex int // of culvert0
	Exit    int // ifindex of culvert1
	MAC     MAC // of culvert0: the data path addresses to it what the kernel gets
}

// MAC is the address of an Ethernet device.
type MAC [6]byte

// randomMAC returns one that is unicast and locally administered.
func randomMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	_, _ = rand.Read(mac) // it never fails
	mac[0] = mac[0]&0xfc | 0x02
	return mac
}

// makeEntry gives both ends a MAC. udev replaces one that the kernel chose
// (MACAddressPolicy=persistent), and leaves one that somebody set.
func (h *Host) makeEntry(mtu int) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: EntryName, MTU: mtu, HardwareAddr: randomMAC()},
		PeerName:  exitName, PeerHardwareAddr: randomMAC(),
	}
	if err := h.handle.LinkAdd(pair); err != nil {
		return fmt.Errorf("make %s: %w", EntryName, err)
	}
	return nil
}

// PutEntry makes the pair, with the addresses given and no others. The kernel
// asks for no neighbours there. Without a link-local address it sends no Redirects
// (RFC 4861 section 8.2), which it would for a packet that came out of one tunnel and
// goes into another: it comes in by culvert0, and leaves by it.
func (h *Host) PutEntry(addresses []netip.Addr, mtu int) (Entry, error) {
	link, err := h.handle.LinkByName(EntryName)
	if isNotFound(err) {
		if err := h.makeEntry(mtu); err != nil {
			return Entry{}, err
		}
		link, err = h.handle.LinkByName(EntryName)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", EntryName, err)
	}
	if link.Type() != "veth" {
		return Entry{}, fmt.Errorf("%s is a %s that is not ours: remove it, or give it another name", EntryName, link.Type())
	}
	exit, err := h.handle.LinkByName(exitName)
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", exitName, err)
	}
	e := Entry{Ifindex: link.Attrs().Index, Exit: exit.Attrs().Index}
	copy(e.MAC[:], link.Attrs().HardwareAddr)
	if err := h.handle.LinkSetIP6AddrGenMode(link, noLinkLocal); err != nil {
		return Entry{}, fmt.Errorf("%s without a link-local address: %w", EntryName, err)
	}
	for _, l := range []netlink.Link{link, exit} {
		if err := h.setUp(l, mtu); err != nil {
			return Entry{}, err
		}
	}
	// The kernel puts no tunnel around many packets of SCTP in one.
	if err := h.ethtool.Change(EntryName, map[string]bool{"tx-sctp-segmentation": false}); err != nil {
		return Entry{}, fmt.Errorf("have packets of SCTP come one by one to %s: %w", EntryName, err)
	}
	return e, h.setAddresses(link, addresses)
}

// noLinkLocal is IN6_ADDR_GEN_MODE_NONE (linux/if_link.h).
const noLinkLocal = 1

func (h *Host) setUp(l netlink.Link, mtu int) error {
	name := l.Attrs().Name
	if l.Attrs().MTU != mtu {
		if err := h.handle.LinkSetMTU(l, mtu); err != nil {
			return fmt.Errorf("MTU %d of %s: %w", mtu, name, err)
		}
	}
	if l.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := h.handle.LinkSetARPOff(l); err != nil {
			return fmt.Errorf("%s without ARP: %w", name, err)
		}
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		if err := h.handle.LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	return nil
}

func (h *Host) setAddresses(l netlink.Link, want []netip.Addr) error {
	have, err := stable(func() ([]netlink.Addr, error) { return h.handle.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", EntryName, err)
	}
	var there []netip.Addr
	for i := range have {
		a, _ := netip.AddrFromSlice(have[i].IP)
		a = a.Unmap()
		if slices.Contains(want, a) {
			there = append(there, a)
		} else if err := h.handle.AddrDel(l, &have[i]); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove %s from %s: %w", a, EntryName, err)
		}
	}
	for _, a := range want {
		if slices.Contains(there, a) {
			continue
		}
		add := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
		if a.Is6() {
			add.Flags = unix.IFA_F_NODAD
		}
		if err := h.handle.AddrReplace(l, add); err != nil {
			return fmt.Errorf("add %s to %s: %w", a, EntryName, err)
		}
	}
	return nil
}

// DeleteEntry takes the pair away, with its addresses and routes.
func (h *Host) DeleteEntry() error {
	link, err := h.handle.LinkByName(EntryName)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = h.handle.LinkDel(link)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s: %w", EntryName, err)
	}
	return nil
}

// RemoveOverlay removes what the overlay added to the kernel's network: the entry,
// routes to other nodes, masquerading.
func RemoveOverlay() error {
	h, err := NewHost()
	if err != nil {
		return err
	}
	defer h.Close()
	errs := []error{h.DeleteEntry(), h.Masquerade(nil, nil)}
	routes, err := stable(func() ([]netlink.Route, error) {
		return h.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: OverlayProtocol}, netlink.RT_FILTER_PROTOCOL)
	})
	errs = append(errs, err)
	for _, r := range routes {
		if err := h.handle.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// HostRoute is a route of the kernel's main table to other nodes or their pods.
type HostRoute struct {
	Prefix  netip.Prefix
	Gateway netip.Addr // invalid: destinations are on the link
	Ifindex int
	Source  netip.Addr // of what the host itself sends; the kernel's choice unless set
	// Unreachable leads nowhere: senders are told, as far as no longer prefix leads on.
	Unreachable bool
	// Metric is one of an earlier version's; 0: the one that routes have now.
	Metric uint32
}

// Metric6 is that of our IPv6 routes. It is better than the 256 of a prefix that a router
// advertisement says is on a link: no host of the link takes pods and locators away by one.
const Metric6 = 128

// metric of a route to an address.
func metric(a netip.Addr) int {
	if a.Is6() {
		return Metric6
	}
	return 0
}

func (r HostRoute) netlink() *netlink.Route {
	out := &netlink.Route{
		LinkIndex: r.Ifindex, Protocol: OverlayProtocol, Gw: r.Gateway.AsSlice(), Src: r.Source.AsSlice(),
		Dst:      &net.IPNet{IP: r.Prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.Prefix.Bits(), r.Prefix.Addr().BitLen())},
		Priority: cmp.Or(int(r.Metric), metric(r.Prefix.Addr())),
	}
	switch {
	case r.Unreachable:
		out.Type = unix.RTN_UNREACHABLE
	case !r.Gateway.IsValid():
		out.Scope = netlink.SCOPE_LINK
	}
	return out
}

// PutRoute makes a route, or changes what it leads by.
func (h *Host) PutRoute(r HostRoute) error {
	if err := h.handle.RouteReplace(r.netlink()); err != nil {
		return fmt.Errorf("route to %s: %w", r.Prefix, err)
	}
	return nil
}

// DeleteRoute removes a route, if it is there.
func (h *Host) DeleteRoute(r HostRoute) error {
	if err := h.handle.RouteDel(r.netlink()); err != nil && !errors.Is(err, unix.ESRCH) && !isNotFound(err) {
		return fmt.Errorf("remove the route to %s: %w", r.Prefix, err)
	}
	return nil
}

// Forwarding has the kernel forward between the interfaces named, and believe
// that packets of pods come in by uplinks: their way back is another one.
func (h *Host) Forwarding(interfaces []string) error {
	// An uplink that learns its routes from routers would stop doing so.
	var errs []error
	for _, name := range interfaces {
		if read("net/ipv6/conf", name, "accept_ra") == "1" {
			errs = append(errs, write("2", "net/ipv6/conf", name, "accept_ra"))
		}
		// The stricter of the two counts; 2 is loose, and goes before 1.
		if read("net/ipv4/conf/all/rp_filter") == "1" || read("net/ipv4/conf", name, "rp_filter") == "1" {
			errs = append(errs, write("2", "net/ipv4/conf", name, "rp_filter"))
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if read(name) != "1" {
			errs = append(errs, write("1", name))
		}
	}
	return errors.Join(errs...)
}

func read(path ...string) string {
	data, err := os.ReadFile(filepath.Join(append([]string{"/proc/sys"}, path...)...))
	if err != nil {
		return "" // as of an interface that is gone
	}
	return strings.TrimSpace(string(data))
}

func write(value string, path ...string) error {
	return os.WriteFile(filepath.Join(append([]string{"/proc/sys"}, path...)...), []byte(value), 0o644)
}
