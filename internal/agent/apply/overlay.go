package apply

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Host is what the overlay needs of *netdev.Host.
type Host interface {
	PutEntry(addresses []netip.Addr, mtu int) (netdev.Entry, error)
	DeleteEntry() error
	PutRoute(netdev.HostRoute) error
	DeleteRoute(netdev.HostRoute) error
	Forwarding(interfaces []string) error
	Masquerade(pods, cluster []netip.Prefix) error
	Masquerades(pods []netip.Prefix) (bool, error)
	SetPodMTU(netns, name string, mtu int) error
}

// Overlay writes what a member of a cluster needs of the kernel, of uplinks and of
// pods. It remembers what was written without an error since.
type Overlay struct {
	retries
	host Host
	dp   *DataPath
	pods *pods.Pods

	goal  *plan.Goal       // the last
	links *netdev.Snapshot // the last
	overlayState
}

// overlayState is what the kernel and the data path hold of the overlay.
type overlayState struct {
	addresses []netip.Addr // of the entry
	entry     netdev.Entry
	mtu       int // of pods and of the entry
	uplinks   map[int]bool
	members   map[overlay.Member]bool
	guarded   bool
	tables    *plan.Tables // whose policies' SIDs are among members; nil: none
	routes    map[netip.Prefix]netdev.HostRoute
	prepared  []prepared
	masked    [2][]netip.Prefix
	problems  []string
	// written is what all this was written of without an error, on the links on and
	// with these outward links; nil: it is to be written again.
	written *overlay.Wanted
	on      *netdev.Snapshot
	outward []netdev.Link
	classes *class.Table // by which what the node itself sends is classified
}

// prepared is an interface that forwards: one that is made again under its name is
// another one.
type prepared struct {
	name    string
	ifindex int
}

// NewOverlay has written nothing yet.
func NewOverlay(host Host, dp *DataPath, p *pods.Pods, log *slog.Logger) *Overlay {
	return &Overlay{retries: retries{log: log}, host: host, dp: dp, pods: p}
}

// MTU is that of pods; 0: not known yet.
func (o *Overlay) MTU() int { return o.mtu }

