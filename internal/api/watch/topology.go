package watch

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
)

// drawn is how many of a kind are drawn; the others are one entry that counts them.
const drawn = 24

// Columns, from the access side to the core.
const (
	columnAccess = iota
	columnAccessPort
	columnNode
	columnCorePort
	columnCore
)

// self is the id of the node in the middle.
const self = "node"

// topology reads what the node is connected to.
type topology struct {
	agent   agent.Service
	ports   func() (map[string]traffic, error)
	current cell[*picture]
	meter   meter
}

// picture is a topology by ids.
type picture struct {
	status func() (*pb.StatusResponse, error) // only a new viewer gets it
	nodes  map[string]*pb.TopologyNode
	links  map[string]*pb.TopologyLink
	groups []*pb.TopologyGroup
}

func newTopology(service agent.Service) *topology {
	t := &topology{agent: service, ports: ports}
	t.current.read = t.read
	return t
}

// changes returns what reads the changes for one viewer.
func (t *topology) changes() func() (*pb.WatchResponse, error) {
	var sent *picture
	return func() (*pb.WatchResponse, error) {
		now, err := t.current.get()
		if err != nil {
			return nil, err
		}
		out := &pb.WatchResponse{}
		if sent == nil {
			if out.Status, err = now.status(); err != nil {
				return nil, err
			}
			sent = &picture{}
		}
		d := &pb.Topology{Nodes: changed(sent.nodes, now.nodes), Links: changed(sent.links, now.links)}
		d.Gone = append(gone(sent.nodes, now.nodes), gone(sent.links, now.links)...)
		if !slices.EqualFunc(sent.groups, now.groups, func(a, b *pb.TopologyGroup) bool { return proto.Equal(a, b) }) {
			d.Groups = now.groups
		}
		if proto.Size(d) > 0 {
			out.Topology = d
		}
		sent = now
		return out, nil
	}
}

// changed are entries that are new or differ, in the order of their ids.
func changed[M proto.Message](before, now map[string]M) (out []M) {
	for _, id := range sortedKeys(now) {
		if old, had := before[id]; !had || !proto.Equal(old, now[id]) {
			out = append(out, now[id])
		}
	}
	return out
}

func gone[M any](before, now map[string]M) (out []string) {
	for _, id := range sortedKeys(before) {
		if _, has := now[id]; !has {
			out = append(out, id)
		}
	}
	return out
}

func sortedKeys[M any](m map[string]M) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// builder adds to a picture.
type builder struct {
	*picture
	meter    *meter
	links    []agent.InterfaceStatus
	counters map[string]traffic
}

// read reads everything that a node is connected to. A part that this node does not have, or
// that fails, is not drawn: the status says why.
func (t *topology) read(now time.Time) (*picture, error) {
	status, err := t.agent.Status()
	if err != nil {
		return nil, err
	}
	p := &picture{nodes: map[string]*pb.TopologyNode{}, links: map[string]*pb.TopologyLink{}}
	p.status = sync.OnceValues(func() (*pb.StatusResponse, error) {
		m := &pb.StatusResponse{}
		return m, message.Encode(&status, m)
	})
	counters, err := t.ports()
	if err != nil {
		return nil, err
	}
	t.meter.begin(now)
	b := &builder{picture: p, meter: &t.meter, links: status.Interfaces, counters: counters}
	b.node(status)
	b.addPorts()
	if status.UPF != nil {
		b.addPeers(status.UPF.Peers)
		if all, err := t.agent.Associations(); err == nil {
			b.addSMFs(all)
		}
	}
	if all, err := t.agent.BGPPeers(); err == nil {
		b.addBGP(all)
	}
	if all, err := t.agent.Nodes(); err == nil {
		b.addMembers(status.Overlay, all)
	}
	if all, err := t.agent.Tunnels(); err == nil {
		b.addTunnels(all)
	}
	policies, err := t.agent.Policies()
	if err != nil {
		return nil, err
	}
	b.addPolicies(policies)
	classes, err := t.agent.Classes()
	if err != nil {
		return nil, err
	}
	networkSlices, err := t.agent.Slices()
	if err != nil {
		return nil, err
	}
	b.addGroups(networkSlices, classes)
	return p, nil
}

func (b *builder) add(n *pb.TopologyNode) { b.nodes[n.GetId()] = n }

func (b *builder) link(from, to string, control bool, forward *pb.Rate) {
	id := from + " > " + to
	b.picture.links[id] = &pb.TopologyLink{Id: id, From: from, To: to, Control: control, Forward: forward}
}

// both links two entries, in both directions.
func (b *builder) both(access, core string, toCore, toAccess *pb.Rate) {
	b.link(access, core, false, toCore)
	b.link(core, access, false, toAccess)
}

