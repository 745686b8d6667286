package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Cluster is what a node has learned about its cluster. Nodes and Reaches are in the
// order in which they came: of two that claim the same prefix or SID the first wins.
type Cluster struct {
	Self    Self
	Nodes   []Node
	Reaches []Reach
	Rivals  []Rival // of Reaches, and of this node
	// Known are the policies that exist without the overlay.
	Known map[Color]Known
}

// Color identifies a policy of any node (RFC 9256 section 2.1).
type Color struct {
	Color    uint32
	Endpoint netip.Addr
}

// Known is a policy that exists without the overlay, or only has candidate paths.
type Known struct {
	Name       string       // empty: there are candidate paths only
	Ends       []netip.Addr // the last segments of its lists
	Direct     []netip.Addr // those that are a list by themselves
	BindingSID netip.Addr   // that comes with them
}

// Same says whether the two have the same effect on other policies.
func (k Known) Same(o Known) bool {
	return k.Name == o.Name && k.BindingSID == o.BindingSID && sameSet(k.Ends, o.Ends) && sameSet(k.Direct, o.Direct)
}

func sameSet(a, b []netip.Addr) bool {
	within := func(list, all []netip.Addr) bool {
		return !slices.ContainsFunc(list, func(x netip.Addr) bool { return !slices.Contains(all, x) })
	}
	return within(a, b) && within(b, a)
}

// Wanted is what a node needs to reach the others.
type Wanted struct {
	Policies []srpolicy.Policy
	// Paths are candidate paths of policies that exist without the overlay.
	Paths    []srpolicy.CandidatePath
	Steering []srpolicy.Steering
	// ToNodes steers what pods send to nodes themselves.
	ToNodes []srpolicy.Steering
	// Routes are routes of the underlay: to locators, through their nodes' addresses.
	Routes []Route
	Peers  []Peer
	// Ends are this node's SIDs and those of the peers that are used.
	Ends *Ends
	// Left are addresses that nodes had until a moment ago. Some may still send from them.
	Left []netip.Addr
}

// Route leads to a prefix by the address of a node.
type Route struct {
	Prefix netip.Prefix
	Via    netip.Addr
}

// Peer is another node, and what of its advertisement cannot be used.
type Peer struct {
	Node
	Problems []string
	Unused   bool // nothing of it is used
}

// thisNode is this node's name in messages.
const thisNode = "this node"

// builder makes Wanted of a Cluster.
type builder struct {
	Cluster
	Wanted
	pods, locators *space
	addresses      map[netip.Addr]string // whose they are
	sids           map[netip.Addr]string
	services       map[netip.Prefix]string
	bindings       map[netip.Addr]bool
	own            []srv6.LocalSID
	policies       map[Color]string            // names
	peers          map[netip.Addr]int          // places in Peers
	served         map[netip.Addr][]netip.Addr // the last SIDs of a node's services
	parts          map[Destination]string      // of tenants: whose they are
}

// Remote returns what this node needs to reach the others.
func Remote(c Cluster) Wanted {
	b := newBuilder(c)
	for _, n := range c.Nodes {
		if n.Name != c.Self.Name {
			b.node(n)
		}
	}
	for _, r := range c.Reaches {
		if len(r.Segments) == 0 {
			b.reach(r)
		}
	}
	for _, r := range c.Reaches {
		switch {
		case r.Tenant != 0:
			b.tenantReach(r)
		case len(r.Segments) > 0:
			b.service(r)
		}
	}
	for _, r := range c.Rivals { // prefixes of nodes that are not used
		if b.addresses[r.Address] == thisNode {
			continue // it came back through a route reflector
		}
		owner := thisNode
		if r.Owner.IsValid() {
			owner = cmp.Or(b.addresses[r.Owner], r.Owner.String())
		}
		peer := b.peer(r.Address)
		peer.Problems = append(peer.Problems, fmt.Sprintf("prefix %s is used as that of %s, which claims it too: %s", r.Prefix, owner, r.Why))
	}
	b.toNodes()
	const most = 10 // problems of a node, which may claim thousands of prefixes
	for i := range b.Peers {
		p := &b.Peers[i]
		if n := len(p.Problems) - most; n > 0 {
			p.Problems = append(slices.Clip(p.Problems[:most]), fmt.Sprintf("and %d more", n))
		}
	}
	members := []Node{c.Self.Node()}
	for i := range b.Peers {
		if !b.Peers[i].Unused {
			members = append(members, b.Peers[i].Node)
		}
	}
	b.Ends = NewEnds(members)
	return b.Wanted
}

