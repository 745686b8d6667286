package config

import (
	"net/netip"
	"slices"
)

// N6Table is a routing table by which packets of UEs of an address family leave.
type N6Table struct {
	Table uint32
	IPv4  bool
}

// N6Tables lists the tables that sessions leave by, for the families of the UE pools.
// Slices that lead on by N9, or whose frames leave by a link, need none.
func (c *Config) N6Tables() (out []N6Table) {
	const mainTable = 254
	var tables []uint32
	for _, s := range c.Slices {
		if s.N6 == nil && s.N9 == nil {
			tables = append(tables, s.Table)
		}
	}
	if len(c.Slices) == 0 {
		tables = append(tables, 0)
	}
	for i, table := range tables {
		if table == 0 {
			tables[i] = mainTable
		}
	}
	slices.Sort(tables)
	pools := c.UPF.Pools()
	for _, table := range slices.Compact(tables) {
		for _, v4 := range []bool{true, false} {
			if slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is4() == v4 }) {
				out = append(out, N6Table{table, v4})
			}
		}
	}
	return out
}

// SpeaksSRv6 says whether packets get SRv6, or come with it.
func SpeaksSRv6(c *Config) bool {
	return c.Encapsulation.Source.IsValid() || len(c.Locators)+len(c.SIDs)+len(c.Policies)+len(c.Steering) > 0
}

// SessionFamilies are the address families of packets of sessions: those of the UE pools and
// of what carries them. Without pools they may be of both.
func SessionFamilies(c *Config) (v4, v6 bool) {
	addresses := slices.Clone(c.GTPU.Addresses)
	for _, p := range slices.Concat(c.UPF.Pools(), c.GTPU.Pools) {
		addresses = append(addresses, p.Addr())
	}
	both := len(c.UPF.Pools()) == 0
	return both || slices.ContainsFunc(addresses, netip.Addr.Is4), both || SpeaksSRv6(c) || slices.ContainsFunc(addresses, netip.Addr.Is6)
}
