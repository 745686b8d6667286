package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// NodeName is what this node is called.
func NodeName(o *config.Overlay) string {
	if name := cmp.Or(o.Node, os.Getenv("NODE_NAME")); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "" // which is told as missing
	}
	return strings.ToLower(name)
}

// selfOf is this node as a member of its cluster: what the configuration says
// goes before what Kubernetes says, and that before what there is, of which the
// former address goes first.
func selfOf(o *config.Overlay, t selfTold, links *netdev.Snapshot, former netip.Addr) overlay.Self {
	s := overlay.Self{
		Name: NodeName(o), Address: o.Address, Prefixes: o.PodPrefixes, Locator: o.Locator, Double: o.SIDs == config.SIDsDouble,
		DT4: t.SIDs.DT4, DT6: t.SIDs.DT6, DT46: t.SIDs.DT46,
	}
	if i := slices.IndexFunc(o.Nodes, func(n overlay.Node) bool { return n.Name == s.Name }); i >= 0 {
		s = withEntry(s, o.Nodes[i])
	}
	if !s.Address.IsValid() {
		s.Address = t.ipv6Of()
	}
	if uplinks := uplinksOf(o, nil, links); !s.Address.IsValid() && len(uplinks) > 0 {
		s.Address = uplinkAddress(uplinks, links, former)
	}
	if len(s.Prefixes) == 0 {
		s.Prefixes = t.PodCIDRs
	}
	if !s.Locator.IsValid() {
		s.Locator = t.Locator
	}
	if len(s.Addresses) == 0 {
		s.Addresses = slices.DeleteFunc(slices.Clone(t.Addresses), func(a netip.Addr) bool { return a == s.Address })
	}
	return s
}

// uplinkAddress is one of the uplinks': the former for as long as it is there, for other
// addresses come and go without need to move tunnels.
func uplinkAddress(uplinks []netdev.Link, links *netdev.Snapshot, former netip.Addr) netip.Addr {
	for _, l := range uplinks {
		if slices.Contains(links.GlobalAddresses(l.Index), former) {
			return former
		}
	}
	if there := links.GlobalAddresses(uplinks[0].Index); len(there) > 0 {
		return there[0]
	}
	return netip.Addr{}
}

// withEntry fills in what the list of nodes says of this one.
func withEntry(s overlay.Self, n overlay.Node) overlay.Self {
	if !s.Address.IsValid() {
		s.Address = n.Address
	}
	s.Addresses = n.Addresses
	if len(s.Prefixes) == 0 {
		s.Prefixes = n.Prefixes
	}
	if !s.Locator.IsValid() {
		s.Locator = n.Locator
	}
	if len(n.IPv4) > 0 {
		s.DT4 = n.IPv4[len(n.IPv4)-1]
	}
	if len(n.IPv6) > 0 {
		s.DT6 = n.IPv6[len(n.IPv6)-1]
	}
	return s
}

// uplinksOf are the interfaces that lead to the other nodes.
func uplinksOf(o *config.Overlay, peers []overlay.Peer, links *netdev.Snapshot) []netdev.Link {
	others := make([]netip.Addr, len(peers))
	for i, p := range peers {
		others[i] = p.Address
	}
	return links.Uplinks(o.Uplinks, o.Address, others)
}

// asMember is d with this node as it is now, and what follows from that.
func (d *desired) asMember(links *netdev.Snapshot) *desired { return d.withSelf(links).learn() }

// withSelf is the first half. Something that is missing for a moment, an address
// for example, does not end the node's membership.
func (d *desired) withSelf(links *netdev.Snapshot) *desired {
	next := *d
	o := &d.process.Overlay
	s := overlay.Self{}
	if o.IsSet() {
		s = selfOf(o, d.told.self, links, d.self.Address)
		if s.Missing() != "" {
			s = d.self
		}
	}
	next.self = s
	return &next
}

// rejoin goes along where the network changed what this node is in its cluster.
// It says whether it did.
func (a *Agent) rejoin() bool {
	to := a.desired.withSelf(a.links)
	if same(to.self, a.desired.self) {
		return false
	}
	if _, err := a.changeTo(to.learn(), a.replaced, false); err != nil {
		a.log.Error("cannot be in the cluster as the network is now; will try again", "error", err)
		return false
	}
	return true
}

