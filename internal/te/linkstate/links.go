package linkstate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/srv6"
)

// The multi-topology IDs that carry unicast (RFC 5120 section 7.5).
const (
	topologyDefault = 0
	topologyIPv6    = 2
)

const (
	// unusable is the metric of a link that IS-IS does not route by (RFC 5305 section 3).
	unusable = 1<<24 - 1
	// detour is what an overloaded router's links cost in addition: nothing passes through it
	// where there is another path.
	detour = 1 << 24
)

// ends name a link's direction between two routers: its addresses, or else the numbers of its
// interfaces.
type ends struct {
	from, to          Router
	local, remote     netip.Addr
	localID, remoteID uint32
}

func (l Link) ends() ends {
	e := ends{from: l.From, to: l.To, local: l.Local, remote: l.Remote}
	if !l.Local.IsValid() || !l.Remote.IsValid() {
		e.localID, e.remoteID = l.LocalID, l.RemoteID
	}
	return e
}

// reverse names the other direction.
func (e ends) reverse() ends {
	return ends{from: e.to, to: e.from, local: e.remote, remote: e.local, localID: e.remoteID, remoteID: e.localID}
}

// partial says that an end is unknown.
func (e ends) partial() bool {
	return (!e.local.IsValid() || !e.remote.IsValid()) && (e.localID == 0 || e.remoteID == 0)
}

// word distinguishes links between the same routers, alike in both directions.
func (e ends) word() string {
	switch {
	case e.partial():
		return ""
	case e.local.IsValid() && e.remote.IsValid():
		if e.remote.Less(e.local) {
			return e.remote.String()
		}
		return e.local.String()
	case compareRouters(e.to, e.from) < 0:
		return fmt.Sprintf("%d-%d", e.remoteID, e.localID)
	}
	return fmt.Sprintf("%d-%d", e.localID, e.remoteID)
}

// topology is the one of a link that carries unicast, of IPv6 if there is one; false: none does.
func (l Link) topology() (uint16, bool) {
	switch {
	case slices.Contains(l.Topologies, topologyIPv6):
		return topologyIPv6, true
	case len(l.Topologies) == 0 || slices.Contains(l.Topologies, topologyDefault):
		return topologyDefault, true
	}
	return 0, false
}

// compareLinks puts those of topology 2 first, and of IS-IS level 1, whose paths win.
func compareLinks(a, c Link) int {
	x, y := a.ends(), c.ends()
	s, _ := a.topology()
	t, _ := c.topology()
	return cmp.Or(
		compareRouters(x.from, y.from), compareRouters(x.to, y.to), x.local.Compare(y.local), x.remote.Compare(y.remote),
		cmp.Compare(x.localID, y.localID), cmp.Compare(x.remoteID, y.remoteID),
		cmp.Compare(t, s), cmp.Compare(a.Protocol, c.Protocol), cmp.Compare(a.Metric, c.Metric),
	)
}

// join adds the links whose other direction is there.
func (b *builder) join() {
	byIPv6 := map[Router]bool{} // routers with links of topology 2
	for _, l := range b.links {
		if t, _ := l.topology(); t == topologyIPv6 {
			byIPv6[l.From] = true
		}
	}
	once := []Link(nil)
	known, between := map[ends]Link{}, map[[2]Router][]ends{}
	for _, l := range b.links {
		e := l.ends()
		if _, again := known[e]; again {
			continue // another level, area or topology
		}
		t, carries := l.topology()
		switch {
		case !carries:
			b.foreign["they are of multi-topology IDs that carry no unicast of IPv6"]++
		case t == topologyDefault && byIPv6[l.From] && byIPv6[l.To]:
			b.foreign["they are of topology 0 between routers that route IPv6 in topology 2"]++
		default:
			once, known[e] = append(once, l), l
			between[[2]Router{e.from, e.to}] = append(between[[2]Router{e.from, e.to}], e)
		}
	}
	lans := map[Router][]Link{}
	for _, l := range once {
		switch {
		case l.From.lan():
		case l.To.lan():
			lans[l.To] = append(lans[l.To], l)
		default:
			back, both := other(known, between, l.ends())
			b.addLink(l, back, both)
		}
	}
	b.joinLANs(lans, between)
}

// other finds the other direction of a link: by its ends, or, if one is unknown, as the only one
// there is.
func other(known map[ends]Link, between map[[2]Router][]ends, e ends) (Link, bool) {
	if l, has := known[e.reverse()]; has && !e.partial() {
		return l, true
	}
	there, back := between[[2]Router{e.from, e.to}], between[[2]Router{e.to, e.from}]
	if len(there) != 1 || len(back) != 1 || !e.partial() && !back[0].partial() {
		return Link{}, false
	}
	return known[back[0]], true
}

