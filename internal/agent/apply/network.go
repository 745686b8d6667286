package apply

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
)

const (
	askedFor  = time.Minute
	mostAsked = 256
	// askedAgain is how often, if there is still no answer.
	askedAgain = time.Second
	// mostWarnings is for each time: a table that is full fails once for each
	// route.
	mostWarnings = 5
)

// retries counts and logs writes that fail and are tried again.
type retries struct {
	log    *slog.Logger
	failed int
	first  string // of what failed
}

// check logs an error and has the write tried again. It says whether there was
// none.
func (r *retries) check(err error, what string, key any) bool {
	if err == nil {
		return true
	}
	if r.failed == 0 {
		r.first = fmt.Sprintf("%s %v: %v", what, key, err)
	}
	if r.failed++; r.failed <= mostWarnings {
		r.log.Warn("cannot keep the data path in step with the kernel; will try again", "event", logevent.DataPathOutOfStep, "what", what, "key", key, "error", err)
	}
	return false
}

// Failures returns how many writes failed, and says what the first one was.
func (r *retries) Failures() (n int, first string) { return r.failed, r.first }

// Failed says whether something could not be written.
func (r *retries) Failed() bool { return r.failed > 0 }

// Network writes the kernel's view to the data path: the node's addresses,
// devices, routes and neighbours. It remembers what was written without an error
// since.
type Network struct {
	retries
	dp        *DataPath
	keepAlive func([]netdev.Key) // has the kernel resolve neighbours

	links   *netdev.Snapshot // the last
	locals  map[netip.Prefix]bool
	routes  map[netdev.RouteKey][]netdev.Key
	hops    map[adjacency.Key]Hop
	devices map[int]bool
	asked   map[netdev.Key]time.Time
	// lacking are the routes that could not be written.
	lacking map[netdev.RouteKey]bool
	// written are the links, tables and pods of which all but the adjacencies were
	// written without an error; resolved are the links of the adjacencies.
	written  *netdev.Snapshot
	tables   []uint32
	pods     []netip.Prefix
	resolved *netdev.Snapshot
	// own are the tables whose SIDs hops may be.
	own *plan.Tables
}

// Hop is how an adjacency is resolved: by Next, by those that its flows share, or by nothing
// because of Why.
type Hop struct {
	Next   *adjacency.NextHop
	Shared []adjacency.Member
	Why    string
}

// NewNetwork has written nothing yet.
func NewNetwork(dp *DataPath, keepAlive func([]netdev.Key), log *slog.Logger) *Network {
	return &Network{
		retries: retries{log: log}, dp: dp, keepAlive: keepAlive,
		routes: map[netdev.RouteKey][]netdev.Key{}, hops: map[adjacency.Key]Hop{}, asked: map[netdev.Key]time.Time{},
	}
}

// Sync makes the data path's addresses, devices, routes and adjacencies those of
// the links. t says which of the kernel's routing tables packets are looked up in,
// and pods are the prefixes of this node's pods.
func (n *Network) Sync(links *netdev.Snapshot, t *plan.Tables, pods []netip.Prefix) {
	n.links, n.failed = links, 0
	tables := t.RouteTables()
	if !t.SameSIDs(n.own) {
		n.ownSIDs(t)
	}
	if n.written == links && slices.Equal(n.tables, tables) && slices.Equal(n.pods, pods) {
		n.SyncHops()
	} else {
		// The node's own addresses go to the kernel, whatever prefix they are in.
		n.locals = syncSet(&n.retries, n.dp.Locals, "local address", n.locals, links.Own())
		n.syncDevices()
		mirror := netdev.Mirror(links, tables)
		// The data path asks the kernel about this node's pods: the routes to each of them
		// are no part of the snapshot.
		for _, p := range pods {
			key := netdev.RouteKey{Table: netdev.TableMain, Prefix: p.Masked()}
			if _, there := mirror[key]; !there && !links.ExtraRules(p.Addr().Is6()) {
				mirror[key] = nil
			}
		}
		n.putRoutes(mirror)
		n.SyncHops()
		// After the puts: a packet must not find a shorter prefix because the longer one
		// is not there yet.
		for key := range n.routes {
			if _, stays := mirror[key]; !stays && n.check(n.dp.DeleteRoute(key.Table, key.Prefix), "delete route", key) {
				delete(n.routes, key)
			}
		}
		n.written, n.tables, n.pods = links, tables, pods
	}
	if n.failed > 0 {
		n.written = nil
	}
	if more := n.failed - mostWarnings; more > 0 {
		n.log.Warn("cannot keep the data path in step with the kernel; will try again", "event", logevent.DataPathOutOfStep, "more", more)
	}
}