// overlayState is what the kernel and the data path hold of the overlay: what
// was put, and no error since.
type overlayState struct {
	addresses []netip.Addr // of the entry
	entry     netdev.Entry
	mtu       int // of pods and of the entry
	uplinks   map[int]string
	routes    map[netip.Prefix]netdev.HostRoute
	prepared  []madeReady
	masked    [2][]netip.Prefix
	problems  []string
	// of is what all this was put of, without an error; nil: it is to be put again.
	of       *overlay.Wanted
	links    *netdev.Snapshot
	outwards []netdev.Link // the uplinks then
}

// madeReady is an interface that was made ready to forward: one that is made anew
// under its name is another one.
type madeReady struct {
	name    string
	ifindex int
}

// clusterHost is what the overlay needs of *netdev.Host.
type clusterHost interface {
	podHost
	PutEntry(addresses []netip.Addr, mtu int) (netdev.Entry, error)
	DeleteEntry() error
	PutRoute(netdev.HostRoute) error
	DeleteRoute(netdev.HostRoute) error
	Forwarding(interfaces []string) error
	Masquerade(pods, cluster []netip.Prefix) error
}

// syncOverlay makes the kernel's part of the overlay, the uplinks and the pods'
// settings what the desired state and the last snapshot say. What fails is
// logged and tried again.
func (a *Agent) syncOverlay() {
	o, d := &a.desired.process.Overlay, a.desired
	if !o.IsSet() || d.self.Name == "" {
		a.leaveOverlay()
		return
	}
	if a.overlay.of == d.wanted && a.overlay.links == a.links && a.overlay.mtu == podMTU(a.overlay.outwards, d, a.tables) {
		return
	}
	failed := a.network.failed
	a.putOverlay(uplinksOf(o, d.wanted.Peers, a.links))
	if a.overlay.of, a.overlay.links = d.wanted, a.links; a.network.failed > failed {
		a.overlay.of = nil
	}
}

func (a *Agent) putOverlay(uplinks []netdev.Link) {
	a.overlay.outwards = uplinks
	a.overlay.problems = nil
	if len(uplinks) == 0 {
		a.overlay.problems = append(a.overlay.problems, "there is no uplink: no default route, and no route to another node")
	}
	mtu := podMTU(uplinks, a.desired, a.tables)
	a.syncEntry(mtu)
	a.syncForwarding(uplinks)
	a.syncUplinks(uplinks)
	a.syncHostRoutes()
	a.syncMasquerade(a.desired.process.Overlay.Masquerade)
	a.syncPods(mtu)
}

// minMTU is what every IPv6 link carries (RFC 8200 section 5).
const minMTU = 1280

const (
	ipv6Header = 40
	srhHeader  = 8
	segment    = 16
)

// podMTU is what fits into the smallest uplink with the longest header of the
// policies in use.
func podMTU(uplinks []netdev.Link, d *desired, t *tables) int {
	mtu := 1500
	for i, l := range uplinks {
		if i == 0 || l.MTU < mtu {
			mtu = l.MTU
		}
	}
	longest := 0
	for _, s := range d.wanted.Steering {
		longest = max(longest, pushed(t.policies[s.Policy]))
	}
	return max(mtu-longest, minMTU)
}

// lowerMTU has the kernel answer what will be too long with Packet Too Big before a
// way gets longer: pods are told after it, and until they know something of theirs
// is on its way.
func (a *Agent) lowerMTU(d *desired, next *tables) {
	if !d.process.Overlay.IsSet() || a.overlay.mtu == 0 {
		return
	}
	uplinks := uplinksOf(&d.process.Overlay, d.wanted.Peers, a.links)
	if mtu := podMTU(uplinks, d, next); mtu < a.overlay.mtu {
		a.syncEntry(mtu)
	}
}

