package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// userPlane looks at who can reach N4.
func (n *network) userPlane() []Check {
	if n.Config == nil || !n.Config.UPF.IsSet() {
		return nil
	}
	checks := []Check{senders(n.Config.UPF.SMFs), openToUEs(n.Config)}
	for _, t := range n.Config.N6Tables() {
		checks = append(checks, routerOfN6(n.Snapshot, t))
	}
	for _, a := range n.Config.UPF.N4 {
		l, there := linkOf(n.Snapshot, a)
		checks = append(checks, n.n4Interface(a, l, there))
		if there && a.Is4() && !l.Loopback && n.isForN4(l.Name) {
			checks = append(checks, n4Filter(procfs, l.Name))
		}
	}
	return checks
}

// routerOfN6: what UEs send to other networks leaves by a route.
func routerOfN6(s *netdev.Snapshot, t config.N6Table) Check {
	family, command := "IPv4", "ip route add default via ROUTER table %d"
	if !t.IPv4 {
		family, command = "IPv6", "ip -6 route add default via ROUTER table %d"
	}
	return check(fmt.Sprintf("N6: %s in table %d", family, t.Table), "has a route to a router", problem{!s.LeadsAway(t.Table, t.IPv4), Warn,
		"no route leads to a router: what UEs send to other networks is dropped (no_route)", advice(command, t.Table)})
}

// linkOf returns the link that has an address.
func linkOf(n *netdev.Snapshot, a netip.Addr) (netdev.Link, bool) {
	i := slices.IndexFunc(n.Addresses, func(has netdev.Address) bool { return has.Prefix.Addr() == a })
	if i < 0 {
		return netdev.Link{}, false
	}
	return n.LinkByIndex(n.Addresses[i].Ifindex)
}

func senders(smfs config.Senders) Check {
	return check("N4: senders", "only those of upf.smfs", problem{smfs.Open(), Fail,
		"every sender can set up and delete sessions", advice("set upf.smfs to the addresses of your SMFs")})
}

// openToUEs: UEs reach what upf.ue_may_reach opens. One that reaches an SMF can speak to
// it as a UPF does, and to a GTP-U peer as this node does.
func openToUEs(c *config.Config) Check {
	peers := slices.Clone([]netip.Prefix(c.UPF.SMFs))
	for i := range c.Interfaces {
		peers = append(peers, c.Interfaces[i].Peers...)
	}
	open := slices.DeleteFunc(peers, func(p netip.Prefix) bool {
		return p.Bits() == 0 || !slices.ContainsFunc(c.UPF.UEMayReach, p.Overlaps)
	})
	return check("N4: UEs", "reach neither SMFs nor GTP-U peers", problem{len(open) > 0, Fail,
		fmt.Sprintf("reach some of %v", open), advice("narrow upf.ue_may_reach")})
}

// n4Interface: N4 has to have an interface of its own. What shares it can send from an
// SMF's address.
func (n *network) n4Interface(a netip.Addr, l netdev.Link, there bool) Check {
	gtpu := there && slices.ContainsFunc(n.Config.GTPU.Addresses, func(g netip.Addr) bool {
		of, has := linkOf(n.Snapshot, g)
		return has && of.Index == l.Index
	})
	port := n.port(l.Name)
	own := advice("give N4 an interface or a VLAN of its own, with %s", a)
	return check(fmt.Sprintf("N4: %s", a), "has an interface of its own, "+l.Name,
		problem{!there, Fail, "no interface has the address", advice("ip address add %s dev INTERFACE", a)},
		problem{l.Loopback || l.Kind == "dummy", Fail, "is on " + l.Name + ": whoever reaches any interface of the configuration reaches N4", own},
		problem{gtpu, Fail, "shares " + l.Name + " with a GTP-U address: gNBs reach N4", own},
		problem{port != nil && !port.HasRole(config.RoleN4, config.RoleAny), Fail, "PFCP that comes by " + l.Name + " is dropped", advice("add n4 to the roles of %s", l.Name)},
		problem{n.leadsToN6(l), Fail, "shares " + l.Name + " with N6: the data network reaches N4", own},
		problem{port == nil, Warn, l.Name + " is not among interfaces: GTP-U of SMFs, such as router advertisements for UEs, takes the daemon, and waits while it is not there",
			advice("add {name: %s, roles: [n4]} to interfaces", l.Name)})
}

// isForN4 says whether an interface has the role n4, or no data path. There a strict filter
// drops no packet that the data path passes on.
func (n *network) isForN4(name string) bool {
	port := n.port(name)
	return port != nil && port.HasRole(config.RoleN4) || !slices.Contains(n.Options.Interfaces, name)
}

// leadsToN6 says whether packets of sessions leave by a link: it is the link of a
// slice, or sessions use the main table and it has the default route there. Tables of
// slices are not read here.
func (n *network) leadsToN6(l netdev.Link) bool {
	useMain := len(n.Config.Slices) == 0
	for _, s := range n.Config.Slices {
		useMain = useMain || s.Table == 0
		if s.N6 != nil && s.N6.Interface == l.Name {
			return true
		}
	}
	const mainTable = 254
	return useMain && slices.ContainsFunc(n.Routes, func(r netdev.Route) bool {
		return r.Table == mainTable && r.Prefix.Bits() == 0 && slices.ContainsFunc(r.Hops, func(h netdev.Hop) bool { return h.Ifindex == l.Index })
	})
}

// n4Filter: a strict filter on N4's interface drops what comes there from addresses of
// other networks.
func n4Filter(proc, name string) Check {
	own, all := netdev.SysctlOf(name, "rp_filter"), netdev.Sysctl(proc, netdev.SysctlOf("all", "rp_filter"))
	return check(name+": reverse path filter of N4", "strict",
		problem{all == "2", Warn, "loose for all interfaces: senders from other networks are heard", command("sysctl -w %s=1 %s=1", netdev.SysctlOf("all", "rp_filter"), own)},
		problem{max(netdev.Sysctl(proc, own), all) != "1", Warn, "not strict: senders from other networks are heard", command("sysctl -w %s=1", own)})
}
