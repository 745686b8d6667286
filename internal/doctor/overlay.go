package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Overlay describes a member of a cluster. Its zero value says only that the node is
// one.
type Overlay struct {
	Uplinks []string        // where the programs for tunnels run; empty: the interfaces of the routes
	Address netip.Addr      // this node's in the underlay; not valid: one of the first uplink
	Nodes   []overlay.Node  // the others
	Faults  *overlay.Faults // nil: no daemon says so
	// BinDir and ConfDir are the container runtime's folders of plugins and of
	// network configurations. Without the latter there is no runtime to serve.
	BinDir, ConfDir string
}

// member makes the checks of a node of a cluster. XDP is looked at only where it
// runs: on the interfaces that are named and are no uplinks.
func (n *network) member() []Check {
	others := make([]netip.Addr, len(n.Overlay.Nodes))
	for i, o := range n.Overlay.Nodes {
		others[i] = o.Address
	}
	uplinks := n.Uplinks(n.Overlay.Uplinks, n.Overlay.Address, others)
	isUplink := func(name string) bool {
		return slices.ContainsFunc(uplinks, func(l netdev.Link) bool { return l.Name == name })
	}
	checks := n.memberForwards()
	for _, name := range n.Overlay.Uplinks {
		if !isUplink(name) {
			checks = append(checks, absent(name))
		}
	}
	if len(uplinks) == 0 && len(n.Overlay.Uplinks) == 0 {
		checks = append(checks, check("uplink", "", problem{true, Fail, "there is none: no IPv6 default route, and no route to another node",
			advice("ip -6 route add default via ROUTER, or set overlay.uplinks")}))
	}
	for _, l := range uplinks {
		checks = append(checks, n.uplink(l)...)
	}
	checks = append(checks, n.address(uplinks))
	if len(n.Overlay.Nodes) > 0 {
		checks = append(checks, n.ways())
	}
	if n.Overlay.Faults != nil {
		checks = append(checks, checkFaults(n.Overlay.Faults, len(n.Overlay.Nodes))...)
	}
	checks = append(checks, forwardChains(n.Snapshot)...)
	checks = append(checks, ipvs(n.Snapshot), kernelSIDs(n.Snapshot))
	checks = append(checks, n.Overlay.plugins()...)
	return append(checks, n.interfaces(slices.DeleteFunc(slices.Clone(n.Interfaces), isUplink))...)
}

// memberForwards: what pods send to Services, to the node and to outside goes by the
// kernel. The daemon turns forwarding on; where it runs already, it could not, or
// somebody turned it off again.
func (n *network) memberForwards() []Check {
	checks := forwarding(procfs, true, true, false)
	_, running := n.Link(netdev.EntryName)
	for i, c := range checks {
		switch {
		case c.Level == OK:
		case running:
			checks[i].Level, checks[i].Detail = Fail, "off: pods reach no Services, nor anything outside of the cluster"
		default:
			checks[i].Detail = "off: the daemon turns it on, where it may write to /proc/sys (culvert cni prepare does it for one that may not)"
		}
	}
	if running {
		checks = append(checks, rpFilter(procfs, netdev.EntryName))
	}
	return checks
}

// ipvs: neither the sender's NetworkPolicies nor the SR domain's edge see where it leads.
func ipvs(host *netdev.Snapshot) Check {
	_, there := host.Link(netdev.IPVSName)
	return check("kube-proxy", "no IPVS", problem{there, Fail, "it uses IPVS (" + netdev.IPVSName + "): NetworkPolicies do not count for what pods send to Services, and Services lead to SIDs",
		advice("set kube-proxy's mode to nftables or iptables, and delete %s", netdev.IPVSName)})
}

// kernelSIDs: the kernel takes packets to them before it forwards, also those of pods and Services.
func kernelSIDs(host *netdev.Snapshot) Check {
	var there []string
	for _, r := range host.Routes {
		if r.KernelOnly == netdev.KernelSID {
			there = append(there, r.Prefix.String())
		}
	}
	return check("SIDs of the kernel", "there are none", problem{len(there) > 0, Warn, "pods reach " + some(there) + " by Services, and directly unless it is in `domain`",
		advice("have other hosts than nodes of the cluster process these SIDs (ip -6 route show)")})
}

// uplink makes the checks of an interface that has culvert_uplink at tcx, which runs
// on any device, behind GRO.
func (n *network) uplink(l netdev.Link) []Check {
	f, err := n.Facts(l.Name)
	if err != nil {
		return []Check{{Name: l.Name + ": offloads", Level: Warn, Detail: err.Error()}}
	}
	d := device{Link: l, Facts: f}
	return []Check{d.up(), d.lro(), d.gro(), d.underlayMTU(), rpFilter(procfs, l.Name), n.acceptRA(l)}
}

