package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// claim is a part of the address space that a resource takes for itself.
type claim struct {
	prefix netip.Prefix
	order  int // among all claims
	kind   claimKind
	nested bool // longer ones in it are meant to be: a NEXT-C-SID's
	// names returns the field and the resource. It is a function because there may be
	// very many claims, and few clash.
	names func() (field, what string)
}

type claimKind int

const (
	claimLocator claimKind = iota
	claimSID
	claimGTPU
	claimN4
	claimOther // an address of somebody whom this node speaks to
	claimPool
	claimPublic // of a NAT
	claimPods
	claimSteering
)

// clash says what is wrong if claims of two kinds overlap, and the fix. Other kinds
// may overlap.
var clash = map[[2]claimKind]struct{ problem, fix string }{
	{claimLocator, claimLocator}:  {"overlaps", "give each locator its own prefix"},
	{claimSID, claimSID}:          {"overlaps", "each SID needs LOC:FUNC of its own; only a NEXT-C-SID SID may hold longer ones"},
	{claimLocator, claimGTPU}:     {"lies in", "use an address outside of the locator: a SID would win over it"},
	{claimSID, claimGTPU}:         {"lies in", "use an address outside of the SID: the SID wins over it"},
	{claimLocator, claimN4}:       {"lies in", "use an address outside of the locator: a SID would win over it"},
	{claimSID, claimN4}:           {"lies in", "use an address outside of the SID: the SID wins over it"},
	{claimLocator, claimOther}:    {"lies in", "use a locator without it: addresses of the locator are this node's"},
	{claimSID, claimOther}:        {"lies in", "use a SID without it: addresses of the SID are this node's"},
	{claimLocator, claimPool}:     {"overlaps", "use addresses outside of the locator: a SID would win over them"},
	{claimSID, claimPool}:         {"overlaps", "use addresses outside of the SID: the SID wins over them"},
	{claimGTPU, claimSteering}:    {"is", "remove it: what is sent to a GTP-U address ends at this node"},
	{claimN4, claimSteering}:      {"is", "remove it: what is sent to an N4 address ends at this node"},
	{claimGTPU, claimPool}:        {"holds", "take the node's GTP-U address out of the UE pool"},
	{claimN4, claimPool}:          {"holds", "take the node's N4 address out of the UE pool: the data path would keep PFCP from it"},
	{claimOther, claimPool}:       {"holds", "take the address out of the UE pool: the data path would drop what is sent from it"},
	{claimPool, claimPool}:        {"overlaps", "give each UE its place in one pool"},
	{claimGTPU, claimPublic}:      {"hold", "use public addresses without the node's GTP-U address"},
	{claimN4, claimPublic}:        {"hold", "use public addresses without the node's N4 address: the data path would keep PFCP from it"},
	{claimOther, claimPublic}:     {"hold", "use public addresses without it: the data path would drop what is sent from it"},
	{claimPool, claimPublic}:      {"overlap", "use public addresses that no UE has"},
	{claimPublic, claimPublic}:    {"overlap", "give each pool public addresses of its own"},
	{claimPublic, claimPods}:      {"overlaps", "use pod addresses without the NAT's public ones"},
	{claimLocator, claimPods}:     {"overlaps", "use pod addresses outside of the locator: a SID would win over them"},
	{claimSID, claimPods}:         {"overlaps", "use pod addresses outside of the SID: the SID wins over them"},
	{claimPool, claimPods}:        {"overlaps", "give each UE and each pod an address of its own"},
	{claimPods, claimPods}:        {"overlaps", "give each pod prefix once"},
	{claimLocator, claimSteering}: {"lies in", "steer a prefix outside of the locator, or add a SID for it"},
	{claimSID, claimSteering}:     {"lies in", "steer a prefix outside of the SID: the SID wins over it"},
}

// checkSpace finds claims on the same addresses. It sorts claims so that a prefix comes
// after all prefixes that contain it, and keeps these on a stack: each claim is
// compared with its containers only.
func checkSpace(v *validator) {
	claims := claims(v)
	slices.SortFunc(claims, func(a, b claim) int {
		if c := a.prefix.Addr().Compare(b.prefix.Addr()); c != 0 {
			return c
		}
		return cmp.Or(a.prefix.Bits()-b.prefix.Bits(), a.order-b.order)
	})
	var open []claim
	for _, c := range claims {
		for len(open) > 0 && !open[len(open)-1].prefix.Overlaps(c.prefix) {
			open = open[:len(open)-1]
		}
		// Report the nearest: of a SID and its locator, the SID.
		for _, outer := range slices.Backward(open) {
			if overlap(v, outer, c) {
				break
			}
		}
		open = append(open, c)
	}
}

// overlap checks inner, which lies in outer or is equal to it. It says whether it
// found an error.
func overlap(v *validator, outer, inner claim) bool {
	if outer.kind == claimSID && inner.kind == claimSID && outer.nested && outer.prefix.Bits() < inner.prefix.Bits() {
		return false
	}
	if outer.kind == claimSID && inner.kind == claimLocator {
		covers := outer.prefix.Bits() < inner.prefix.Bits()
		if covers {
			field, _ := outer.names()
			_, what := inner.names()
			v.add(field, fmt.Sprintf("a longer SID, or a shorter locator than %s", inner.prefix), "SID %s covers the whole of %s", outer.prefix, what)
		}
		return covers
	}
	first, second := outer, inner
	if first.kind > second.kind {
		first, second = second, first
	}
	rule, ok := clash[[2]claimKind{first.kind, second.kind}]
	if !ok {
		return false
	}
	if first.kind != second.kind && first.prefix.Bits() > second.prefix.Bits() && second.kind == claimSteering {
		return false // a default route into a policy does not lie in a SID
	}
	field, what := second.names()
	rival, other := first.names()
	v.add(field, rule.fix, "%s %s %s", what, rule.problem, other)
	v.list[len(v.list)-1].rival = rival
	return true
}

