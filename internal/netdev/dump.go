package netdev

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernel reads the network state through sockets that stay in the network
// namespace they were opened in, whatever thread uses them later.
type kernel struct {
	handle  *netlink.Handle
	pods    podLinks
	route   *nl.SocketHandle
	generic *nl.SocketHandle
	ethtool *ethtool.Ethtool
	ioctl   int // a socket
	netdev  *netlink.GenlFamily
	// drivers are asked for once for each device: they do not change.
	drivers map[driverKey]string
}

type driverKey struct {
	ifindex int
	name    string
}

func openKernel() (k *kernel, err error) {
	k = &kernel{drivers: map[driverKey]string{}, ioctl: -1}
	defer func() {
		if err != nil {
			k.close()
			k = nil
		}
	}()
	if k.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_GENERIC); err != nil {
		return k, fmt.Errorf("open netlink: %w", err)
	}
	if k.route, err = openSocket(unix.NETLINK_ROUTE); err != nil {
		return k, err
	}
	if k.generic, err = openSocket(unix.NETLINK_GENERIC); err != nil {
		return k, err
	}
	if k.ethtool, err = ethtool.NewEthtool(); err != nil {
		return k, fmt.Errorf("open ethtool: %w", err)
	}
	if k.ioctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return k, fmt.Errorf("open ethtool: %w", err)
	}
	if k.netdev, err = k.handle.GenlFamilyGet("netdev"); err != nil {
		return k, fmt.Errorf("ask for the netlink family netdev (Linux 6.3 or newer has it): %w", err)
	}
	return k, nil
}

func openSocket(family int) (*nl.SocketHandle, error) {
	s, err := nl.Subscribe(family)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}

func (k *kernel) close() {
	if k.handle != nil {
		k.handle.Close()
	}
	for _, s := range []*nl.SocketHandle{k.route, k.generic} {
		if s != nil {
			s.Close()
		}
	}
	if k.ioctl >= 0 {
		unix.Close(k.ioctl)
	}
	if k.ethtool != nil {
		k.ethtool.Close()
	}
}

// stable repeats a library call whose dump was interrupted by a change.
func stable[T any](list func() ([]T, error)) ([]T, error) {
	for range 5 {
		out, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, errors.New("the list changed under way five times")
}

func (k *kernel) links() ([]Link, error) {
	since := k.pods.now()
	list, err := stable(k.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	out := make([]Link, 0, len(list))
	drivers := make(map[driverKey]string, len(list))
	var pods []Link
	for _, l := range list {
		link := newLink(l)
		if IsPod(link.Name) {
			pods = append(pods, link)
			continue
		}
		if link.XDP, err = k.xdpFeatures(link.Index); err != nil {
			return nil, fmt.Errorf("%s: ask for XDP features: %w", link.Name, err)
		}
		key := driverKey{link.Index, link.Name}
		var known bool
		if link.Driver, known = k.drivers[key]; !known {
			// Devices without ethtool (lo) have no driver to name.
			link.Driver, _ = k.ethtool.DriverName(link.Name)
		}
		drivers[key] = link.Driver
		out = append(out, link)
	}
	k.drivers = drivers
	k.pods.set(pods, since)
	slices.SortFunc(out, func(a, b Link) int { return a.Index - b.Index })
	kinds := map[int]string{}
	for _, l := range out {
		kinds[l.Index] = l.Kind
	}
	for i := range out {
		out[i].MasterKind = kinds[out[i].Master]
	}
	return out, nil
}

func newLink(l netlink.Link) Link {
	a := l.Attrs()
	link := Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(), MTU: a.MTU, MAC: a.HardwareAddr,
		Up:       a.Flags&net.FlagUp != 0,
		Carrier:  a.RawFlags&unix.IFF_LOWER_UP != 0,
		Loopback: a.Flags&net.FlagLoopback != 0,
		Ethernet: a.EncapType == "ether",
		Parent:   a.ParentIndex, ParentElsewhere: a.NetNsID >= 0,
		Master: a.MasterIndex,
	}
	if a.Xdp != nil && a.Xdp.Attached {
		link.Program, link.Generic = a.Xdp.ProgId, a.Xdp.AttachMode == nl.XDP_ATTACHED_SKB
	}
	if v, ok := l.(*netlink.Vlan); ok {
		link.VLAN = VLAN{TPID: uint16(v.VlanProtocol), ID: uint16(v.VlanId)}
	}
	return link
}

// Attributes of the netlink family "netdev" (Linux, netdev.yaml).
const (
	netdevCmdDevGet      = 1
	netdevAttrIfindex    = 1
	netdevAttrXDPFeature = 3
)

// genericHeader is struct genlmsghdr: command, version, and two reserved bytes
// that this family wants to be 0 (the library's Genlmsg leaves them to chance).
type genericHeader [4]byte

func (genericHeader) Len() int            { return 4 }
func (h genericHeader) Serialize() []byte { return h[:] }

// xdpFeatures asks one device. A list cannot be asked for: its messages lack
// the flag by which the library sees that more follow.
func (k *kernel) xdpFeatures(ifindex int) (XDPFeatures, error) {
	req := nl.NewNetlinkRequest(int(k.netdev.ID), 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: k.generic}
	req.AddData(genericHeader{netdevCmdDevGet, 1})
	req.AddData(nl.NewRtAttr(netdevAttrIfindex, nl.Uint32Attr(uint32(ifindex))))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.ENODEV) {
		return 0, nil // gone meanwhile
	}
	if err != nil || len(msgs) == 0 {
		return 0, err
	}
	attrs, err := nl.ParseRouteAttr(msgs[0][nl.SizeofGenlmsg:])
	if err != nil {
		return 0, err
	}
	if v := attribute(attrs, netdevAttrXDPFeature); len(v) == 8 {
		return XDPFeatures(binary.NativeEndian.Uint64(v)), nil
	}
	return 0, nil
}