// pushed is the length of the longest header that a policy pushes.
func pushed(p srpolicy.Policy) int {
	longest := ipv6Header
	for _, l := range p.SegmentLists {
		n := len(l.Segments)
		if p.Reduced() {
			n--
		}
		if n > 0 {
			longest = max(longest, ipv6Header+srhHeader+n*segment)
		}
	}
	return longest
}

// entryAddresses are the first of each pod prefix: those that no pod gets.
func entryAddresses(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Masked().Addr().Next()
	}
	return out
}

func (a *Agent) syncEntry(mtu int) {
	s := &a.overlay
	want := entryAddresses(a.desired.self.Prefixes)
	l, there := a.links.Link(netdev.EntryName)
	if there && l.Index == s.entry.Ifindex && l.Up && l.MTU == mtu && s.mtu == mtu && slices.Equal(s.addresses, want) {
		return
	}
	e, err := a.host.PutEntry(want, mtu)
	if !a.check(err, "make the kernel's way into the overlay", netdev.EntryName) {
		return
	}
	if e != s.entry {
		s.routes = nil // they went with the one before
		if !a.check(a.dp.AttachEntry(e.Exit), "attach to the kernel's way into the overlay", netdev.EntryName) {
			return
		}
	}
	s.entry, s.addresses = e, want
}

// syncForwarding makes uplinks and the entry ready.
func (a *Agent) syncForwarding(uplinks []netdev.Link) {
	names := []string{netdev.EntryName}
	want := []madeReady{{netdev.EntryName, a.overlay.entry.Ifindex}}
	for _, l := range uplinks {
		names = append(names, l.Name)
		want = append(want, madeReady{l.Name, l.Index})
	}
	if slices.Equal(want, a.overlay.prepared) {
		return
	}
	if a.check(a.host.Forwarding(names), "have the kernel forward", names) {
		a.overlay.prepared = want
	}
}

func (a *Agent) syncUplinks(uplinks []netdev.Link) {
	have, next := a.overlay.uplinks, map[int]string{}
	for _, l := range uplinks {
		if _, attached := have[l.Index]; attached || a.check(a.dp.AttachUplink(l.Index), "attach to an uplink", l.Name) {
			next[l.Index] = l.Name
		}
	}
	for ifindex, name := range have {
		if _, stays := next[ifindex]; !stays && !a.check(a.dp.DetachUplink(ifindex), "detach from an uplink", name) {
			next[ifindex] = name
		}
	}
	a.overlay.uplinks = next
}

// hostRoutes are the kernel's: to pods of other nodes through the overlay, and to
// other nodes' locators where these are on the link and nobody else routes them.
func (a *Agent) hostRoutes() map[netip.Prefix]netdev.HostRoute {
	out := map[netip.Prefix]netdev.HostRoute{}
	sources := map[bool]netip.Addr{}
	for _, addr := range slices.Backward(a.overlay.addresses) {
		sources[addr.Is4()] = addr
	}
	for _, s := range a.desired.wanted.Steering {
		// A default route by a VPN is for pods: the node keeps its own.
		if s.Prefix.Bits() > 0 && a.overlay.entry.Ifindex != 0 {
			out[s.Prefix] = netdev.HostRoute{Prefix: s.Prefix, Ifindex: a.overlay.entry.Ifindex, Source: sources[s.Prefix.Addr().Is4()]}
		}
	}
	routed := a.links.Routed()
	for _, r := range a.desired.wanted.Routes {
		l, hop, err := a.links.Toward(r.Via)
		if err == nil && hop == r.Via && !l.Loopback && !routed(r.Prefix) {
			out[r.Prefix] = netdev.HostRoute{Prefix: r.Prefix, Gateway: r.Via, Ifindex: l.Index}
		}
	}
	return out
}