// addLink adds a direction of a link between routers, or says why not.
func (b *builder) addLink(l Link, back Link, both bool) {
	what := b.what(l)
	switch {
	case b.nodes[l.From] == nil || b.nodes[l.To] == nil:
		b.leaveOut(what, "an end of it is no node")
	case l.From == l.To:
		b.leaveOut(what, "it ends where it begins")
	case !both:
		b.leaveOut(what, "its other direction is missing")
	case l.fault() != "":
		b.leaveOut(what, l.fault())
	case back.fault() != "":
		b.leaveOut(what, "of its other direction, "+back.fault())
	default:
		name := l.ends().word()
		if back.ends().partial() {
			name = ""
		}
		b.topology.Links = append(b.topology.Links, b.values(l, l.To, name))
	}
}

// what names a link for people.
func (b *builder) what(l Link) string {
	what := fmt.Sprintf("link %s to %s", b.called(l.From), b.called(l.To))
	if word := l.ends().word(); word != "" {
		what += " (" + word + ")"
	}
	return what
}

// fault says why a link carries no traffic.
func (l Link) fault() string {
	isISIS := l.Protocol == ISISLevel1 || l.Protocol == ISISLevel2
	switch {
	case !l.HasMetric:
		return "it has no IGP metric"
	case l.Metric == 0:
		return "its IGP metric is 0"
	case isISIS && l.Metric >= unusable:
		return fmt.Sprintf("its metric, %d, takes it out of the IGP", l.Metric)
	case math.IsNaN(l.Bandwidth) || math.IsInf(l.Bandwidth, 0) || l.Bandwidth < 0:
		return fmt.Sprintf("its bandwidth is %v octets/s", l.Bandwidth)
	}
	return ""
}

// values are a link's as the engine computes with them.
func (b *builder) values(l Link, to Router, name string) te.Link {
	out := te.Link{From: b.called(l.From), To: b.called(to), Name: name, Metric: l.Metric, Capacity: 8 * l.Bandwidth, Delay: l.delay(), Affinity: l.Affinity, SRLG: l.SRLG}
	if b.overloaded[l.From] && out.Metric < math.MaxUint32-detour {
		out.Metric += detour
	}
	for _, x := range l.SIDs {
		ok := x.Algorithm == 0 && !x.Set && is(srv6.EndX, x.Behavior) && len(srv6.CheckUnicast6("", x.SID)) == 0
		if ok && (!out.SID.IsValid() || x.SID.Less(out.SID)) {
			out.SID = x.SID
		}
	}
	return out
}

// delay is the mean one, or else the least. One that is anomalous counts as the largest.
func (l Link) delay() time.Duration {
	d := cmp.Or(l.Delay, l.MinDelay)
	if l.Anomalous {
		d = max(d, l.MaxDelay)
	}
	return d
}

// joinLANs adds the links between the two routers of a LAN. to are the links to each LAN, whose
// own links to the routers have the metric 0.
func (b *builder) joinLANs(to map[Router][]Link, between map[[2]Router][]ends) {
	levels := map[ends]Router{} // the LAN that an interface is in, of the first level
	for _, lan := range slices.SortedFunc(maps.Keys(to), compareRouters) {
		links := slices.DeleteFunc(to[lan], func(l Link) bool {
			back := between[[2]Router{lan, l.From}]
			if len(back) == 0 {
				b.leaveOut(b.what(l), "its other direction is missing")
			}
			return len(back) == 0
		})
		what := "LAN " + lan.String()
		switch {
		case !b.lans[lan]:
			b.leaveOut(what, "it is no node")
			continue
		case len(links) != 2 || links[0].From == links[1].From:
			b.leaveOut(what, fmt.Sprintf("it joins %s: a LAN of two counts as a link", plural.Of(len(links), "router")))
			continue
		}
		at := ends{from: links[0].From, local: links[0].Local}
		if first, again := levels[at]; again && at.local.IsValid() {
			b.leaveOut(what, "its interfaces are those of LAN "+first.String())
			continue
		}
		levels[at] = lan
		b.joinLAN(links[0], links[1])
		b.joinLAN(links[1], links[0])
	}
}

// joinLAN adds the direction of a LAN from one of its two routers to the other, or says why not.
func (b *builder) joinLAN(l, back Link) {
	why := cmp.Or(l.fault(), back.fault())
	if b.nodes[l.From] == nil || b.nodes[back.From] == nil {
		why = "an end of it is no node"
	}
	if why != "" {
		b.leaveOut(b.what(l), why)
		return
	}
	b.topology.Links = append(b.topology.Links, b.values(l, back.From, l.To.String()))
}