func (b *builder) node(s agent.Status) {
	n := &pb.TopologyNode{Id: self, Kind: "node", Name: "this node", Column: columnNode}
	if s.Overlay != nil {
		n.Name = cmp.Or(s.Overlay.Self.Name, n.Name)
		n.Detail = counted(s.Overlay.Pods, "pod")
		n.Problem = cmp.Or(s.Overlay.Problem, strings.Join(s.Overlay.Problems, "; "))
	}
	if s.UPF != nil {
		n.Name, n.Link = cmp.Or(s.UPF.NodeID, n.Name), "sessions"
		n.Detail = counted(s.UPF.Sessions, "session")
		n.Problem = cmp.Or(s.UPF.Journal, n.Problem)
	}
	b.add(n)
}

func (b *builder) addPorts() {
	for _, in := range b.links {
		roles := make([]string, len(in.Roles))
		for i, r := range in.Roles {
			roles[i] = string(r)
		}
		c := b.counters[in.Name]
		n := &pb.TopologyNode{Id: "port " + in.Name, Kind: "port", Name: in.Name, Detail: strings.Join(roles, " "), Column: columnCorePort,
			Received: b.meter.rate("received "+in.Name, c.received), Sent: b.meter.rate("sent "+in.Name, c.sent)}
		if in.Attached != "native" && in.Attached != "generic" {
			n.Problem = cmp.Or(in.Attached, "it is not attached")
		} else if problem := in.Link.Problem(); problem != "" {
			n.Problem = "it " + problem
		}
		if in.HasRole(config.RoleN3, config.RoleN4, config.RoleEdge) {
			n.Column = columnAccessPort
			b.both(n.GetId(), self, n.GetReceived(), n.GetSent())
		} else {
			b.both(self, n.GetId(), n.GetSent(), n.GetReceived())
		}
		b.add(n)
	}
}

// port is the only port with a role, of those with no role of signalling if it is another one;
// the node itself if there is not one.
func (b *builder) port(role config.Role) (id string) {
	for _, in := range b.links {
		if in.HasRole(role) && (role == config.RoleN4 || !in.HasRole(config.RoleN4)) {
			if id != "" {
				return self
			}
			id = "port " + in.Name
		}
	}
	return cmp.Or(id, self)
}

// some adds at most so many entries of a kind as are drawn, and one for the others.
func some[T any](b *builder, kind, name string, column uint32, all []T, f func(T)) {
	for i, v := range all {
		if i == drawn {
			b.add(&pb.TopologyNode{Id: "more " + kind, Kind: "more", Name: fmt.Sprintf("%d more %s", len(all)-drawn, name), Column: column})
			return
		}
		f(v)
	}
}

// portOf is the port by which a peer's GTP-U arrives.
func (b *builder) portOf(peer netip.Addr) string {
	for _, in := range b.links {
		if slices.ContainsFunc(in.Peers, func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(peer) }) {
			return "port " + in.Name
		}
	}
	return b.port(config.RoleN3)
}

// counted is a number with its noun: 12,345 sessions.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + " " + noun
}

func (b *builder) addPeers(all []agent.PeerStatus) {
	slices.SortFunc(all, func(x, y agent.PeerStatus) int { return x.Addr.Compare(y.Addr) })
	some(b, "peers", "GTP-U peers", columnAccess, all, func(p agent.PeerStatus) {
		n := &pb.TopologyNode{Id: "peer " + p.Addr.String(), Kind: "peer", Name: p.Addr.String(), Detail: "GTP-U, " + counted(p.Tunnels, "tunnel")}
		if p.Down {
			n.Problem = "it does not answer Echo Requests"
		}
		at := b.portOf(p.Addr)
		if port := b.nodes[at]; port.GetColumn() == columnCorePort {
			n.Column = columnCore
		}
		b.both(n.GetId(), at, nil, nil)
		b.add(n)
	})
}

func (b *builder) addSMFs(all []agent.AssociationStatus) {
	some(b, "smfs", "SMFs", columnAccess, all, func(a agent.AssociationStatus) {
		n := &pb.TopologyNode{Id: "smf " + a.Node, Kind: "smf", Name: a.Node, Detail: "SMF, " + counted(a.Sessions, "session")}
		if !a.Up {
			n.Problem = "it does not answer heartbeats"
		}
		b.add(n)
		b.link(n.GetId(), b.port(config.RoleN4), true, nil)
	})
}

func (b *builder) addBGP(all []agent.BGPPeerStatus) {
	some(b, "bgp", "BGP peers", columnCore, all, func(p agent.BGPPeerStatus) {
		n := &pb.TopologyNode{Id: "bgp " + p.Address.String(), Kind: "bgp", Name: p.Address.String(), Column: columnCore,
			Detail: fmt.Sprintf("BGP, AS %d, %d received", p.ASN, p.Received)}
		if p.State != "established" {
			n.Problem = strings.TrimSuffix(p.State+": "+p.Reason, ": ")
		}
		b.add(n)
		b.link(self, n.GetId(), true, nil)
	})
}