func (k *kernel) addresses() ([]Address, error) {
	list, err := stable(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []Address
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || k.pods.has(a.LinkIndex) {
			continue
		}
		ones, _ := a.Mask.Size()
		entry := Address{
			Ifindex:   a.LinkIndex,
			Prefix:    netip.PrefixFrom(addr.Unmap(), ones),
			Tentative: a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
		}
		if a.Peer != nil && !a.Peer.IP.Equal(a.IP) {
			if peer, ok := netip.AddrFromSlice(a.Peer.IP); ok {
				entry.Peer = peer.Unmap()
			}
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b Address) int {
		return cmp.Or(a.Ifindex-b.Ifindex, a.Prefix.Addr().Compare(b.Prefix.Addr()), a.Prefix.Bits()-b.Prefix.Bits())
	})
	return out, nil
}

func (k *kernel) neighbours() ([]Neighbour, error) {
	list, err := stable(func() ([]netlink.Neigh, error) { return k.handle.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	var out []Neighbour
	for _, n := range list {
		addr, ok := netip.AddrFromSlice(n.IP)
		if !ok || k.pods.has(n.LinkIndex) || n.Family != unix.AF_INET && n.Family != unix.AF_INET6 {
			continue
		}
		out = append(out, Neighbour{
			Ifindex: n.LinkIndex, Addr: addr.Unmap(), MAC: n.HardwareAddr, State: NUD(n.State),
			Managed: n.FlagsExt&netlink.NTF_EXT_MANAGED != 0,
		})
	}
	slices.SortFunc(out, func(a, b Neighbour) int {
		return cmp.Or(a.Ifindex-b.Ifindex, a.Addr.Compare(b.Addr))
	})
	return out, nil
}

func (k *kernel) rules() ([]Rule, error) {
	var out []Rule
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := stable(func() ([]netlink.Rule, error) { return k.handle.RuleList(f) })
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range list {
			if r.Family != f { // a kernel without the family answers with all
				continue
			}
			// "0: from all lookup local", "32766: from all lookup main" and "32767: from
			// all lookup default" are the standard ones.
			table, known := map[int]uint32{0: TableLocal, 32766: TableMain, 32767: TableDefault}[r.Priority]
			isStandard := known && uint32(r.Table) == table && r.Src == nil && r.Dst == nil && r.Mark == 0 &&
				r.IifName == "" && r.OifName == "" && !r.Invert && r.Tos == 0 && r.SuppressPrefixlen < 0 &&
				r.IPProto == 0 && r.Sport == nil && r.Dport == nil && r.UIDRange == nil
			out = append(out, Rule{IPv6: f == netlink.FAMILY_V6, Priority: r.Priority, Table: uint32(r.Table), Standard: isStandard})
		}
	}
	return out, nil
}

func (k *kernel) routes(wanted map[uint32]bool) (out []Route, err error) {
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := stable(func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
			request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.route}
			request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: f}})
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, m := range list {
			// A kernel without the family answers with all that it has.
			if len(m) > 0 && m[0] != f {
				continue
			}
			r, ok, err := parseRoute(m, wanted)
			if err != nil {
				return nil, fmt.Errorf("read a route: %w", err)
			}
			if isPod := len(r.Hops) == 1 && k.pods.has(r.Hops[0].Ifindex); ok && !isPod {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// What x/sys/unix leaves out of linux/netlink.h and linux/rtnetlink.h.
const (
	nlaTypeMask = 0x3fff
	rtaNHID     = 30
)

func attribute(attrs []syscall.NetlinkRouteAttr, kind uint16) []byte {
	for _, a := range attrs {
		if a.Attr.Type&nlaTypeMask == kind {
			return a.Value
		}
	}
	return nil
}
