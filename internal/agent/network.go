package agent

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
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

// network is what the data path holds of the kernel's view: what was put, and
// no error since.
type network struct {
	locals  map[netip.Addr]bool
	routes  map[netdev.RouteKey][]netdev.Key
	hops    map[dataplane.AdjacencyKey]hop
	devices map[int]bool
	asked   map[netdev.Key]time.Time
	// lacking are routes that there was no room for, or another error.
	lacking map[netdev.RouteKey]bool
	// failed is how much could not be put, and is tried again.
	failed int
	// of are the links, the routing tables and the prefixes of pods that all but the
	// adjacencies were put of, without an error, and resolved the links that these
	// are of.
	of       *netdev.Snapshot
	tables   []uint32
	pods     []netip.Prefix
	resolved *netdev.Snapshot
}

// hop is how an adjacency is resolved: by next, or by nothing because of why.
type hop struct {
	next *dataplane.NextHop
	why  string
}

// syncNetwork makes the data path's addresses, devices, routes and adjacencies
// those of the last snapshot. What fails is logged and tried again.
func (a *Agent) syncNetwork() {
	a.network.failed = 0
	if tables := a.tables.routeTables(); a.network.of != a.links || !slices.Equal(a.network.tables, tables) || !slices.Equal(a.network.pods, a.desired.self.Prefixes) {
		a.syncLocals()
		a.syncDevices()
		mirror := netdev.Mirror(a.links, tables)
		a.addPods(mirror)
		a.putRoutes(mirror)
		a.syncHops()
		a.deleteRoutes(mirror)
		a.network.of, a.network.tables, a.network.pods = a.links, tables, a.desired.self.Prefixes
	} else {
		a.syncHops()
	}
	if a.network.failed > 0 {
		a.network.of = nil
	}
	if more := a.network.failed - mostWarnings; more > 0 {
		a.log.Warn("cannot keep the data path in step with the kernel; will try again", "more", more)
	}
}

// addPods has the kernel asked for this node's pods: the routes to each of them are
// no part of the snapshot.
func (a *Agent) addPods(mirror map[netdev.RouteKey][]netdev.Key) {
	for _, p := range a.desired.self.Prefixes {
		key := netdev.RouteKey{Table: netdev.TableMain, Prefix: p.Masked()}
		if _, there := mirror[key]; !there && !a.links.ExtraRules(p.Addr().Is6()) {
			mirror[key] = nil
		}
	}
}

// check logs an error and has it tried again. It says whether there was none.
func (a *Agent) check(err error, what string, key any) bool {
	if err == nil {
		return true
	}
	if a.network.failed++; a.network.failed <= mostWarnings {
		a.log.Warn("cannot keep the data path in step with the kernel; will try again", "what", what, "key", key, "error", err)
	}
	return false
}

// syncLocals: the node's own addresses go to the kernel, whatever prefix they
// are in.
func (a *Agent) syncLocals() {
	want := map[netip.Addr]bool{}
	have := a.network.locals
	next := map[netip.Addr]bool{}
	for _, addr := range a.links.Local() {
		want[addr] = true
		if have[addr] || a.check(a.dp.PutLocal(addr), "put local address", addr) {
			next[addr] = true
		}
	}
	for addr := range have {
		if !want[addr] && !a.check(a.dp.DeleteLocal(addr), "delete local address", addr) {
			next[addr] = true
		}
	}
	a.network.locals = next
}

// syncDevices: every device that frames can be redirected to. Which of them a
// route leads to can change without us (bpf_fib_lookup), so it is all of them.
func (a *Agent) syncDevices() {
	want := map[int]bool{}
	have := a.network.devices
	next := map[int]bool{}
	for _, l := range a.links.Links {
		if !l.Up || !l.Ethernet || l.Kind == "vlan" || l.XDP&netdev.XDPTransmit == 0 && !a.links.AnyEthernet {
			continue
		}
		want[l.Index] = true
		if have[l.Index] || a.check(a.dp.PutDevice(l.Index), "put device", l.Name) {
			next[l.Index] = true
		}
	}
	for ifindex := range have {
		if !want[ifindex] && !a.check(a.dp.DeleteDevice(ifindex), "delete device", ifindex) {
			next[ifindex] = true
		}
	}
	a.network.devices = next
}

// putRoutes mirrors routes. Where one cannot be put, a packet for it must not
// be led by a shorter prefix: all of those around it ask the kernel.
func (a *Agent) putRoutes(mirror map[netdev.RouteKey][]netdev.Key) {
	if a.network.routes == nil {
		a.network.routes = make(map[netdev.RouteKey][]netdev.Key, len(mirror))
	}
	around := map[netdev.RouteKey]bool{}
	for key := range a.network.lacking {
		if _, still := mirror[key]; still {
			coverings(key, func(k netdev.RouteKey) { around[k] = true })
		}
	}
	lacking := map[netdev.RouteKey]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(mirror), compareRoutes) {
		via := mirror[key]
		if around[key] {
			via = nil
		}
		if !a.putRoute(key, via) {
			lacking[key] = true
		}
	}
	for key := range lacking {
		coverings(key, func(k netdev.RouteKey) {
			if len(a.network.routes[k]) > 0 {
				a.putRoute(k, nil)
			}
		})
	}
	if len(lacking) < len(a.network.lacking) {
		a.network.failed++ // what is around those that are there now is still to be put
	}
	a.network.lacking = lacking
}

