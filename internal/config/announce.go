package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/slice"
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
		if e.VPN != "" {
			checkVPNEntry(v, at, e)
		}
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

// checkVPNEntry validates an entry for the VPN of a slice.
func checkVPNEntry(v *validator, at string, e *announce.Entry) {
	i := slices.IndexFunc(v.Slices, func(s slice.Slice) bool { return s.Name == e.VPN })
	switch {
	case i < 0 || v.Slices[i].VPN == nil:
		v.add(at+".vpn", "the name of one of slices that has vpn", "no slice %q has a VPN", e.VPN)
	case v.Slices[i].NetworkInstance != "" && !strings.EqualFold(v.Slices[i].NetworkInstance, e.NetworkInstance):
		v.add(at+".vpn", fmt.Sprintf("a slice of the network instance %q", e.NetworkInstance),
			"the SID of slice %q leads to UEs of the network instance %q only", e.VPN, v.Slices[i].NetworkInstance)
	}
	v.refuse(!slices.ContainsFunc(e.NextHops, netip.Addr.Is6),
		at+".next_hops", "this node's IPv6 address towards the VPN's routers", "routes of a VPN over SRv6 need an IPv6 next hop")
	for _, p := range v.UPF.UEPools {
		v.refuse(p.NAT != nil && strings.EqualFold(p.NetworkInstance, e.NetworkInstance),
			at+".vpn", "remove the pool's nat, or announce it without vpn", "a NAT translates on N6, and not at the VPN's SID")
	}
	hears := func(p BGPPeer) bool {
		return slices.Contains(p.Families, BGPL3VPN) || len(p.Families) == 0 && p.ASN == v.BGP.ASN
	}
	v.refuse(!slices.ContainsFunc(v.BGP.Peers, hears),
		at+".vpn", "add families: [l3vpn] to one of bgp.peers", "no BGP peer takes routes of VPNs")
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
