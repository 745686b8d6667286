package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/srv6"
)

// announced returns the entries with their defaults, in a copy: others may share them.
func announced(list []announce.Entry) []announce.Entry {
	out := slices.Clone(list)
	for i := range out {
		e := &out[i]
		setDefault(&e.MaxFramedRoutes, announce.DefaultMaxFramedRoutes)
		setDefault(&e.HoldTime, announce.DefaultHoldTime)
		setDefault(&e.HoldDown, announce.DefaultHoldDown)
		if len(e.WithdrawOn) == 0 {
			e.WithdrawOn = []announce.Cause{announce.CauseN3, announce.CauseN4}
		}
	}
	return out
}

// checkAnnounce validates upf.announce.
func checkAnnounce(v *validator) {
	u := &v.UPF
	v.refuse(len(u.Announce) > 0 && !v.BGP.IsSet(),
		"upf.announce", "give the section bgp, with the routers as peers", "the node speaks no BGP")
	names := v.unique()
	for i := range u.Announce {
		e, at := &u.Announce[i], fmt.Sprintf("upf.announce[%d]", i)
		names.check(at+".network_instance", e.Name(), "announce each network instance once")
		pools := poolsOf(u, e.NetworkInstance)
		if len(pools) == 0 {
			v.add(at+".network_instance", "the network_instance of one of upf.ue_pools", "no pool has the network instance %q", e.NetworkInstance)
		}
		v.refuse(!e.Pools && !e.FramedRoutes, at+".pools", "set pools, framed_routes, or both to true", "nothing is to be announced")
		checkNextHops(v, at, e, pools)
		for j, text := range e.Communities {
			if _, err := announce.ParseCommunity(text); err != nil {
				v.add(fmt.Sprintf("%s.communities[%d]", at, j), "65001:100, 65001:1:2, or a name such as no-export", "%s", err)
			}
		}
		for j, c := range e.WithdrawOn {
			v.oneOf(fmt.Sprintf("%s.withdraw_on[%d]", at, j), string(c), string(announce.CauseN3), string(announce.CauseN4), string(announce.CauseN3Path))
		}
	}
}

// poolsOf are the prefixes of the pools of a network instance.
func poolsOf(u *UPF, instance string) (out []netip.Prefix) {
	for _, p := range u.UEPools {
		if strings.EqualFold(p.NetworkInstance, instance) {
			out = append(out, p.Prefixes...)
		}
	}
	return out
}

// checkNextHops checks that each pool can have a next hop of its family. An IPv6 prefix
// has none where BGP runs over IPv4, unless one is given.
func checkNextHops(v *validator, at string, e *announce.Entry, pools []netip.Prefix) {
	families := v.unique()
	for j, a := range e.NextHops {
		field := fmt.Sprintf("%s.next_hops[%d]", at, j)
		if v.fieldsAt(field, srv6.CheckUnicast(field, a)) {
			families.check(field, map[bool]string{true: "the IPv4 next hop", false: "the IPv6 next hop"}[a.Is4()], "give at most one of each family")
		}
	}
	isIPv6 := slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is6() })
	hasHop := slices.ContainsFunc(e.NextHops, netip.Addr.Is6)
	for i, p := range v.BGP.Peers {
		v.refuse(isIPv6 && !hasHop && p.Address.Is4(),
			at+".next_hops", "add this node's IPv6 address on N6", "IPv6 prefixes need an IPv6 next hop for the IPv4 peer bgp.peers[%d]", i)
	}
}