// UplinkNames are the interfaces that lead to other nodes, in order.
func (o *Overlay) UplinkNames() (names []string) {
	for _, l := range o.outward {
		if o.uplinks[l.Index] {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Problems is why the node is no member, or what is missing for one.
func (o *Overlay) Problems() []string { return o.problems }

// Sync makes the kernel's part of the overlay, the uplinks and the pods' settings
// what a goal and its tables say.
func (o *Overlay) Sync(g *plan.Goal, t *plan.Tables, links *netdev.Snapshot) {
	o.goal, o.links, o.failed = g, links, 0
	c := &g.Desired.Process.Overlay
	if !c.IsSet() || g.Self.Name == "" {
		o.leave()
		return
	}
	if o.written == g.Wanted && o.on == links && o.mtu == podMTU(o.outward, g, t) && o.classes == t.Classes {
		if o.tables != t {
			o.syncMembers(t)
		}
		return
	}
	o.outward, o.problems = plan.Uplinks(c, g.Wanted.Peers, links), nil
	if len(o.outward) == 0 {
		o.problems = append(o.problems, "no uplink: the node has no default route, and no route to another node")
	}
	mtu := podMTU(o.outward, g, t)
	o.syncEntry(mtu)
	o.syncForwarding()
	o.syncMembers(t)
	o.syncGuard(true)
	o.syncUplinks(o.outward)
	o.syncRoutes()
	o.syncMasquerade(c.Masquerade)
	o.syncPods(mtu)
	o.syncClasses(t.Classes)
	if o.written, o.on = g.Wanted, links; o.failed > 0 {
		o.written = nil
	}
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
func podMTU(uplinks []netdev.Link, g *plan.Goal, t *plan.Tables) int {
	mtu := 1500
	for i, l := range uplinks {
		if i == 0 || l.MTU < mtu {
			mtu = l.MTU
		}
	}
	longest := 0
	for _, s := range g.Wanted.Steering {
		longest = max(longest, ipv6Header, pushed(t.Policies[s.Policy]))
		if row := t.Steering[s.Key()].Row; row != nil {
			for _, way := range row {
				longest = max(longest, pushed(t.Policies[way.Policy]))
			}
		}
	}
	return max(mtu-longest, minMTU)
}

// pushed is the length of the longest header with an SRH that a policy pushes; 0: none has
// one.
func pushed(p srpolicy.Policy) (longest int) {
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

// LowerMTU comes before the tables of a goal, if a path gets longer with them: the
// kernel answers what will be too long with Packet Too Big. Pods get the new MTU
// after that, and until then packets of theirs are on their way.
func (o *Overlay) LowerMTU(g *plan.Goal, next *plan.Tables, links *netdev.Snapshot) {
	c := &g.Desired.Process.Overlay
	if !c.IsSet() || o.mtu == 0 {
		return
	}
	if mtu := podMTU(plan.Uplinks(c, g.Wanted.Peers, links), g, next); mtu < o.mtu {
		o.syncEntry(mtu)
	}
}

func (o *Overlay) syncEntry(mtu int) {
	var want []netip.Addr // the first of each pod prefix: no pod gets it
	for _, p := range o.goal.Self.Prefixes {
		want = append(want, p.Masked().Addr().Next())
	}
	l, there := o.links.Link(netdev.EntryName)
	same := there && l.Index == o.entry.Ifindex && slices.Equal(l.MAC, o.entry.MAC[:])
	if same && l.Up && l.MTU == mtu && o.mtu == mtu && slices.Equal(o.addresses, want) {
		return
	}
	e, err := o.host.PutEntry(want, mtu)
	if !o.check(err, "create the kernel's interface into the overlay", netdev.EntryName) {
		return
	}
	if e.Ifindex != o.entry.Ifindex {
		o.routes = nil // they went with the one before
	}
	if e != o.entry {
		if !o.check(o.dp.Entry.Put(e.Exit), "attach to the kernel's interface into the overlay", netdev.EntryName) {
			return
		}
	}
	o.entry, o.addresses = e, want
}

// syncClasses classifies what the node sends into the overlay: its own by its addresses;
// what it forwards, for Services say, is nobody's.
func (o *Overlay) syncClasses(classes *class.Table) {
	o.classes = classes
	if o.entry.Exit == 0 {
		return
	}
	p := port.Port{Classifier: classes.Classifier(class.Source{Kind: class.SourcePod})}
	if own := classes.Classifier(class.Source{Kind: class.SourceHost}); own != p.Classifier {
		for _, a := range o.links.Local() {
			p.Origins = append(p.Origins, class.Origin{Prefix: netip.PrefixFrom(a, a.BitLen()), Classifier: own})
		}
	}
	o.check(o.dp.SetPort(o.entry.Exit, p), "classify what this node sends into the overlay", netdev.EntryName)
}

// syncForwarding makes uplinks and the entry ready.
func (o *Overlay) syncForwarding() {
	names := []string{netdev.EntryName}
	want := []prepared{{netdev.EntryName, o.entry.Ifindex}}
	for _, l := range o.outward {
		names = append(names, l.Name)
		want = append(want, prepared{l.Name, l.Index})
	}
	if slices.Equal(want, o.prepared) {
		return
	}
	if o.check(o.host.Forwarding(names), "have the kernel forward", names) {
		o.prepared = want
	}
}

// syncGuard is about what the kernel forwards: there packets for SIDs are the data path's to drop.
func (o *Overlay) syncGuard(guard bool) {
	if o.guarded != guard && o.check(o.dp.GuardForwarded(guard), "guard SIDs from what the kernel forwards", guard) {
		o.guarded = guard
	}
}

func (o *Overlay) syncUplinks(uplinks []netdev.Link) {
	var want []int
	for _, l := range uplinks {
		want = append(want, l.Index)
	}
	o.uplinks = syncSet(&o.retries, o.dp.Uplinks, "uplink", o.uplinks, want)
}

// syncMembers is before uplinks take packets of members. The SIDs of the pool, and of all
// policies that the node has, are inside, whoever has them.
func (o *Overlay) syncMembers(t *plan.Tables) {
	process := &o.goal.Desired.Process
	var bgp []netip.Addr
	for _, p := range process.BGP.Peers {
		bgp = append(bgp, p.Address)
	}
	var lists []srpolicy.SegmentList
	for _, p := range t.Policies {
		lists = append(lists, p.SegmentLists...)
	}
	failed := o.failed
	o.members = syncSet(&o.retries, o.dp.Members, "member", o.members, o.goal.Wanted.Members(o.goal.Self, bgp, process.Overlay.LocatorPool, lists))
	if o.tables = t; o.failed > failed {
		o.tables = nil
	}
}

// wantedRoutes are the kernel's: to pods of other nodes through the overlay, and to
// other nodes' locators where these are on the link and nobody else routes them. What is for
// none of this node's pods must not leave by a default route, and come back.
func (o *Overlay) wantedRoutes() map[netip.Prefix]netdev.HostRoute {
	out := map[netip.Prefix]netdev.HostRoute{}
	for _, p := range o.goal.Self.Prefixes {
		out[p.Masked()] = netdev.HostRoute{Prefix: p.Masked(), Unreachable: true}
	}
	sources := map[bool]netip.Addr{}
	for _, addr := range slices.Backward(o.addresses) {
		sources[addr.Is4()] = addr
	}
	for _, s := range o.goal.Wanted.Steering {
		// A default route by a VPN is for pods: the node keeps its own. What tenants have is
		// none of the kernel's.
		if s.Prefix.Bits() > 0 && s.Tenant == 0 && o.entry.Ifindex != 0 {
			out[s.Prefix] = netdev.HostRoute{Prefix: s.Prefix, Ifindex: o.entry.Ifindex, Source: sources[s.Prefix.Addr().Is4()]}
		}
	}
	routed := o.links.Routed()
	for _, r := range o.goal.Wanted.Routes {
		l, hop, err := o.links.Toward(r.Via)
		if err == nil && hop == r.Via && !l.Loopback && !routed(r.Prefix) {
			out[r.Prefix] = netdev.HostRoute{Prefix: r.Prefix, Gateway: r.Via, Ifindex: l.Index}
		}
	}
	return out
}

func (o *Overlay) syncRoutes() {
	want := o.wantedRoutes()
	there := map[netip.Prefix]netdev.HostRoute{}
	var earlier []netdev.HostRoute // of a version whose IPv6 routes had another metric
	for _, r := range o.links.Routes {
		switch {
		case r.Protocol != netdev.OverlayProtocol || r.Table != netdev.TableMain:
		case r.Prefix.Addr().Is6() && r.Metric != netdev.Metric6:
			earlier = append(earlier, netdev.HostRoute{Prefix: r.Prefix, Unreachable: r.Type == netdev.RouteUnreachable, Metric: r.Metric})
		case r.Type == netdev.RouteUnreachable:
			there[r.Prefix] = netdev.HostRoute{Prefix: r.Prefix, Unreachable: true}
		case len(r.Hops) > 0:
			there[r.Prefix] = netdev.HostRoute{Prefix: r.Prefix, Gateway: r.Hops[0].Gateway, Ifindex: r.Hops[0].Ifindex}
		}
	}
	next := make(map[netip.Prefix]netdev.HostRoute, len(want))
	for p, r := range want {
		is := there[p]
		is.Source = r.Source // which the snapshot does not have
		if o.routes[p] == r && is == r || o.check(o.host.PutRoute(r), "put the kernel's route", p) {
			next[p] = r
		}
	}
	maps.Copy(there, o.routes) // one that the snapshot does not have yet
	for p, r := range there {
		if _, stays := want[p]; !stays && !o.check(o.host.DeleteRoute(r), "delete the kernel's route", p) {
			next[p] = r
		}
	}
	for _, r := range earlier {
		o.check(o.host.DeleteRoute(r), "delete the kernel's route", r.Prefix)
	}
	o.routes = next
}

// syncMasquerade: what pods send to nowhere in the cluster.
func (o *Overlay) syncMasquerade(on bool) {
	var want [2][]netip.Prefix
	if g := o.goal; on {
		want[0] = g.Self.Prefixes
		want[1] = append(slices.Clone(g.Self.Prefixes), addressesOf(g.Self.Node())...)
		for _, s := range g.Wanted.Steering {
			if s.Tenant == 0 {
				want[1] = append(want[1], s.Prefix)
			}
		}
		for _, p := range g.Wanted.Peers {
			if !p.Unused { // nothing goes to the addresses that it claims
				want[1] = append(want[1], addressesOf(p.Node)...)
			}
		}
	}
	have := &o.masked
	if have[0] != nil && slices.Equal(have[0], want[0]) && slices.Equal(have[1], want[1]) {
		return
	}
	if o.check(o.host.Masquerade(want[0], want[1]), "masquerade what leaves the cluster", "nftables") {
		if want[0] == nil {
			want[0] = []netip.Prefix{} // done
		}
		o.masked = want
	}
}

// Look has Sync masquerade again where somebody else removed that. It says whether so.
func (o *Overlay) Look() (removed bool) {
	if len(o.masked[0]) == 0 {
		return false
	}
	there, err := o.host.Masquerades(o.masked[0])
	if !o.check(err, "look whether what leaves the cluster is masqueraded", "nftables") || there {
		return false
	}
	o.log.Warn("somebody removed the masquerading of what pods send out of the cluster: it is written again", "event", logevent.OverlayMasqueradeRemoved)
	o.masked, o.written = [2][]netip.Prefix{}, nil
	return true
}

// addressesOf are all of a node's.
func addressesOf(n overlay.Node) []netip.Prefix {
	out := []netip.Prefix{netip.PrefixFrom(n.Address, n.Address.BitLen())}
	for _, a := range n.Addresses {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// syncPods has new pods get the prefixes and the MTU, and sets the MTU of the
// present ones when it changes.
func (o *Overlay) syncPods(mtu int) {
	settings := pods.Settings{Prefixes: o.goal.Self.Prefixes, MTU: mtu}
	for _, t := range o.goal.Self.Tenants {
		settings.Tenants = append(settings.Tenants, pods.Tenant{
			Name: t.Name, ID: t.ID, Namespaces: t.Namespaces, Prefixes: t.Prefixes(settings.Prefixes), Routes: t.Reached(),
		})
	}
	if !o.check(o.pods.Set(settings), "set the prefixes of pods", o.goal.Self.Prefixes) {
		return
	}
	if o.mtu == mtu {
		return
	}
	ok := true
	if o.mtu != 0 {
		o.log.Info("the MTU of pods changes", "event", logevent.OverlayMTUChanged, "from", o.mtu, "to", mtu)
	}
	for _, p := range o.pods.List() {
		ok = o.check(o.host.SetPodMTU(p.NetNS, p.Interface, mtu), "set the MTU of a pod", p.Namespace+"/"+p.Name) && ok
	}
	if ok {
		o.mtu = mtu
	}
}

// leave is for a node that is no member: it removes what an earlier configuration
// made. Pods that are there still reach the node and each other.
func (o *Overlay) leave() {
	c := &o.goal.Desired.Process.Overlay
	problem := pods.ErrNoCluster.Error()
	if c.IsSet() {
		problem = "this node is no member of its cluster yet: it lacks " + plan.SelfOf(c, o.goal.Observed.Self, o.links, netip.Addr{}).Missing()
	}
	o.problems = []string{problem}
	o.check(o.pods.Set(pods.Settings{Problem: problem, Limited: true}), "set the prefixes of pods", "none")
	if _, there := o.links.Link(netdev.EntryName); c.IsSet() || !there && o.entry.Ifindex == 0 {
		return
	}
	o.syncUplinks(nil)
	o.members = syncSet(&o.retries, o.dp.Members, "member", o.members, nil)
	o.guarded = !o.check(o.dp.GuardForwarded(false), "guard no SIDs", false)
	o.syncMasquerade(false)
	if e := o.entry; e.Exit != 0 {
		o.check(o.dp.Entry.Delete(e.Exit), "detach from the kernel's interface into the overlay", netdev.EntryName)
		o.check(o.dp.DeletePort(e.Exit), "classify nothing there", netdev.EntryName)
	}
	for _, r := range o.routes {
		o.check(o.host.DeleteRoute(r), "delete the kernel's route", r.Prefix)
	}
	if o.check(o.host.DeleteEntry(), "remove the kernel's interface into the overlay", netdev.EntryName) {
		o.overlayState = overlayState{problems: o.problems}
	}
}