// newBuilder returns a builder that knows this node's prefixes and SIDs.
func newBuilder(c Cluster) *builder {
	self := c.Self.Node()
	b := &builder{
		Cluster: c, own: c.Self.SIDs(), addresses: map[netip.Addr]string{self.Address: thisNode}, sids: map[netip.Addr]string{},
		services: map[netip.Prefix]string{}, bindings: map[netip.Addr]bool{}, policies: map[Color]string{}, peers: map[netip.Addr]int{},
		served: map[netip.Addr][]netip.Addr{}, parts: map[Destination]string{},
	}
	for _, t := range c.Self.Tenants {
		for _, p := range t.Prefixes(self.Prefixes) {
			b.parts[Destination{t.ID, p}] = thisNode
		}
	}
	for _, r := range c.Reaches {
		if n := len(r.Segments); n > 0 {
			b.served[r.Address] = append(b.served[r.Address], r.Segments[n-1])
		}
	}
	var pods, locators []netip.Prefix
	for _, n := range append([]Node{self}, c.Nodes...) {
		pods, locators = append(pods, n.Prefixes...), append(locators, n.Locator)
	}
	for _, r := range c.Reaches { // of either sort
		if r.Tenant == 0 {
			pods, locators = append(pods, r.Prefix), append(locators, r.Prefix)
		}
	}
	b.pods, b.locators = newSpace(pods), newSpace(locators)
	for _, p := range self.Prefixes {
		b.pods.take(p, thisNode)
	}
	if self.Locator.IsValid() {
		b.locators.take(self.Locator, thisNode)
	}
	for _, list := range [][]netip.Addr{self.IPv4, self.IPv6} {
		if len(list) == 1 {
			b.sids[list[0]] = thisNode
		}
	}
	return b
}

// node adds a node that advertises all of itself.
func (b *builder) node(n Node) {
	peer := Peer{Node: n, Problems: slices.Clone(n.Faults)}
	defer func() { b.Peers = append(b.Peers, peer) }()
	if why := b.refused(n); why != "" {
		peer.Problems, peer.Unused = []string{why}, true
		return
	}
	b.addresses[n.Address], b.peers[n.Address] = n.Name, len(b.Peers)
	if n.Locator.IsValid() {
		b.locators.take(n.Locator, n.Name)
	}
	for _, way := range []struct {
		color uint32
		name  string
		list  []netip.Addr
		bsid  netip.Addr
	}{{ColorIPv4, "ipv4", n.IPv4, n.BSID4}, {ColorIPv6, "ipv6", n.IPv6, n.BSID6}} {
		if len(way.list) == 0 {
			continue
		}
		if len(way.list) == 1 {
			sid := way.list[0]
			b.sids[sid] = n.Name
			r := Route{hostPrefix(sid), n.Address}
			if n.Locator.IsValid() && n.Locator.Contains(sid) {
				r.Prefix = n.Locator.Masked()
			}
			if !slices.Contains(b.Routes[max(0, len(b.Routes)-2):], r) {
				b.Routes = append(b.Routes, r)
			}
		}
		name := n.Name + ":" + way.name
		if n.Name == "" || len(name) > srv6.MaxNameLength {
			name = ByAddress(way.color, n.Address)
		}
		b.policy(Color{way.color, n.Address}, name, way.list, way.bsid)
	}
	for _, p := range n.Prefixes {
		if why := b.steer(p, n.Address); why != "" {
			peer.Problems = append(peer.Problems, why)
		}
	}
	peer.Problems = append(peer.Problems, b.tenants(n)...)
}

// refused returns why nothing of a node can be used, or "".
func (b *builder) refused(n Node) string {
	if n.Refused != "" {
		return n.Refused
	}
	if owner := b.addresses[n.Address]; owner != "" {
		return fmt.Sprintf("address %s is already that of %s", n.Address, owner)
	}
	if n.Locator.IsValid() {
		if owner := b.locators.owner(n.Locator); owner != "" {
			return fmt.Sprintf("locator %s is already claimed by %s", n.Locator, owner)
		}
	}
	for _, list := range [][]netip.Addr{n.IPv4, n.IPv6} {
		if len(list) != 1 { // behind a node's own segment a SID means that node's
			continue
		}
		if why := b.taken(list[0], ""); why != "" {
			return why
		}
	}
	return ""
}

