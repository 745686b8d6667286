package plan

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/upf"
)

// reserved are the prefixes that no SMF may claim for UEs: what others have whom this node
// speaks to, what it has itself, and the networks that it has an address in.
func reserved(c *config.Config, links *netdev.Snapshot) (out []upf.Reserved) {
	seen := map[netip.Prefix]bool{}
	add := func(what string, prefixes ...netip.Prefix) {
		for _, p := range prefixes {
			if p = p.Masked(); p.IsValid() && p.Bits() > 0 && !seen[p] {
				seen[p] = true
				out = append(out, upf.Reserved{Prefix: p, What: what})
			}
		}
	}
	addr := func(what string, list ...netip.Addr) {
		for _, a := range list {
			add(what, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	addr("gtpu.addresses", c.GTPU.Addresses...)
	addr("upf.n4", c.UPF.N4...)
	add("upf.smfs", c.UPF.SMFs...)
	for i := range c.Interfaces {
		add("the peers of interface "+c.Interfaces[i].Name, c.Interfaces[i].Peers...)
	}
	for i := range c.Tunnels {
		addr("tunnel "+c.Tunnels[i].Name, c.Tunnels[i].Remote)
	}
	for _, p := range c.BGP.Peers {
		addr("bgp.peers", p.Address)
	}
	add("upf.protected", c.UPF.Protected...)
	for _, p := range c.UPF.UEPools {
		if p.NAT != nil {
			add("the NAT's addresses", p.NAT.Addresses)
		}
	}
	add("the SR domain", c.SRDomain()...)
	for _, l := range c.Locators {
		add("locator "+l.Name, l.Prefix)
	}
	for i := range c.SIDs {
		add("sids", c.SIDs[i].SID)
	}
	for i := range c.Slices {
		add("slice "+c.Slices[i].Name, c.Slices[i].SIDs()...)
	}
	for _, a := range links.Addresses {
		what := "this node's network"
		if l, there := links.LinkByIndex(a.Ifindex); there {
			what = fmt.Sprintf("the network at %s", l.Name)
		}
		add(what, a.Prefix)
	}
	return out
}
