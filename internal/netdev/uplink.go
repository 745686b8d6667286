package netdev

import (
	"net/netip"
	"slices"
)

// Toward returns the link that leads to an address and the next hop there, which is the
// address itself if that is on the link.
func (s *Snapshot) Toward(a netip.Addr) (Link, netip.Addr, error) {
	l, hop, err := s.route(Key{NextHop: a})
	if err != nil {
		return Link{}, netip.Addr{}, err
	}
	return *l, hop, nil
}

// Uplinks returns the interfaces that lead to the other nodes of a cluster: those that
// are named or, if none is, those of IPv6 default routes, of this node's address (if
// valid) and of the routes to the others.
func (s *Snapshot) Uplinks(named []string, own netip.Addr, others []netip.Addr) []Link {
	var out []Link
	add := func(l Link, ok bool) {
		if ok && !l.Loopback && l.Name != EntryName && !slices.ContainsFunc(out, func(u Link) bool { return u.Index == l.Index }) {
			out = append(out, l)
		}
	}
	for _, name := range named {
		add(s.Link(name))
	}
	if len(named) > 0 {
		return out
	}
	for _, r := range s.Routes {
		if r.Table == TableMain && r.Type == RouteUnicast && r.Prefix == netip.PrefixFrom(netip.IPv6Unspecified(), 0) {
			for _, h := range r.Hops {
				add(s.LinkByIndex(h.Ifindex))
			}
		}
	}
	for _, a := range s.Addresses {
		if a.Prefix.Addr() == own {
			add(s.LinkByIndex(a.Ifindex))
		}
	}
	for _, a := range others {
		l, _, err := s.Toward(a)
		add(l, err == nil)
	}
	return out
}

// GlobalAddresses returns the usable global IPv6 addresses of a link.
func (s *Snapshot) GlobalAddresses(ifindex int) (out []netip.Addr) {
	for _, a := range s.Addresses {
		ip := a.Prefix.Addr()
		if a.Ifindex == ifindex && ip.Is6() && ip.IsGlobalUnicast() && !a.Tentative {
			out = append(out, ip)
		}
	}
	return out
}

// Routed returns a function that says whether routes other than the overlay's cover a
// prefix of the underlay. A default route does not count.
func (s *Snapshot) Routed() func(netip.Prefix) bool {
	var others []netip.Prefix
	for _, r := range s.Routes {
		if r.Table == TableMain && r.Protocol != OverlayProtocol && r.Prefix.Bits() > 0 && r.Prefix.Addr().Is6() {
			others = append(others, r.Prefix)
		}
	}
	return func(p netip.Prefix) bool {
		return slices.ContainsFunc(others, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) })
	}
}
