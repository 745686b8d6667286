package punt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
)

// transmitter sends frames: a packet socket, or without CAP_NET_RAW
// *xdp.Transmitter.
type transmitter interface {
	Transmit(frame []byte, ifindex int) error
	Close() error
}

// sender sends the node's own packets: back where a frame came from, or by a
// table, whose next hop it finds in the snapshot as for any adjacency.
type sender struct {
	out   transmitter
	links func() *netdev.Snapshot
	ask   func(netdev.Key) // for a neighbour that is not resolved
	// steered says whether the node steers packets to an address, and steer sends one so.
	steered func(netip.Addr) bool
	steer   func(packet []byte) error
	// toUE sends a packet through the data path, by the rules of a session.
	toUE func(session uint64, packet []byte) error
	// raw, if there is one, sends by the kernel's main table.
	raw *slowpath.RawSender
}

// Source is the address of the interface that the packet leaves by, or else the
// one that the kernel would send from.
func (s *sender) Source(dst netip.Addr, way slowpath.Way) (netip.Addr, error) {
	links := s.links()
	switch {
	case way.Back == nil && way.Table == event.SessionTable: // a UE is answered from where its packet came by, or from any
		addr, ok := addressOn(links, way.Ifindex, dst)
		if !ok {
			addr, ok = anyLocal(links, dst, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() })
		}
		if !ok {
			return netip.Addr{}, fmt.Errorf("%w: the node has no address to answer %s from", slowpath.ErrNoRoute, dst)
		}
		return addr, nil
	case s.goesSteered(links, dst, way):
		addr, err := slowpath.KernelSource(dst, way.Ifindex)
		if err != nil || addr.IsLoopback() { // the main table need not lead there
			addr, _ = anyLocal(links, dst, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() })
		}
		if !addr.IsValid() {
			return addr, fmt.Errorf("%w: the node has no address to answer %s from", slowpath.ErrNoRoute, dst)
		}
		return addr, nil
	case way.Back == nil && way.Table == netdev.TableMain:
		return slowpath.KernelSource(dst, way.Ifindex)
	}
	ifindex, tags := way.Ifindex, tagsOf(way.Back)
	if way.Back == nil {
		nh, err := s.nextHop(links, dst, way)
		if err != nil {
			return netip.Addr{}, err
		}
		ifindex, tags = nh.Ifindex, nh.VLANs
	}
	ifindex = subinterface(links, ifindex, tags)
	if addr, ok := addressOn(links, ifindex, dst); ok {
		return addr, nil
	}
	addr, err := slowpath.KernelSource(dst, ifindex)
	if err != nil { // the main table has no route: any address of the node will do
		if local, ok := anyLocal(links, dst, netip.Addr.IsValid); ok {
			return local, nil
		}
	}
	return addr, err
}

// Send sends an IP packet with all its lengths and checksums.
func (s *sender) Send(packet []byte, way slowpath.Way) error {
	if way.Back != nil {
		l, ok := s.links().LinkByIndex(way.Ifindex)
		switch {
		case !ok:
			return fmt.Errorf("send back: there is no interface %d", way.Ifindex)
		case s.raw == nil && l.XDP&netdev.XDPTransmit == 0:
			return fmt.Errorf("send back by %s: frames cannot be redirected to it, and a packet socket needs CAP_NET_RAW", l.Name)
		}
		return s.out.Transmit(slices.Concat(way.Back, packet), way.Ifindex)
	}
	dst, etherType, err := destination(packet)
	if err != nil {
		return err
	}
	if s.goesSteered(s.links(), dst, way) {
		return s.steer(packet)
	}
	if way.Table == netdev.TableMain && s.raw != nil {
		return s.raw.Send(packet, way.Ifindex)
	}
	if way.Table == event.SessionTable {
		return s.toUE(way.Session, packet)
	}
	nh, err := s.nextHop(s.links(), dst, way)
	switch {
	case err != nil:
		return err
	case nh.Pass:
		return fmt.Errorf("send to %s: only the kernel can (%s), by its main table and with CAP_NET_RAW", dst, nh.Why)
	case len(packet) > nh.MTU:
		return fmt.Errorf("send to %s: %d bytes, the MTU is %d", dst, len(packet), nh.MTU)
	}
	frame := slices.Concat(nh.Dst, nh.Src)
	for _, v := range nh.VLANs {
		frame = binary.BigEndian.AppendUint16(frame, v.TPID)
		frame = binary.BigEndian.AppendUint16(frame, v.ID)
	}
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	return s.out.Transmit(append(frame, packet...), nh.Ifindex)
}