// adder adds a claim.
type adder func(kind claimKind, p netip.Prefix, nested bool, names func() (field, what string))

// claimHosts adds the addresses of this node's control and user plane, and of those whom it
// speaks to as far as they are named one by one, each once.
func claimHosts(v *validator, add adder) {
	seen := map[netip.Addr]bool{}
	one := func(kind claimKind, a netip.Addr, what, format string, args ...any) {
		if !seen[a] {
			seen[a] = true
			add(kind, host(a), false, func() (string, string) { return fmt.Sprintf(format, args...), what + " " + a.String() })
		}
	}
	named := func(list Senders, what, format string, args ...any) {
		for i, p := range list {
			if p.IsSingleIP() {
				one(claimOther, p.Addr(), what, format+"[%d]", append(slices.Clone(args), i)...)
			}
		}
	}
	for i, a := range v.GTPU.Addresses {
		one(claimGTPU, a, "GTP-U address", "gtpu.addresses[%d]", i)
	}
	for i, a := range v.UPF.N4 {
		one(claimN4, a, "N4 address", "upf.n4[%d]", i)
	}
	named(v.UPF.SMFs, "SMF", "upf.smfs")
	for i, a := range v.UPF.Connect {
		one(claimOther, a, "SMF", "upf.connect[%d]", i)
	}
	for i := range v.Interfaces {
		named(v.Interfaces[i].Peers, "GTP-U peer", "interfaces[%d].peers", i)
	}
	for i := range v.Tunnels {
		one(claimOther, v.Tunnels[i].Remote, "GTP-U peer", "tunnels[%d].remote", i)
	}
	for i, p := range v.BGP.Peers {
		one(claimOther, p.Address, "BGP peer", "bgp.peers[%d].address", i)
	}
}

// claimPools adds the addresses of UEs, and those that a NAT gives them.
func claimPools(c *Config, add adder) {
	for i, p := range c.GTPU.Pools {
		add(claimPool, p, false, func() (string, string) { return fmt.Sprintf("gtpu.pools[%d]", i), "pool " + p.String() })
	}
	for i, pool := range c.UPF.UEPools {
		for j, p := range pool.Prefixes {
			add(claimPool, p, false, func() (string, string) {
				return fmt.Sprintf("upf.ue_pools[%d].prefixes[%d]", i, j), "pool " + p.String()
			})
		}
	}
	for i, pool := range c.UPF.UEPools {
		if n := pool.NAT; n != nil {
			add(claimPublic, n.Addresses, false, func() (string, string) {
				return fmt.Sprintf("upf.ue_pools[%d].nat.addresses", i), "public addresses " + n.Addresses.String()
			})
		}
	}
}

func claims(v *validator) []claim {
	all := make([]claim, 0, len(v.SIDs)+len(v.Steering)+len(v.Locators)+64)
	add := func(kind claimKind, p netip.Prefix, nested bool, names func() (string, string)) {
		if p.IsValid() {
			all = append(all, claim{p.Masked(), len(all), kind, nested, names})
		}
	}
	for i, l := range v.Locators {
		add(claimLocator, l.Prefix, false, func() (string, string) {
			return fmt.Sprintf("locators[%d].prefix", i), fmt.Sprintf("locator %q (%s)", l.Name, l.Prefix)
		})
	}
	// The overlay's may be among the locators: then it is claimed already.
	if !slices.ContainsFunc(v.Locators, func(l Locator) bool { return l.Prefix == v.Overlay.Locator }) {
		add(claimLocator, v.Overlay.Locator, false, func() (string, string) {
			return "overlay.locator", fmt.Sprintf("the overlay's locator %s", v.Overlay.Locator)
		})
	}
	for i, p := range v.Overlay.PodPrefixes {
		add(claimPods, p, false, func() (string, string) { return fmt.Sprintf("overlay.pod_prefixes[%d]", i), "pod prefix " + p.String() })
	}
	for i, s := range v.SIDs {
		next := slices.Contains(s.Flavors, srv6.NextCSID)
		add(claimSID, s.SID, next, func() (string, string) { return fmt.Sprintf("sids[%d].sid", i), "SID " + s.SID.String() })
	}
	for i := range v.Policies {
		p := &v.Policies[i]
		add(claimSID, host(p.BindingSID), false, func() (string, string) {
			return fmt.Sprintf("policies[%d].binding_sid", i), fmt.Sprintf("binding SID %s of policy %q", p.BindingSID, p.Name)
		})
	}
	claimHosts(v, add)
	claimPools(v.Config, add)
	for i, s := range v.Slices {
		if s.N9 != nil {
			add(claimSID, s.N9.LocalSID, false, func() (string, string) {
				return fmt.Sprintf("slices[%d].n9.local_sid", i), fmt.Sprintf("SID %s of slice %q", s.N9.LocalSID, s.Name)
			})
		}
		if s.VPN != nil {
			add(claimSID, s.VPN.SID, false, func() (string, string) {
				return fmt.Sprintf("slices[%d].vpn.sid", i), fmt.Sprintf("SID %s of the VPN of slice %q", s.VPN.SID, s.Name)
			})
		}
	}
	for i := range v.Steering {
		s := &v.Steering[i]
		if s.Tenant != 0 {
			continue // its addresses are its own
		}
		add(claimSteering, s.Prefix, false, func() (string, string) {
			return fmt.Sprintf("steering[%d].prefix", i), "steered prefix " + s.Prefix.String()
		})
	}
	return all
}

// host returns the prefix of one address. It is invalid if a is.
func host(a netip.Addr) netip.Prefix {
	if !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}