// gro: single segments cost as much each as 64 KiB of them at once. A virtual
// device's come together from the stack that sent them.
func (d device) gro() Check {
	return d.check("generic receive offload", "on, or not needed",
		problem{!d.GRO && !d.Virtual(), Warn, "off: each segment of TCP takes the whole way alone, which is several times slower",
			command("ethtool -K %s gro on", d.Link.Name)})
}

// underlayMTU: what is left for pods, whose IPv6 needs 1280.
func (d device) underlayMTU() Check {
	inner := d.Link.MTU - ipv6Header
	paths := ", and no room for paths of more than one segment"
	if room := inner - srhHeader - ipv6MinMTU; room >= segmentLength {
		paths = fmt.Sprintf(", and room for paths of %d segments", room/segmentLength+1)
	}
	return d.check("MTU", fmt.Sprintf("%d: leaves %d bytes for pods' packets%s", d.Link.MTU, inner, paths),
		problem{inner < ipv6MinMTU, Fail, fmt.Sprintf("%d: packets of %d bytes, which IPv6 pods have to be able to send, do not fit into a tunnel",
			d.Link.MTU, ipv6MinMTU), command("ip link set dev %s mtu %d", d.Link.Name, max(usualMTU, ipv6MinMTU+ipv6Header))})
}

// routerAdvertisements is the protocol of routes that come by them (RTPROT_RA).
const routerAdvertisements = 9

// acceptRA: the kernel of an interface that forwards forgets the routes of router
// advertisements, unless accept_ra is 2 (Linux, ip-sysctl).
func (n *network) acceptRA(l netdev.Link) Check {
	advertised := slices.ContainsFunc(n.Routes, func(r netdev.Route) bool {
		return r.Protocol == routerAdvertisements && slices.ContainsFunc(r.Hops, func(h netdev.Hop) bool { return h.Ifindex == l.Index })
	})
	name := "net.ipv6.conf." + strings.ReplaceAll(l.Name, ".", "/") + ".accept_ra"
	return check(l.Name+": routes of routers", "stay", problem{advertised && netdev.Sysctl(procfs, name) == "1", Warn,
		"go when the kernel begins to forward", command("sysctl -w %s=2", name)})
}

// address: the outer source, and where the others send to.
func (n *network) address(uplinks []netdev.Link) Check {
	const name = "address in the underlay"
	own := n.Overlay.Address
	if own.IsValid() {
		return check(name, own.String(), problem{!slices.Contains(n.Local(), own), Fail, fmt.Sprintf("no interface has %s", own),
			advice("ip -6 address add %s/64 dev UPLINK, or correct overlay.address", own)})
	}
	if len(uplinks) == 0 {
		return check(name, "", problem{true, Fail, "without an uplink there is none", advice("see above, or set overlay.address")})
	}
	there, first := n.GlobalAddresses(uplinks[0].Index), uplinks[0].Name
	if len(there) == 0 {
		return check(name, "", problem{true, Fail, fmt.Sprintf("%s has no global IPv6 address", first),
			advice("ip -6 address add ADDRESS/64 dev %s, or set overlay.address", first)})
	}
	return check(name, there[0].String())
}

// ways: what the underlay has to route.
func (n *network) ways() Check {
	var without, guessed []string
	routed := n.Routed()
	for _, o := range n.Overlay.Nodes {
		name := cmp.Or(o.Name, o.Address.String())
		if _, hop, err := n.Toward(o.Address); err != nil {
			without = append(without, fmt.Sprintf("%s (%s)", name, o.Address))
			continue
		} else if hop == o.Address {
			continue // on the link, where the daemon makes routes to locators
		}
		for _, list := range [][]netip.Addr{o.IPv4, o.IPv6} { // one that cannot be reached says enough
			if len(list) == 0 {
				continue
			}
			s := list[0] // the underlay routes to the first segment
			if _, _, err := n.Toward(s); err != nil {
				without = append(without, fmt.Sprintf("%s (%s)", name, s))
				break
			}
			if s != o.Address && !routed(netip.PrefixFrom(s, s.BitLen())) {
				guessed = append(guessed, fmt.Sprintf("%s (%s)", name, s))
				break
			}
		}
	}
	return check("routes to nodes", fmt.Sprintf("there are, to all %d", len(n.Overlay.Nodes)),
		problem{len(without) > 0, Fail, "there are none to " + some(without),
			advice("ip -6 route add PREFIX via ROUTER; where the underlay does not route locators, set overlay.sids: double on all nodes")},
		problem{len(guessed) > 0, Warn, "only by the default route, which may end at a router that does not know it, to " + some(guessed),
			advice("have the routers route the locators (by BGP, or ip -6 route add PREFIX via ROUTER), or set overlay.sids: double on all nodes")})
}

// some are the first of what may be many.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
