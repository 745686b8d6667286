package doctor

import (
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// ports looks at whom the interfaces of the configuration let in, and at those that it
// leaves out.
func (n *network) ports() (checks []Check) {
	if n.Config == nil || len(n.Config.Interfaces) == 0 {
		return nil
	}
	for i := range n.Config.Interfaces {
		in := &n.Config.Interfaces[i]
		checks = append(checks, sendersOf(in), hostOf(in))
		if isWire(n.Config, in.Name) {
			checks = append(checks, wire(n.Snapshot, in.Name))
		}
	}
	if n.Overlay == nil {
		checks = append(checks, n.unguarded())
	}
	return checks
}

// port returns an interface of the configuration, or nil.
func (n *network) port(name string) *config.Interface {
	if n.Config == nil {
		return nil
	}
	i := slices.IndexFunc(n.Config.Interfaces, func(in config.Interface) bool { return in.Name == name })
	if i < 0 {
		return nil
	}
	return &n.Config.Interfaces[i]
}

// sendersOf looks at who may send GTP-U and PFCP by an interface.
func sendersOf(in *config.Interface) Check {
	public := in.HasRole(config.RoleN6, config.RoleEdge)
	const gtpu = "every sender's GTP-U enters the tunnels whose TEID it guesses"
	name := advice("list the gNBs and UPFs in peers of %s", in.Name)
	return check(in.Name+": senders", "only those that its roles and peers name",
		problem{in.HasRole(config.RoleAny), Fail, "everybody may send GTP-U, packets for SIDs and for UEs, and reaches this host",
			advice("say what may enter by %s, such as roles: [n6], in place of any", in.Name)},
		problem{public && in.HasRole(config.RoleN4), Fail, "the data network or customers reach N4",
			advice("give N4 an interface or a VLAN of its own")},
		problem{public && in.Peers.Open(), Fail, gtpu + ", those of the data network and of customers, too", name},
		problem{in.Peers.Open(), Fail, gtpu, name})
}

// hostOf looks at what of this host can be reached by an interface.
func hostOf(in *config.Interface) Check {
	access, _ := in.HostAccess() // which was checked
	outside := in.HasRole(config.RoleN3, config.RoleN9, config.RoleN6, config.RoleEdge)
	return check(in.Name+": this host", "only what host lists can be reached",
		problem{outside && access.Any, Fail, "all its services can be reached, and the kernel forwards to all networks",
			advice("list the services in host of %s, such as host: [bgp, ping]", in.Name)},
		problem{outside && access.Forward, Warn, "the kernel forwards to all networks what no session or policy takes",
			advice("take forward out of host of %s, or guard the networks with the kernel's firewall", in.Name)},
		problem{outside && in.FailOpen, Warn, "the kernel gets every frame while the data path is not loaded",
			advice("take fail_open out of %s, or guard the networks with the kernel's firewall", in.Name)})
}

// isWire says whether a policy takes all frames of an interface (H.Encaps.L2).
func isWire(c *config.Config, name string) bool {
	return slices.ContainsFunc(c.Steering, func(s srpolicy.Steering) bool {
		return s.Interface == name && !s.Prefix.IsValid() && len(s.VLANs) == 0 &&
			slices.ContainsFunc(c.Policies, func(p srpolicy.Policy) bool { return p.Name == s.Policy && p.L2() })
	})
}

// wire looks at VLAN devices of this host on an interface whose frames a policy takes.
func wire(links *netdev.Snapshot, name string) Check {
	var lost []string
	in, _ := links.Link(name)
	for _, l := range links.Links {
		if l.Kind == "vlan" && l.Parent == in.Index {
			lost = append(lost, l.Name)
		}
	}
	return check(name+": VLANs", "all frames enter the policy", problem{len(lost) > 0, Warn,
		"all frames enter the policy, and none reaches " + strings.Join(lost, ", "),
		advice("give vlans in the steering of %s, if the VLANs are this host's", name)})
}

// unguarded looks at interfaces without the data path, by which the kernel forwards. The
// data path needs forwarding on its own interfaces.
func (n *network) unguarded() Check {
	var names, fix []string
	for _, l := range n.Snapshot.Links {
		switch {
		case !l.Up || l.Loopback || slices.Contains(n.Config.InterfaceNames(), l.Name) || !hasIPv4(n.Addresses, l.Index):
		case netdev.Sysctl(procfs, netdev.SysctlOf(l.Name, "forwarding")) == "1":
			names, fix = append(names, l.Name), append(fix, netdev.SysctlOf(l.Name, "forwarding")+"=0")
		}
	}
	return check("other interfaces", "the kernel does not forward what comes by them",
		problem{len(names) > 0, Fail, "the kernel forwards what comes by " + strings.Join(names, ", ") + ": to gNBs, SMFs and the data network",
			command("sysctl -w %s", strings.Join(fix, " "))})
}

func hasIPv4(addresses []netdev.Address, ifindex int) bool {
	return slices.ContainsFunc(addresses, func(a netdev.Address) bool { return a.Ifindex == ifindex && a.Prefix.Addr().Is4() })
}
