package observed

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// State is what BGP peers and the Kubernetes API say. Nobody changes it in
// place: Edit makes a copy that can change.
type State struct {
	Paths    map[string]Path // by PathName
	Nodes    map[string]Node // other nodes, by name: Kubernetes
	Reaches  map[overlay.Destination]Reach
	Families map[netip.Addr][]string // address families, by BGP peer
	Self     Self
	// Classes are traffic classes of Kubernetes by name. The map never changes in place.
	Classes map[string]kube.Class
	// Former are the nodes that another control plane knew before the present
	// one. Each stays until the present one knows it, or for FormerTime.
	Former []overlay.Node
	// Left are next hops of BGP that nothing leads to any more, each for LeftTime and until then.
	// A node that moves to another address sends from its former one for a while.
	Left map[netip.Addr]time.Time
	// Last is the number of the newest entry: of two that claim the same, the
	// first that came holds it.
	Last uint64
	// Touched are the names of the paths that Edit's copy has changed.
	Touched map[string]bool

	own owned
}

// FormerTime is how long a former node stays at most.
const FormerTime = time.Minute

// LeftTime is how long an address that a node had stays inside the SR domain.
const LeftTime = 10 * time.Second

// owned are the maps that an edited copy has copied.
type owned struct{ paths, nodes, reaches, families, left bool }

// Path is a candidate path that somebody advertises.
type Path struct {
	bgp.Path
	// DelayConstraint is of a path of Kubernetes: BGP has none.
	srpolicy.DelayConstraint
	// Kube names the object that it is from, and KubeName is its name for the
	// watcher; empty: a BGP peer advertises it.
	Kube     string `json:"kube,omitempty"`
	KubeName string `json:"kube_name,omitempty"`
	// Stale: it is of an earlier daemon. It holds until its peer has sent everything
	// again, or has had time to.
	Stale bool `json:"-"`
}

// Node is another node, as Kubernetes has it.
type Node struct {
	overlay.Node
	Number uint64 `json:"number"`
	// Of the node, which keeps neither where it is stored.
	Refused string   `json:"refused,omitempty"`
	Faults  []string `json:"faults,omitempty"`
}

// claims says whether the two claim the same, and whether both may.
func (n Node) claims(o overlay.Node) bool {
	return n.Refused == "" && o.Refused == "" && n.Address == o.Address && n.Locator == o.Locator &&
		slices.Equal(n.Addresses, o.Addresses) && slices.Equal(n.Prefixes, o.Prefixes) && slices.Equal(n.IPv4, o.IPv4) && slices.Equal(n.IPv6, o.IPv6)
}

// Reach is what peers advertise about a destination: all routes to it, best first.
type Reach struct {
	Routes []bgp.Route `json:"routes"`
	Number uint64      `json:"number"`
	// awaited are the peers of an earlier daemon that had sent it. It holds until one
	// of them has sent it again, or all have sent everything.
	awaited []netip.Addr
}

// Self is what Kubernetes says of this node.
type Self struct {
	kube.Self
	Locator netip.Prefix   `json:"locator,omitzero"`
	SIDs    kube.LocalSIDs `json:"sids,omitzero"`
	// Advertised is the address that the others know by BGP: this node advertised it, and they
	// had the time to read it. It is not valid before that.
	Advertised netip.Addr `json:"-"`
}

// Color is the policy that the path is of.
func (p Path) Color() overlay.Color {
	return overlay.Color{Color: p.Path.Color, Endpoint: p.Endpoint}
}

// AddTo adds to k what others know of the path's policy by it.
func (p Path) AddTo(k overlay.Known) overlay.Known {
	if !k.BindingSID.IsValid() {
		k.BindingSID = p.BindingSID
	}
	for _, list := range p.SegmentLists {
		last := list.Segments[len(list.Segments)-1]
		k.Ends = append(k.Ends, last)
		if len(list.Segments) == 1 {
			k.Direct = append(k.Direct, last)
		}
	}
	return k
}

// Edit is a copy of s that can change. It copies each map before the first
// change of it, and notes the paths that change.
func (s State) Edit() State {
	s.own, s.Touched = owned{}, map[string]bool{}
	return s
}

// edit copies a map before its first change.
func edit[K comparable, V any](m *map[K]V, own *bool) {
	if *own {
		return
	}
	if *own = true; *m == nil {
		*m = map[K]V{}
		return
	}
	*m = maps.Clone(*m)
}

// OnlyPaths says whether the two differ in nothing but candidate paths.
func (s *State) OnlyPaths(o *State) bool {
	return SameMap(s.Nodes, o.Nodes) && SameMap(s.Reaches, o.Reaches) && SameMap(s.Families, o.Families) && SameMap(s.Classes, o.Classes) &&
		SameMap(s.Left, o.Left) && len(s.Former) == len(o.Former) && desired.Same(s.Self, o.Self)
}

// SameMap says whether two maps are one map, not only equal ones.
func SameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// Of is what of s the control planes of a configuration can say, too.
func (s State) Of(c *config.Config) State {
	s = s.Edit()
	usesKube, reach := c.Overlay.UsesKube(), c.BGP.IsSet() && (c.Overlay.Mode == config.OverlayBGP || imports(c))
	s.forget(func(p Path) bool { return p.Kube != "" && !usesKube || p.Kube == "" && !c.BGP.IsSet() }, func(Reach) bool { return !reach })
	for peer := range s.Families {
		if !slices.ContainsFunc(c.BGP.Peers, func(p config.BGPPeer) bool { return p.Address == peer }) {
			edit(&s.Families, &s.own.families)
			delete(s.Families, peer)
		}
	}
	if !usesKube {
		s.Nodes, s.Self, s.Classes = nil, Self{Advertised: s.Self.Advertised}, nil
	}
	return s
}