// ownSIDs has the adjacencies resolved again that are SIDs of this node now, or were before.
func (n *Network) ownSIDs(t *plan.Tables) {
	former := n.own
	n.own = t
	for key := range n.hops {
		if former != nil && former.HasSID(key.NextHop) != t.HasSID(key.NextHop) {
			delete(n.hops, key)
			n.resolved = nil
		}
	}
}

// Hops are the adjacencies that the tables refer to.
func (n *Network) Hops() map[adjacency.Key]Hop { return n.hops }

// syncDevices: every device that frames can be redirected to. Which of them a
// route leads to can change without us (bpf_fib_lookup), so it is all of them.
func (n *Network) syncDevices() {
	var want []int
	for _, l := range n.links.Links {
		if l.Up && l.Ethernet && l.Kind != "vlan" && (l.XDP&netdev.XDPTransmit != 0 || n.links.AnyEthernet) {
			want = append(want, l.Index)
		}
	}
	n.devices = syncSet(&n.retries, n.dp.Devices, "device", n.devices, want)
}

// syncSet puts the keys of want into a table and deletes all others. It returns
// the keys that the table then holds.
func syncSet[K comparable](r *retries, t Table[K, K], what string, have map[K]bool, want []K) map[K]bool {
	next, wanted := make(map[K]bool, len(want)), make(map[K]bool, len(want))
	for _, key := range want {
		wanted[key] = true
		if have[key] || r.check(t.Put(key), "put "+what, key) {
			next[key] = true
		}
	}
	for key := range have {
		if !wanted[key] && !r.check(t.Delete(key), "delete "+what, key) {
			next[key] = true
		}
	}
	return next
}

// putRoutes mirrors routes. Where one cannot be put, a packet for it must not
// be led by a shorter prefix: all of those around it ask the kernel.
func (n *Network) putRoutes(mirror map[netdev.RouteKey][]netdev.Key) {
	around := map[netdev.RouteKey]bool{}
	for key := range n.lacking {
		if _, still := mirror[key]; still {
			coverings(key, func(k netdev.RouteKey) { around[k] = true })
		}
	}
	lacking := map[netdev.RouteKey]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(mirror), func(a, b netdev.RouteKey) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	}) {
		via := mirror[key]
		if around[key] {
			via = nil
		}
		if !n.putRoute(key, via) {
			lacking[key] = true
		}
	}
	for key := range lacking {
		coverings(key, func(k netdev.RouteKey) {
			if len(n.routes[k]) > 0 {
				n.putRoute(k, nil)
			}
		})
	}
	if len(lacking) < len(n.lacking) {
		n.failed++ // what is around those that are there now is still to be put
	}
	n.lacking = lacking
}

// coverings calls f for every shorter prefix that a route is in.
func coverings(key netdev.RouteKey, f func(netdev.RouteKey)) {
	for bits := range key.Prefix.Bits() {
		f(netdev.RouteKey{Table: key.Table, Prefix: netip.PrefixFrom(key.Prefix.Addr(), bits).Masked()})
	}
}

func (n *Network) putRoute(key netdev.RouteKey, via []netdev.Key) bool {
	if old, there := n.routes[key]; there && slices.Equal(old, via) {
		return true
	}
	hops := make([]adjacency.Key, len(via))
	for i, k := range via {
		hops[i] = keyOf(k)
	}
	if !n.check(n.dp.PutRoute(key.Table, key.Prefix, hops), "put route", key) {
		return false
	}
	n.routes[key] = via
	return true
}

// SyncHops resolves the adjacencies that the tables refer to, and has the kernel
// keep their neighbours. On the same links these are the new ones only.
func (n *Network) SyncHops() {
	keys, changed := n.newHops()
	if n.resolved != n.links {
		keys = n.dp.AdjacencyKeys()
	}
	n.resolved = n.links
	for len(keys) > 0 {
		for _, key := range keys {
			n.syncHop(key)
		}
		fresh, more := n.newHops() // that flows share
		keys, changed = fresh, changed || more
	}
	if changed {
		n.keep()
	}
}

// newHops are the adjacencies that tables refer to since it was asked last. changed says
// whether some are new or gone.
func (n *Network) newHops() (fresh []adjacency.Key, changed bool) {
	fresh, gone := n.dp.AdjacencyChanges()
	for _, key := range slices.Concat(fresh, gone) {
		delete(n.hops, key) // a new one leads nowhere, be there one before
	}
	return fresh, len(fresh)+len(gone) > 0
}