func (a *Agent) syncHostRoutes() {
	want := a.hostRoutes()
	there := map[netip.Prefix]netdev.HostRoute{}
	for _, r := range a.links.Routes {
		if r.Protocol == netdev.OverlayProtocol && r.Table == netdev.TableMain && len(r.Hops) > 0 {
			there[r.Prefix] = netdev.HostRoute{Prefix: r.Prefix, Gateway: r.Hops[0].Gateway, Ifindex: r.Hops[0].Ifindex}
		}
	}
	next := make(map[netip.Prefix]netdev.HostRoute, len(want))
	for p, r := range want {
		is := there[p]
		if a.overlay.routes[p] == r && is.Gateway == r.Gateway && is.Ifindex == r.Ifindex || a.check(a.host.PutRoute(r), "put the kernel's route", p) {
			next[p] = r
		}
	}
	maps.Copy(there, a.overlay.routes) // one that the snapshot does not have yet
	for p, r := range there {
		if _, stays := want[p]; !stays && !a.check(a.host.DeleteRoute(r), "delete the kernel's route", p) {
			next[p] = r
		}
	}
	a.overlay.routes = next
}

// syncMasquerade: what pods send to nowhere in the cluster.
func (a *Agent) syncMasquerade(on bool) {
	var want [2][]netip.Prefix
	if d := a.desired; on {
		want[0] = d.self.Prefixes
		want[1] = append(slices.Clone(d.self.Prefixes), addressesOf(d.self.Node())...)
		for _, s := range d.wanted.Steering {
			want[1] = append(want[1], s.Prefix)
		}
		for _, p := range d.wanted.Peers {
			want[1] = append(want[1], addressesOf(p.Node)...)
		}
	}
	have := &a.overlay.masked
	if have[0] != nil && slices.Equal(have[0], want[0]) && slices.Equal(have[1], want[1]) {
		return
	}
	if a.check(a.host.Masquerade(want[0], want[1]), "masquerade what leaves the cluster", "nftables") {
		if want[0] == nil {
			want[0] = []netip.Prefix{} // done
		}
		a.overlay.masked = want
	}
}

// addressesOf are all of a node's.
func addressesOf(n overlay.Node) []netip.Prefix {
	out := []netip.Prefix{netip.PrefixFrom(n.Address, n.Address.BitLen())}
	for _, a := range n.Addresses {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// syncPods tells pods that come what there is, and those that are there of a
// longer or shorter way.
func (a *Agent) syncPods(mtu int) {
	if !a.check(a.pods.set(podSettings{prefixes: a.desired.self.Prefixes, mtu: mtu}), "set the prefixes of pods", a.desired.self.Prefixes) {
		return
	}
	if a.overlay.mtu == mtu {
		return
	}
	ok := true
	if a.overlay.mtu != 0 {
		a.log.Info("the MTU of pods changes", "from", a.overlay.mtu, "to", mtu)
	}
	for _, p := range a.pods.list() {
		ok = a.check(a.host.SetPodMTU(p.NetNS, p.Interface, mtu), "set the MTU of a pod", p.Namespace+"/"+p.Name) && ok
	}
	if ok {
		a.overlay.mtu = mtu
	}
}

// leaveOverlay is for a node that is no member: what an earlier configuration
// made goes. Pods that are there still reach the node and each other.
func (a *Agent) leaveOverlay() {
	o := &a.desired.process.Overlay
	problem := ErrNoCluster.Error()
	if o.IsSet() {
		problem = "this node is no member of its cluster yet: it lacks " + selfOf(o, a.desired.told.self, a.links, netip.Addr{}).Missing()
	}
	a.overlay.problems = []string{problem}
	a.check(a.pods.set(podSettings{problem: problem, limited: true}), "set the prefixes of pods", "none")
	if o.IsSet() || !a.hasEntry() {
		return
	}
	a.syncUplinks(nil)
	a.syncMasquerade(false)
	if e := a.overlay.entry; e.Exit != 0 {
		a.check(a.dp.DetachEntry(e.Exit), "detach from the kernel's way into the overlay", netdev.EntryName)
	}
	for _, r := range a.overlay.routes {
		a.check(a.host.DeleteRoute(r), "delete the kernel's route", r.Prefix)
	}
	if a.check(a.host.DeleteEntry(), "remove the kernel's way into the overlay", netdev.EntryName) {
		a.overlay = overlayState{problems: a.overlay.problems}
	}
}

func (a *Agent) hasEntry() bool {
	_, there := a.links.Link(netdev.EntryName)
	return there || a.overlay.entry.Ifindex != 0
}