func (b *builder) addMembers(o *agent.OverlayStatus, all []agent.NodeStatus) {
	if o != nil {
		b.add(&pb.TopologyNode{Id: "pods", Kind: "pods", Name: counted(o.Pods, "pod"), Detail: "of this node", Column: columnAccess, Link: "cluster"})
		b.both("pods", self, nil, nil)
	}
	some(b, "members", "nodes", columnCore, all, func(s agent.NodeStatus) {
		n := &pb.TopologyNode{Id: "member " + s.Key(), Kind: "member", Name: s.Key(), Detail: "node", Column: columnCore, Link: "cluster",
			Problem: strings.Join(s.Problems, "; ")}
		if s.State != "ready" {
			n.Problem = s.State
		}
		b.add(n)
		for _, policy := range s.Policies {
			b.link("policy "+policy, n.GetId(), false, nil)
		}
		if len(s.Policies) == 0 {
			b.link(self, n.GetId(), false, nil)
		}
	})
}

func (b *builder) addTunnels(all []agent.TunnelStatus) {
	some(b, "tunnels", "tunnels", columnCore, all, func(t agent.TunnelStatus) {
		received, sent := b.meter.rate("tunnel received "+t.Name, t.Received), b.meter.rate("tunnel sent "+t.Name, t.Sent)
		n := &pb.TopologyNode{Id: "tunnel " + t.Name, Kind: "tunnel", Name: t.Name, Detail: "GTP-U tunnel", Column: columnCore, Received: received, Sent: sent}
		if t.Remote.IsValid() {
			n.Detail = "GTP-U to " + t.Remote.String()
		}
		b.add(n)
		b.both(b.port(config.RoleN9), n.GetId(), sent, received)
	})
}

// addPolicies adds policies, the busiest first.
func (b *builder) addPolicies(all []agent.PolicyStatus) {
	rates := map[string]*pb.Rate{}
	for _, p := range all {
		rates[p.Name] = b.meter.rate("policy "+p.Name, p.Counter)
	}
	slices.SortStableFunc(all, func(x, y agent.PolicyStatus) int {
		return cmp.Or(cmp.Compare(rates[y.Name].GetBits(), rates[x.Name].GetBits()), cmp.Compare(x.Name, y.Name))
	})
	some(b, "policies", "policies", columnCore, all, func(p agent.PolicyStatus) {
		n := &pb.TopologyNode{Id: "policy " + p.Name, Kind: "policy", Name: p.Name, Column: columnCore, Link: "paths",
			Detail: "SR policy, " + counted(len(p.SegmentLists), "list"), Sent: rates[p.Name]}
		up := 0
		for i := range p.SegmentLists {
			if p.DownAt(i) == "" {
				up++
			}
		}
		if up == 0 {
			n.Problem = "none of its segment lists is up"
		}
		b.add(n)
		b.link(b.port(config.RoleSR), n.GetId(), false, n.GetSent())
	})
	for id, l := range b.picture.links { // of members whose policies are not drawn
		if _, drawn := b.nodes[l.GetFrom()]; !drawn {
			delete(b.picture.links, id)
			b.link(self, l.GetTo(), false, nil)
		}
	}
}

// addGroups adds slices and classes, and marks the links that their packets may take.
func (b *builder) addGroups(networkSlices []agent.SliceStatus, classes []agent.ClassStatus) {
	for _, s := range networkSlices {
		id := "slice " + s.Name
		g := &pb.TopologyGroup{Id: id, Kind: string(desired.KindSlice), Name: s.Name, Detail: s.NetworkInstance, Sessions: uint32(s.Sessions),
			Uplink: b.meter.rate("up "+id, s.Uplink), Downlink: b.meter.rate("down "+id, s.Downlink)}
		b.groups = append(b.groups, g)
		policies := s.Policies()
		core := []config.Role{config.RoleN6}
		if s.N9 != nil {
			core = []config.Role{config.RoleN9, config.RoleSR}
		}
		if s.Imports() {
			core = append(core, config.RoleSR)
		}
		b.mark(id, policies, func(in agent.InterfaceStatus) bool {
			if s.N6 != nil {
				return in.Name == s.N6.Interface || in.HasRole(config.RoleN3)
			}
			return in.HasRole(append(core, config.RoleN3)...)
		}, true)
	}
	for _, c := range classes {
		id := "class " + c.Name
		b.groups = append(b.groups, &pb.TopologyGroup{Id: id, Kind: string(desired.KindClass), Name: c.Name, Detail: fmt.Sprintf("color %d", c.Color),
			Uplink: b.meter.rate(id, c.Counter)})
		b.mark(id, c.Policies, func(in agent.InterfaceStatus) bool {
			return slices.Contains(c.Match.Interfaces, in.Name) || in.HasRole(config.RoleSR) && len(c.Policies) > 0
		}, false)
	}
}

// mark marks links of ports that f accepts, of policies, and, if peers, of GTP-U peers.
func (b *builder) mark(group string, policies []string, f func(agent.InterfaceStatus) bool, peers bool) {
	on := map[string]bool{self: true}
	for _, in := range b.links {
		on["port "+in.Name] = f(in)
	}
	for id, n := range b.nodes {
		switch n.GetKind() {
		case "peer":
			on[id] = peers
		case "policy":
			on[id] = slices.Contains(policies, n.GetName())
		}
	}
	for _, l := range b.picture.links {
		if !l.GetControl() && on[l.GetFrom()] && on[l.GetTo()] {
			l.Groups = append(l.Groups, group)
		}
	}
}
