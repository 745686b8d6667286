package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
)

// Why a next hop is not ready. Resolve's errors wrap one of these and say
// which interface, address or route is meant.
var (
	ErrNoInterface = errors.New("no such interface")
	ErrDown        = errors.New("interface is down")
	ErrNoRoute     = errors.New("no route")
	ErrUnreachable = errors.New("route says unreachable")
	ErrNoNeighbour = errors.New("neighbour is not resolved")
	ErrBadKey      = errors.New("neither next hop nor interface")
)

// maxTags is how many VLAN tags the data path pushes.
const maxTags = 2

// Resolve returns how frames reach a next hop in this snapshot. An error says why they
// cannot yet. NextHop.Pass says that only the kernel can send there: by its routes or,
// if Dst is set, by transmitting a frame that has its addresses.
func Resolve(s *Snapshot, k Key) (NextHop, error) {
	l, addr, err := s.locate(k)
	if err != nil {
		return NextHop{}, err
	}
	nh, framed, err := s.egress(l)
	if err != nil || !framed || !addr.IsValid() {
		return nh, err
	}
	n := s.lookup().neighbours[neighbourKey{l.Index, addr}]
	switch {
	case nh.Pass && (n == nil || n.State == NUDNoARP || !n.Usable()):
		return nh, nil
	case n == nil:
		return NextHop{}, fmt.Errorf("%s on %s: %w: never asked for", addr, l.Name, ErrNoNeighbour)
	case n.State == NUDNoARP:
		return pass(nh, "%s on %s is not resolved by ARP or Neighbour Discovery", addr, l.Name), nil
	case !n.Usable():
		return NextHop{}, fmt.Errorf("%s on %s: %w: no answer", addr, l.Name, ErrNoNeighbour)
	}
	nh.Dst = n.MAC
	return nh, nil
}

// locate returns the link, and the address of the neighbour on it. The address is
// invalid if it is the packet's own destination.
func (s *Snapshot) locate(k Key) (*Link, netip.Addr, error) {
	x := s.lookup()
	// The interface says what a zone would; neighbours are listed without.
	k.NextHop = k.NextHop.WithZone("").Unmap()
	if k.Interface != "" {
		l := x.byName[k.Interface]
		if l == nil {
			return nil, netip.Addr{}, fmt.Errorf("%s: %w", k.Interface, ErrNoInterface)
		}
		return l, k.NextHop, nil
	}
	if !k.NextHop.IsValid() {
		return nil, netip.Addr{}, ErrBadKey
	}
	return s.route(k)
}

// route looks up a next hop without an interface in its table: the first one that is alive.
func (s *Snapshot) route(k Key) (*Link, netip.Addr, error) {
	if cmp.Or(k.Table, TableMain) == TableMain && s.lookup().local[k.NextHop] {
		return s.lookup().byName["lo"], netip.Addr{}, nil
	}
	r, err := s.unicast(k)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	for _, h := range r.Hops {
		if l := s.lookup().byIndex[h.Ifindex]; l != nil && !h.Dead {
			return l, cmp.Or(h.Gateway, k.NextHop), nil
		}
	}
	if len(r.Hops) > 0 {
		return nil, netip.Addr{}, fmt.Errorf("%s by %s: %w", k.NextHop, r.Prefix, ErrDown)
	}
	return nil, netip.Addr{}, fmt.Errorf("%s by %s: %w: it names no interface", k.NextHop, r.Prefix, ErrNoRoute)
}

// unicast is the route that leads to a next hop.
func (s *Snapshot) unicast(k Key) (*Route, error) {
	number := cmp.Or(k.Table, TableMain)
	routes := s.lookup().tables[number].match(k.NextHop)
	if len(routes) == 0 {
		return nil, fmt.Errorf("%s in table %d: %w", k.NextHop, number, ErrNoRoute)
	}
	switch r := routes[0]; r.Type {
	case RouteUnicast:
		return r, nil
	case RouteBlackhole, RouteUnreachable, RouteProhibit:
		return nil, fmt.Errorf("%s by %s in table %d: %w", k.NextHop, r.Prefix, number, ErrUnreachable)
	default:
		return nil, fmt.Errorf("%s by %s in table %d: %w: not a unicast route", k.NextHop, r.Prefix, number, ErrNoRoute)
	}
}

// Share is one of several next hops that are equally good.
type Share struct {
	Key
	Weight int
}

// Shares are the next hops that the flows to a key share. The list is empty where one next
// hop takes them all: the key is on a link or at this node, its route has one next hop, or
// only the kernel can follow the route.
func (s *Snapshot) Shares(k Key) []Share {
	k.NextHop = k.NextHop.WithZone("").Unmap()
	if k.Interface != "" || !k.NextHop.IsValid() || s.lookup().local[k.NextHop] {
		return nil
	}
	r, err := s.unicast(k)
	if err != nil || r.KernelOnly != "" {
		return nil
	}
	var out []Share
	for _, h := range r.Hops {
		if l := s.lookup().byIndex[h.Ifindex]; l != nil && !h.Dead {
			out = append(out, Share{Key{NextHop: cmp.Or(h.Gateway, k.NextHop), Interface: l.Name}, max(h.Weight, 1)})
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// egress returns the device that sends a link's frames, and their tags. framed says that
// the sender writes the Ethernet header; otherwise the kernel has to.
func (s *Snapshot) egress(l *Link) (nh NextHop, framed bool, err error) {
	nh = NextHop{Ifindex: l.Index, MTU: l.MTU, Src: l.MAC}
	leaf := l
	for {
		if !l.Up || !l.Carrier {
			return NextHop{}, false, fmt.Errorf("%s: %w", l.Name, ErrDown)
		}
		nh.MTU = min(nh.MTU, l.MTU)
		nh.Ifindex = l.Index
		if l.Kind != "vlan" {
			break
		}
		nh.VLANs = append([]VLAN{l.VLAN}, nh.VLANs...)
		parent := s.lookup().byIndex[l.Parent]
		if l.ParentElsewhere || parent == nil {
			return pass(nh, "the device below %s is in another network namespace", l.Name), false, nil
		}
		l = parent
	}
	switch {
	case l.Loopback:
		return pass(nh, "the packet ends at this node"), false, nil
	case !l.Ethernet:
		return pass(nh, "%s is not an Ethernet device", l.Name), false, nil
	case len(nh.VLANs) > maxTags:
		return pass(nh, "%s has %d VLAN tags, at most %d can be pushed", leaf.Name, len(nh.VLANs), maxTags), false, nil
	case s.AnyEthernet:
		return nh, true, nil
	case l.Kind == "bridge":
		return pass(nh, "%s is a bridge: the kernel chooses its port", l.Name), true, nil
	case l.XDP&XDPTransmit == 0 && l.Kind == "veth":
		return pass(nh, "%s cannot be redirected to: its peer has neither GRO nor an XDP program (ethtool -K PEER gro on)", l.Name), true, nil
	case l.XDP&XDPTransmit == 0:
		return pass(nh, "the driver of %s (%s) cannot be redirected to", l.Name, l.Driver), true, nil
	}
	return nh, true, nil
}

func pass(nh NextHop, format string, args ...any) NextHop {
	nh.Pass = true
	nh.Why = fmt.Sprintf(format, args...)
	return nh
}