// policy adds a policy, or a candidate path if the policy exists already. The binding
// SID is the one of a candidate path, or else the one that the node suggests, unless
// that is in this node's locator.
func (b *builder) policy(color Color, name string, list []netip.Addr, suggested netip.Addr) {
	lists := []srpolicy.SegmentList{{Weight: 1, Segments: list}}
	known := b.Known[color]
	if known.Name != "" {
		b.policies[color] = known.Name
		b.Paths = append(b.Paths, srpolicy.CandidatePath{
			Name: name, Policy: known.Name, Preference: srpolicy.DefaultPreference, SegmentLists: lists,
		})
		return
	}
	bsid := known.BindingSID
	if !bsid.IsValid() && !b.Self.Locator.Contains(suggested) {
		bsid = suggested
	}
	b.add(color, name, lists, bsid)
}

func (b *builder) add(color Color, name string, lists []srpolicy.SegmentList, bsid netip.Addr) {
	own := func(s srv6.LocalSID) bool { return s.SID.Contains(bsid) }
	if bsid.IsValid() && (b.bindings[bsid] || slices.ContainsFunc(b.own, own)) {
		bsid = netip.Addr{} // the policy can do without
	}
	if bsid.IsValid() {
		b.bindings[bsid] = true
	}
	b.policies[color] = name
	b.Policies = append(b.Policies, srpolicy.Policy{
		Name: name, Behavior: srv6.HEncapsRed, Source: b.Self.Source(), Color: color.Color, Endpoint: color.Endpoint, BindingSID: bsid,
		Preference: srpolicy.DefaultPreference, SegmentLists: lists,
	})
}

// steer steers a prefix of pods into the policy to its node, or reports why it cannot.
func (b *builder) steer(p netip.Prefix, address netip.Addr) string {
	if owner := b.pods.owner(p); owner != "" {
		return fmt.Sprintf("prefix %s is already claimed by %s", p, owner)
	}
	policy := b.policies[Color{colorOf(p.Addr()), address}]
	if policy == "" {
		family := "IPv6"
		if p.Addr().Is4() {
			family = "IPv4"
		}
		return fmt.Sprintf("prefix %s: there is no path for %s to it", p, family)
	}
	b.pods.take(p, cmp.Or(b.addresses[address], address.String()))
	b.Steering = append(b.Steering, srpolicy.Steering{Prefix: p.Masked(), Policy: policy})
	return ""
}

// toNodes steers packets for nodes themselves into the policies for their pods. The
// nodes' answers come by the tunnel: where conntrack sees only one direction,
// kube-proxy drops the rest as invalid.
func (b *builder) toNodes() {
	seen := map[netip.Addr]bool{}
	for _, a := range append([]netip.Addr{b.Self.Address}, b.Self.Addresses...) {
		seen[a] = true
	}
	for i, p := range b.Peers {
		if at, ok := b.peers[p.Address]; !ok || at != i {
			continue // nothing of it can be used
		}
		for _, a := range append([]netip.Addr{p.Address}, p.Addresses...) {
			policy := b.policies[Color{colorOf(a), p.Address}]
			if policy == "" || seen[a] || b.pods.inside(hostPrefix(a)) != "" {
				continue
			}
			seen[a] = true
			b.ToNodes = append(b.ToNodes, srpolicy.Steering{Prefix: hostPrefix(a), Policy: policy})
		}
	}
}

// colorOf returns the color of policies for packets to an address.
func colorOf(a netip.Addr) uint32 {
	if a.Is4() {
		return ColorIPv4
	}
	return ColorIPv6
}

// peer returns the index in Peers of a node that BGP advertised.
func (b *builder) peer(address netip.Addr) *Peer {
	at, there := b.peers[address]
	if !there {
		at = len(b.Peers)
		b.peers[address] = at
		b.Peers = append(b.Peers, Peer{Node: Node{Address: address}})
	}
	return &b.Peers[at]
}