// syncHop has an adjacency lead where the links say.
func (n *Network) syncHop(key adjacency.Key) {
	want := Resolve(n.links, key)
	if key.Interface == "" && n.own != nil && n.own.HasSID(key.NextHop) {
		want = Hop{Why: "a SID of this node"}
	}
	if old, known := n.hops[key]; known && old.Why == want.Why && reflect.DeepEqual(old.Next, want.Next) && slices.Equal(old.Shared, want.Shared) {
		return
	}
	set := func() error { return n.dp.SetNextHop(key, want.Next) }
	if want.Shared != nil {
		set = func() error { return n.dp.SetShared(key, want.Shared) }
	}
	if !n.check(set(), "set next hop", KeyName(key)) {
		delete(n.hops, key)
		n.resolved = nil // all again
		return
	}
	n.hops[key] = want
	n.log.Debug("next hop", "key", KeyName(key), "state", want.State(true))
}

// keep has the kernel resolve the neighbours that tables refer to and those
// passed to Ask.
func (n *Network) keep() {
	keys := slices.Collect(maps.Keys(n.asked))
	for key := range n.hops {
		keys = append(keys, linkKey(key))
	}
	n.keepAlive(keys)
}

// Ask has a neighbour resolved that no table refers to: a packet waits for it,
// or an error is to be sent to it (that one is lost, the next is not).
func (n *Network) Ask(key netdev.Key) {
	for k, at := range n.asked {
		if time.Since(at) > askedFor {
			delete(n.asked, k)
		}
	}
	last, there := n.asked[key]
	if there && time.Since(last) < askedAgain || !there && len(n.asked) >= mostAsked {
		return
	}
	n.asked[key] = time.Now()
	n.keep()
}

// linkKey is what the links resolve of a key, which its path's MTU does not change.
func linkKey(k adjacency.Key) netdev.Key {
	return netdev.Key{NextHop: k.NextHop, Interface: k.Interface, Table: k.Table}
}

func keyOf(k netdev.Key) adjacency.Key {
	return adjacency.Key{NextHop: k.NextHop, Interface: k.Interface, Table: k.Table}
}

// KeyName is an adjacency as people see it.
func KeyName(k adjacency.Key) string {
	if k.MTU != 0 {
		return fmt.Sprintf("%s mtu %d", linkKey(k), k.MTU)
	}
	return linkKey(k).String()
}

// Resolve says how the links resolve an adjacency.
func Resolve(links *netdev.Snapshot, key adjacency.Key) Hop {
	var shared []adjacency.Member
	for _, s := range links.Shares(linkKey(key)) {
		if _, err := netdev.Resolve(links, s.Key); err != nil {
			s.Weight = 0 // its neighbour is asked for
		}
		member := keyOf(s.Key)
		member.MTU = key.MTU
		shared = append(shared, adjacency.Member{Key: member, Weight: s.Weight})
	}
	if shared != nil {
		return Hop{Shared: shared}
	}
	nh, err := netdev.Resolve(links, linkKey(key))
	if err != nil {
		return Hop{Why: err.Error()}
	}
	out := &adjacency.NextHop{Ifindex: nh.Ifindex, MTU: nh.MTU, Dst: nh.Dst, Src: nh.Src, Pass: nh.Pass}
	if out.Dst == nil && !out.Pass {
		out.Dst = make(net.HardwareAddr, 6) // the frame, or its packet's destination, has its own
	}
	if key.MTU != 0 && (out.MTU == 0 || key.MTU < out.MTU) {
		out.MTU = key.MTU
	}
	for _, v := range nh.VLANs {
		out.VLANs = append(out.VLANs, adjacency.VLAN(v))
	}
	return Hop{Next: out, Why: nh.Why}
}

// State is ready, or why not. member says that the node is in a cluster, whose pods' programs
// reach more devices.
func (h Hop) State(member bool) string {
	switch {
	case h.Shared != nil:
		return h.shared()
	case h.Next == nil:
		return h.Why
	case h.Next.Pass && h.Next.Dst != nil && member:
		return "ready for pods; else by the kernel: " + h.Why
	case h.Next.Pass:
		return "by the kernel: " + h.Why
	}
	return "ready"
}

// IsShared says whether flows share next hops that are resolved.
func (h Hop) IsShared() bool {
	return slices.ContainsFunc(h.Shared, func(m adjacency.Member) bool { return m.Weight > 0 })
}

// Interfaces are those of the next hops that flows share, if they do.
func (h Hop) Interfaces() string {
	var names []string
	for _, m := range h.Shared {
		if m.Weight > 0 && !slices.Contains(names, m.Interface) {
			names = append(names, m.Interface)
		}
	}
	return strings.Join(names, ", ")
}

// shared says which next hops flows share, and which of them get none.
func (h Hop) shared() string {
	var ready, others []string
	for _, m := range h.Shared {
		if name := KeyName(m.Key); m.Weight > 0 {
			ready = append(ready, name)
		} else {
			others = append(others, name)
		}
	}
	state := "no next hop is ready"
	if len(ready) > 0 {
		state = "flows share " + strings.Join(ready, ", ")
	}
	if len(others) > 0 {
		state += "; not resolved: " + strings.Join(others, ", ")
	}
	return state
}