// coverings calls f for every shorter prefix that a route is in.
func coverings(key netdev.RouteKey, f func(netdev.RouteKey)) {
	for bits := range key.Prefix.Bits() {
		f(netdev.RouteKey{Table: key.Table, Prefix: netip.PrefixFrom(key.Prefix.Addr(), bits).Masked()})
	}
}

func (a *Agent) putRoute(key netdev.RouteKey, via []netdev.Key) bool {
	if old, there := a.network.routes[key]; there && slices.Equal(old, via) {
		return true
	}
	if !a.check(a.dp.PutRoute(key.Table, key.Prefix, toDataPlane(via)), "put route", key) {
		return false
	}
	a.network.routes[key] = via
	return true
}

// deleteRoutes comes after the puts: a packet must not find a shorter prefix
// because the longer one is not there yet.
func (a *Agent) deleteRoutes(mirror map[netdev.RouteKey][]netdev.Key) {
	for key := range a.network.routes {
		if _, stays := mirror[key]; stays {
			continue
		}
		if a.check(a.dp.DeleteRoute(key.Table, key.Prefix), "delete route", key) {
			delete(a.network.routes, key)
		}
	}
}

func compareRoutes(a, b netdev.RouteKey) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
}

// syncHops resolves the adjacencies that the tables refer to, and has the kernel
// keep their neighbours. On the same links these are the new ones only.
func (a *Agent) syncHops() {
	keys, gone := a.dp.AdjacencyChanges()
	changed := len(keys)+len(gone) > 0
	for _, key := range slices.Concat(keys, gone) {
		delete(a.network.hops, key) // a new one leads nowhere, be there one before
	}
	if a.network.resolved != a.links {
		keys = a.dp.AdjacencyKeys()
	}
	if a.network.hops == nil {
		a.network.hops = make(map[dataplane.AdjacencyKey]hop, len(keys))
	}
	a.network.resolved = a.links
	for _, key := range keys {
		if !a.syncHop(key) {
			a.network.resolved = nil // all again
		}
	}
	if changed {
		a.keepAlive()
	}
}

// syncHop says whether the data path has what the links say of an adjacency.
func (a *Agent) syncHop(key dataplane.AdjacencyKey) bool {
	want := resolve(a.links, key)
	if old, known := a.network.hops[key]; known && old.why == want.why && reflect.DeepEqual(old.next, want.next) {
		return true
	}
	if !a.check(a.dp.SetNextHop(key, want.next), "set next hop", netdev.Key(key)) {
		delete(a.network.hops, key)
		return false
	}
	a.network.hops[key] = want
	a.log.Debug("next hop", "key", netdev.Key(key), "state", want.state())
	return true
}

// keepAlive has the kernel resolve what is in use, and what was asked for.
func (a *Agent) keepAlive() {
	keys := slices.Collect(maps.Keys(a.network.asked))
	for key := range a.network.hops {
		keys = append(keys, netdev.Key(key))
	}
	a.watch.KeepAlive(keys)
}

// ask has a neighbour resolved that no table refers to: a packet waits for it,
// or an error is to be sent to it (that one is lost, the next is not).
func (a *Agent) ask(key netdev.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, at := range a.network.asked {
		if time.Since(at) > askedFor {
			delete(a.network.asked, k)
		}
	}
	last, there := a.network.asked[key]
	if there && time.Since(last) < askedAgain || !there && len(a.network.asked) >= mostAsked {
		return
	}
	if a.network.asked == nil {
		a.network.asked = map[netdev.Key]time.Time{}
	}
	a.network.asked[key] = time.Now()
	a.keepAlive()
}

func resolve(links *netdev.Snapshot, key dataplane.AdjacencyKey) hop {
	nh, err := netdev.Resolve(links, netdev.Key(key))
	if err != nil {
		return hop{why: err.Error()}
	}
	out := &dataplane.NextHop{Ifindex: nh.Ifindex, MTU: nh.MTU, Dst: nh.Dst, Src: nh.Src, Pass: nh.Pass}
	if out.Dst == nil && !out.Pass {
		out.Dst = make(net.HardwareAddr, 6) // the frame, or its packet's destination, has its own
	}
	for _, v := range nh.VLANs {
		out.VLANs = append(out.VLANs, dataplane.VLAN(v))
	}
	return hop{next: out, why: nh.Why}
}

func (h hop) state() string {
	switch {
	case h.next == nil:
		return h.why
	case h.next.Pass && h.next.Dst != nil:
		return "ready for pods; else by the kernel: " + h.why
	case h.next.Pass:
		return "by the kernel: " + h.why
	}
	return "ready"
}

func toDataPlane(keys []netdev.Key) []dataplane.AdjacencyKey {
	out := make([]dataplane.AdjacencyKey, len(keys))
	for i, k := range keys {
		out[i] = dataplane.AdjacencyKey(k)
	}
	return out
}

func linkNames(s *netdev.Snapshot) []string {
	out := make([]string, len(s.Links))
	for i, l := range s.Links {
		out[i] = l.Name
	}
	return out
}

// interfacesOf are the interfaces that a resource names.
func interfacesOf(r resource) []string {
	name := ""
	switch v := r.value.(type) {
	case config.Interface:
		name = v.Name
	case srv6.LocalSID:
		name = v.Interface
	case srpolicy.Steering:
		name = v.Interface
	case srpolicy.Policy, gtpu.Tunnel:
	}
	if name == "" {
		return nil
	}
	return []string{name}
}