// imports says whether a slice takes routes of its VPN.
func imports(c *config.Config) bool {
	return slices.ContainsFunc(c.Slices, func(s slice.Slice) bool { return s.Imports() })
}

// InOrder are the other nodes in the order in which they came.
func (s *State) InOrder() []overlay.Node {
	list := slices.SortedFunc(maps.Values(s.Nodes), func(a, b Node) int { return cmp.Compare(a.Number, b.Number) })
	out := make([]overlay.Node, len(list))
	for i, m := range list {
		out[i] = m.Node
		out[i].Refused, out[i].Faults = m.Refused, m.Faults
	}
	return out
}

// InRank are the traffic classes in the order in which they find room.
func (s *State) InRank() []kube.Class {
	return slices.SortedFunc(maps.Values(s.Classes), func(a, b kube.Class) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
	})
}

// Route is a prefix as a BGP peer advertises it.
type Route = bgp.Route

// Usable are the routes of each destination of which one is used, that one first, in the order
// in which the destinations came.
func (s *State) Usable() (out [][]Route) {
	for _, r := range slices.SortedFunc(maps.Values(s.Reaches), func(a, b Reach) int { return cmp.Compare(a.Number, b.Number) }) {
		if len(r.Routes) > 0 && r.Routes[0].Best {
			out = append(out, r.Routes)
		}
	}
	return out
}

// Best are the routes that are used, in the order in which they came.
func (s *State) Best() []overlay.Reach {
	var out []overlay.Reach
	for _, r := range s.BestRoutes() {
		out = append(out, r.Reach)
	}
	return out
}

// BestRoutes are the same, as their peers advertise them.
func (s *State) BestRoutes() []bgp.Route {
	var out []bgp.Route
	for _, routes := range s.Usable() {
		out = append(out, routes[0])
	}
	return out
}

// Rivals are the routes of the cluster that are not used and lead to another
// node than the one that is.
func (s *State) Rivals() (out []overlay.Rival) {
	for _, r := range s.Reaches {
		if len(r.Routes) == 0 {
			continue
		}
		var owner netip.Addr
		if r.Routes[0].Best {
			owner = r.Routes[0].Address
		}
		for _, o := range r.Routes {
			if !o.Best && o.Distinguisher == "" && o.Address != owner {
				out = append(out, overlay.Rival{Reach: o.Reach, Owner: owner, Why: r.Routes[0].Why})
			}
		}
	}
	slices.SortFunc(out, func(a, b overlay.Rival) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), a.Address.Compare(b.Address))
	})
	return slices.CompactFunc(out, func(a, b overlay.Rival) bool { return a.Prefix == b.Prefix && a.Address == b.Address })
}

// Remaining are the former nodes of which the present control plane does not
// know everything yet.
func (s *State) Remaining() []overlay.Node {
	if len(s.Former) == 0 {
		return nil
	}
	names, addresses, policies := map[string]bool{}, map[netip.Addr]bool{}, map[overlay.Color]bool{}
	for _, n := range s.Nodes {
		names[n.Name], addresses[n.Address] = true, true
	}
	for _, p := range s.Paths {
		policies[p.Color()] = true
	}
	missing := func(p netip.Prefix, node netip.Addr) bool {
		color := overlay.Color{Color: overlay.ColorIPv6, Endpoint: node}
		if p.Addr().Is4() {
			color.Color = overlay.ColorIPv4
		}
		return len(s.Reaches[overlay.Destination{Prefix: p}].Routes) == 0 || !policies[color]
	}
	return slices.DeleteFunc(slices.Clone(s.Former), func(n overlay.Node) bool {
		return names[n.Name] || addresses[n.Address] ||
			!slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return missing(p, n.Address) })
	})
}

// NamedPath is a candidate path with its name on this node.
type NamedPath struct {
	Name string
	Path
}

// NamedPaths are paths, the preferred one first.
type NamedPaths []NamedPath

// Ranked are all paths. The first of a policy gives it its binding SID.
func (s *State) Ranked() NamedPaths {
	out := make(NamedPaths, 0, len(s.Paths))
	for name, p := range s.Paths {
		out = append(out, NamedPath{name, p})
	}
	out.rank()
	return out
}

// PathsOf are the paths of one policy.
func (s *State) PathsOf(color overlay.Color) NamedPaths {
	var out NamedPaths
	for name, p := range s.Paths {
		if p.Color() == color {
			out = append(out, NamedPath{name, p})
		}
	}
	out.rank()
	return out
}

func (list NamedPaths) rank() {
	slices.SortFunc(list, func(a, b NamedPath) int {
		return cmp.Or(cmp.Compare(b.EffectivePreference(), a.EffectivePreference()), cmp.Compare(a.Name, b.Name))
	})
}

// Known is what others know of these paths' policy.
func (list NamedPaths) Known() (k overlay.Known) {
	for _, p := range list {
		k = p.AddTo(k)
	}
	return k
}

// PathName is the name on this node of a candidate path that a BGP speaker
// advertises.
func PathName(node netip.Addr, a srpolicy.Advertised) string {
	return shortName("bgp", fmt.Sprintf("%s:%d:%d:%s", node, a.Distinguisher, a.Color, a.Endpoint))
}

// shortName is kind:rest, or a hash of it where that cannot be a name.
func shortName(kind, rest string) string {
	name := kind + ":" + rest
	if len(srv6.CheckName("", name)) > 0 {
		sum := sha256.Sum256([]byte(name))
		name = fmt.Sprintf("%s:%x", kind, sum[:16])
	}
	return name
}