// goesSteered says whether a packet of the node itself takes a policy or a tunnel: steering comes
// before the main table, and helps where another table has no route.
func (s *sender) goesSteered(links *netdev.Snapshot, dst netip.Addr, way slowpath.Way) bool {
	if way.Back != nil || way.Table == event.SessionTable || s.steered == nil || !s.steered(dst) {
		return false
	}
	if way.Table == 0 || way.Table == netdev.TableMain {
		return true
	}
	_, err := s.nextHop(links, dst, way)
	return errors.Is(err, slowpath.ErrNoRoute)
}

// anyLocal is an address of the node of the family of dst.
func anyLocal(links *netdev.Snapshot, dst netip.Addr, fits func(netip.Addr) bool) (netip.Addr, bool) {
	local := links.Local()
	i := slices.IndexFunc(local, func(a netip.Addr) bool { return a.Is4() == dst.Is4() && fits(a) })
	if i < 0 {
		return netip.Addr{}, false
	}
	return local[i], true
}

// nextHop finds the next hop in a routing table.
func (s *sender) nextHop(links *netdev.Snapshot, dst netip.Addr, way slowpath.Way) (netdev.NextHop, error) {
	switch {
	case way.Table == 0:
		return netdev.NextHop{}, fmt.Errorf("send to %s: %w: the packet is of no table", dst, slowpath.ErrNoRoute)
	case way.Table != netdev.TableMain && dst.IsLinkLocalUnicast():
		return netdev.NextHop{}, fmt.Errorf("send to %s: %w: nobody knows on which link", dst, slowpath.ErrNoRoute)
	}
	key := netdev.Key{NextHop: dst, Table: way.Table}
	if dst.IsLinkLocalUnicast() {
		l, ok := links.LinkByIndex(way.Ifindex)
		if !ok {
			return netdev.NextHop{}, fmt.Errorf("send to %s: there is no interface %d", dst, way.Ifindex)
		}
		key = netdev.Key{NextHop: dst, Interface: l.Name}
	}
	nh, err := netdev.Resolve(links, key)
	switch {
	case errors.Is(err, netdev.ErrNoNeighbour):
		s.ask(key)
	case errors.Is(err, netdev.ErrNoRoute), errors.Is(err, netdev.ErrUnreachable):
		err = fmt.Errorf("%w: %w", slowpath.ErrNoRoute, err)
	}
	if err != nil {
		return nh, fmt.Errorf("send to %s: %w", dst, err)
	}
	return nh, nil
}

// tagsOf are the VLAN tags of an Ethernet header.
func tagsOf(header []byte) []netdev.VLAN {
	var tags []netdev.VLAN
	for at := 12; at+6 <= len(header); at += 4 {
		tags = append(tags, netdev.VLAN{
			TPID: binary.BigEndian.Uint16(header[at:]), ID: binary.BigEndian.Uint16(header[at+2:]) & 0xfff,
		})
	}
	return tags
}

// subinterface returns the VLAN device that receives frames with these tags, or
// the interface itself if no such device exists. VLAN 0 is only a priority.
func subinterface(links *netdev.Snapshot, ifindex int, tags []netdev.VLAN) int {
	for _, tag := range tags {
		if tag.ID == 0 {
			continue
		}
		i := slices.IndexFunc(links.Links, func(l netdev.Link) bool {
			return l.Kind == "vlan" && l.Parent == ifindex && !l.ParentElsewhere && l.VLAN == tag
		})
		if i < 0 {
			return ifindex
		}
		ifindex = links.Links[i].Index
	}
	return ifindex
}

// addressOn is the node's address on an interface to answer dst from: one of
// the same scope first, and of these one of dst's own subnet.
func addressOn(links *netdev.Snapshot, ifindex int, dst netip.Addr) (netip.Addr, bool) {
	var best netip.Addr
	rank := -1
	for _, a := range links.Addresses {
		addr := a.Prefix.Addr()
		if a.Ifindex != ifindex || a.Tentative || addr.Is4() != dst.Is4() || addr.IsLinkLocalUnicast() != dst.IsLinkLocalUnicast() {
			continue
		}
		r := 0
		if a.Prefix.Masked().Contains(dst) {
			r = 1
		}
		if r > rank || r == rank && addr.Less(best) {
			best, rank = addr, r
		}
	}
	return best, rank >= 0
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