// reach adds a prefix that BGP advertised.
func (b *builder) reach(r Reach) {
	if b.addresses[r.Address] == thisNode {
		return // it came back through a route reflector
	}
	if _, known := b.peers[r.Address]; !known {
		b.addresses[r.Address] = r.Address.String()
		b.addCandidates(r.Address)
	}
	peer := b.peer(r.Address)
	switch {
	case peer.Name != "" && slices.Contains(peer.Prefixes, r.Prefix): // the node advertises it itself
	case b.isLocator(r):
		if owner := b.locators.owner(r.Prefix); owner != "" {
			peer.Problems = append(peer.Problems, fmt.Sprintf("locator %s is already claimed by %s", r.Prefix, owner))
			return
		}
		b.locators.take(r.Prefix, r.Address.String())
		peer.Locator = r.Prefix
		b.Routes = append(b.Routes, Route{r.Prefix, r.Address})
	default:
		peer.Prefixes = append(peer.Prefixes, r.Prefix)
		if why := b.steer(r.Prefix, r.Address); why != "" {
			peer.Problems = append(peer.Problems, why)
		}
	}
}

// addCandidates adds the policies to a node that only have candidate paths so far.
func (b *builder) addCandidates(address netip.Addr) {
	before := len(b.Routes)
	for _, c := range []uint32{ColorIPv4, ColorIPv6} {
		color := Color{c, address}
		known, there := b.Known[color]
		why := ""
		for _, sid := range known.Direct {
			why = cmp.Or(why, b.taken(sid, address.String()))
		}
		if why != "" && known.Name == "" {
			peer := b.peer(address)
			peer.Problems = append(peer.Problems, why)
			continue
		}
		switch {
		case known.Name != "":
			b.policies[color] = known.Name
		case there:
			b.add(color, ByAddress(c, address), nil, known.BindingSID)
		}
		for _, sid := range known.Direct {
			b.sids[sid] = address.String()
			if r := (Route{hostPrefix(sid), address}); !slices.Contains(b.Routes[before:], r) {
				b.Routes = append(b.Routes, r)
			}
		}
	}
}

// taken returns why a SID cannot belong to a node, or "".
func (b *builder) taken(sid netip.Addr, node string) string {
	if owner := b.sids[sid]; owner != "" && owner != node {
		return fmt.Sprintf("SID %s is already that of %s", sid, owner)
	}
	if owner := b.locators.owner(hostPrefix(sid)); owner != "" && owner != node {
		return fmt.Sprintf("SID %s is in the locator of %s", sid, owner)
	}
	return ""
}

// isLocator says whether a prefix is a locator, and not a prefix of pods: paths to its
// node or services there end in it, or it is a known locator.
func (b *builder) isLocator(r Reach) bool {
	for _, c := range []uint32{ColorIPv4, ColorIPv6} {
		if slices.ContainsFunc(b.Known[Color{c, r.Address}].Ends, r.Prefix.Contains) {
			return true
		}
	}
	return slices.ContainsFunc(b.served[r.Address], r.Prefix.Contains) || b.locators.owner(r.Prefix) != ""
}

// service adds a prefix with its own SID. It may contain prefixes of pods, as a default
// route does: these are longer and win.
func (b *builder) service(r Reach) {
	peer, p := b.peer(r.Address), r.Prefix.Masked()
	if owner := cmp.Or(b.pods.inside(p), b.services[p]); owner != "" {
		peer.Problems = append(peer.Problems, fmt.Sprintf("prefix %s is already claimed by %s", p, owner))
		return
	}
	b.services[p] = r.Address.String()
	peer.Prefixes = append(peer.Prefixes, p)
	b.Steering = append(b.Steering, srpolicy.Steering{Prefix: p, Policy: b.toSID(r.Segments)})
}

// toSID is the policy to the SID of a service, which ends the list.
func (b *builder) toSID(list []netip.Addr) (policy string) {
	sid := list[len(list)-1]
	color := Color{Endpoint: sid}
	if b.policies[color] == "" {
		b.add(color, ToService(sid), []srpolicy.SegmentList{{Weight: 1, Segments: list}}, netip.Addr{})
	}
	return b.policies[color]
}

// ToService returns the name of the policy to the SID of a service.
func ToService(sid netip.Addr) string { return ServicePrefix + sid.String() }

// ServicePrefix is what the names of such policies begin with.
const ServicePrefix = "vpn:"

// ByAddress returns the name of the policy to a node of which only the address is known.
func ByAddress(color uint32, address netip.Addr) string {
	return fmt.Sprintf("c%d:%s", color, address)
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
