package observed

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// BGP observes what BGP peers advertise: candidate paths whose headend is this
// node, and in a cluster the prefixes behind other nodes. It advertises this
// node.
type BGP struct {
	of      Config // what it was made of
	config  bgp.Config
	speaker *bgp.Speaker
	queue   *Queue
	node    overlay.Node // that it advertises
	parts   []overlay.Part
	expiry  []*time.Timer // of the state of an earlier speaker
	telling *time.Timer   // until the others know the node's address; nil: it is not advertised
	// announced is what Announce advertised last; nil: nothing yet.
	announced *announcement
	families  map[netip.Addr][]string
}

// BGPConfig completes a configuration of BGP with what follows from this node:
// the configuration may be the same on all nodes of a cluster. It has no router
// ID as long as that is not known.
func BGPConfig(b config.BGP, mode string, self overlay.Self) config.BGP {
	if mode != config.OverlayBGP {
		return b
	}
	if !b.RouterID.IsValid() {
		b.RouterID = routerID(self)
	}
	b.Listen, b.Peers = slices.Clone(b.Listen), slices.Clone(b.Peers)
	for i, a := range b.Listen {
		if a.IsUnspecified() {
			b.Listen[i] = self.Address
		}
	}
	if slices.Contains(b.Listen, netip.Addr{}) {
		b.RouterID = netip.Addr{}
	}
	b.Peers = slices.DeleteFunc(b.Peers, func(p config.BGPPeer) bool {
		return p.Address == self.Address || slices.Contains(self.Addresses, p.Address)
	})
	return b
}

// routerID is a node's IPv4 address; where it has none, four octets that no
// other node's are likely to be (RFC 6286 wants no more than that they are
// unique).
func routerID(s overlay.Self) netip.Addr {
	if i := slices.IndexFunc(s.Addresses, netip.Addr.Is4); i >= 0 {
		return s.Addresses[i]
	}
	if !s.Address.IsValid() {
		return netip.Addr{}
	}
	h := fnv.New32a()
	h.Write(s.Address.AsSlice())
	return netip.AddrFrom4([4]byte(h.Sum(nil)))
}

// NewBGP reads the passwords. It connects to nobody before start.
func NewBGP(c Config, s *State, to *Queue, log *slog.Logger) (*BGP, error) {
	b := &c.BGP
	h := &BGP{of: c, queue: to, families: map[netip.Addr][]string{}, config: bgp.Config{
		ASN: b.ASN, RouterID: b.RouterID, Listen: b.Listen, Port: b.Port, Log: log,
		Restart: time.Duration(b.RestartTime) * time.Second, Stale: time.Duration(b.StaleTime) * time.Second,
		Restarting: len(s.Reaches) > 0, ClusterID: b.ClusterID, MaxPrefixes: b.MaxPrefixes,
	}}
	maps.Copy(h.families, s.Families)
	for _, p := range s.Paths { // the data path forwards by the state of an earlier speaker
		h.config.Restarting = h.config.Restarting || p.Kube == ""
	}
	for i, p := range b.Peers {
		password, err := bgp.ReadPassword(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("bgp.peers[%d].password_file: %w", i, err)
		}
		peer := bgp.Peer{
			Address: p.Address, Port: p.Port, ASN: p.ASN, Local: p.Source, Password: password, Hops: p.Hops, Passive: p.Passive,
			Hold: time.Duration(p.HoldTime) * time.Second, RouteReflector: p.RouteReflector, Client: p.Client, Spoken: s.Families[p.Address],
		}
		for _, name := range p.Families {
			peer.Families = append(peer.Families, bgp.Family(name))
		}
		h.config.Peers = append(h.config.Peers, peer)
	}
	if c.Announces {
		// An earlier speaker announced, and sessions outlive it.
		h.config.Origin, h.config.Restarting = &bgp.Origin{Handler: h, VPNs: c.VPNs}, h.config.Restarting || len(s.Families) > 0
	}
	if c.Overlay.Mode == config.OverlayBGP {
		h.config.Cluster = &bgp.Cluster{Handler: h, Prefixes: b.Prefixes, SIDs: b.UnicastSIDs, Locator: !b.NoLocator}
		for _, r := range s.Reaches {
			for _, o := range r.Routes {
				if !slices.Contains(h.config.Cluster.Headends, o.Node) {
					h.config.Cluster.Headends = append(h.config.Cluster.Headends, o.Node)
				}
			}
		}
		if v := b.VPN; v.IsSet() {
			h.config.Cluster.VPN = &bgp.VPN{Distinguisher: v.Distinguisher, Import: v.Import, Export: v.Export}
		}
		for _, t := range c.Overlay.Tenants {
			h.config.Cluster.Tenants = append(h.config.Cluster.Tenants, vpnOf(t, b))
		}
	}
	return h, nil
}

// vpnOf is the VPN of a tenant, with what it does not say.
func vpnOf(t overlay.Tenant, b *config.BGP) bgp.VPN {
	v := bgp.VPN{Tenant: t.ID, Distinguisher: t.Distinguisher, Import: t.Import, Export: t.Export}
	if v.Distinguisher == "" {
		v.Distinguisher = fmt.Sprintf("%s:%d", b.RouterID, t.ID)
	}
	target := []string{fmt.Sprintf("%d:%d", b.ASN, t.ID)}
	if len(v.Import) == 0 {
		v.Import = target
	}
	if len(v.Export) == 0 {
		v.Export = target
	}
	return v
}

// announcement is what a user plane function advertises.
type announcement struct {
	mine []netip.Prefix
	list []bgp.Originated
}

// Announce advertises exactly a list of prefixes. mine are those that only this node may
// have.
func (h *BGP) Announce(mine []netip.Prefix, list []bgp.Originated) error {
	if h.config.Origin == nil || h.announced != nil && slices.Equal(h.announced.mine, mine) &&
		slices.EqualFunc(h.announced.list, list, bgp.Originated.Same) {
		return nil
	}
	if err := h.speaker.Originate(mine, list); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	h.announced = &announcement{mine, list}
	return nil
}

// start connects. The state of an earlier daemon, or of another configuration, holds
// until peers have sent it again, or have had time to: as long as a peer is away, that is the
// stale time too.
func (h *BGP) start(ctx context.Context) (err error) {
	h.queue.Push(Update{Apply: (*State).MarkStale})
	if h.speaker, err = bgp.Start(ctx, h.config, h); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	isPeer := func(a netip.Addr) bool {
		return slices.ContainsFunc(h.config.Peers, func(p bgp.Peer) bool { return p.Address == a })
	}
	h.expire(h.config.Restart, isPeer)
	h.expire(h.config.Restart+h.config.Stale, func(netip.Addr) bool { return false })
	return nil
}

// expire removes after some time what no peer has sent again, except for peers to wait for.
func (h *BGP) expire(after time.Duration, waitsFor func(peer netip.Addr) bool) {
	h.expiry = append(h.expiry, time.AfterFunc(after, func() {
		h.queue.Push(Update{Apply: func(s *State) { s.expire(waitsFor) }})
	}))
}

// stopTimers keeps that state for the next speaker.
func (h *BGP) stopTimers() {
	for _, t := range h.expiry {
		t.Stop()
	}
	if h.telling != nil {
		h.telling.Stop()
	}
}

// learned is how long peers have to pass on what this node advertises, and others to read it.
const learned = 3 * time.Second

// advertise advertises the node. Where its address is another one, it reports when the others know
// it: a peer has had the time to pass it on.
func (h *BGP) advertise(ctx context.Context, n overlay.Node, parts []overlay.Part) error {
	if err := h.speaker.SetNode(n, parts...); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	moves := h.node.Address != n.Address
	if h.node, h.parts = n, parts; !moves {
		return nil
	}
	if h.telling != nil {
		h.telling.Stop()
	}
	h.telling = time.AfterFunc(learned, func() { h.told(ctx, n.Address) })
	return nil
}

// told reports that the others know an address of this node, once a session has been up for long
// enough.
func (h *BGP) told(ctx context.Context, address netip.Addr) {
	peers, err := h.Peers(ctx)
	if err != nil {
		return // the speaker has ended
	}
	if !slices.ContainsFunc(peers, func(p bgp.PeerStatus) bool { return p.Since >= learned }) {
		time.AfterFunc(learned, func() { h.told(ctx, address) })
		return
	}
	h.queue.Push(Update{Entry: Entry{EntrySelf, "address in BGP"}, Apply: func(s *State) { s.Self.Advertised = address }})
}

// Config is what the speaker runs with.
func (h *BGP) Config() bgp.Config { return h.config }

// Peers are the BGP sessions.
func (h *BGP) Peers(ctx context.Context) ([]bgp.PeerStatus, error) { return h.speaker.Peers(ctx) }

// Put pushes a candidate path, as a bgp.Handler.
func (h *BGP) Put(p bgp.Path) {
	name := PathName(p.Node, p.Advertised)
	h.queue.Push(Update{
		Entry: Entry{EntryPath, name},
		Apply: func(s *State) {
			// Another originator may be the best now, of the same NLRI.
			s.dropAdvertised(p.Advertised)
			s.PutPath(name, Path{Path: p})
		},
		Withdraw: func(s *State) { s.DropPath(name) },
	})
}

// Withdraw removes a candidate path, as a bgp.Handler.
func (h *BGP) Withdraw(gone srpolicy.Advertised) {
	h.queue.Push(Update{Apply: func(s *State) { s.dropAdvertised(gone) }})
}

// Complete removes what a peer has not sent again, as a bgp.Handler.
func (h *BGP) Complete(peer netip.Addr) {
	h.queue.Push(Update{Apply: func(s *State) { s.complete(peer) }})
}

// Speaks keeps the address families of a peer over a restart, as a bgp.Handler.
func (h *BGP) Speaks(peer netip.Addr, families []string) {
	if slices.Equal(h.families[peer], families) {
		return
	}
	h.families[peer] = families
	h.queue.Push(Update{Entry: Entry{EntryFamilies, peer.String()}, Apply: func(s *State) {
		edit(&s.Families, &s.own.families)
		s.Families[peer] = families
	}})
}

// PutReach pushes the routes to a destination, as a bgp.ReachHandler.
func (h *BGP) PutReach(to overlay.Destination, routes []bgp.Route) {
	h.queue.Push(Update{
		Entry:    Entry{EntryReach, to.String()},
		Apply:    func(s *State) { s.PutReach(to, routes) },
		Withdraw: func(s *State) { s.DropReach(to) },
	})
}

// WithdrawReach removes the routes to a destination, as a bgp.ReachHandler.
func (h *BGP) WithdrawReach(to overlay.Destination) {
	h.queue.Push(Update{Apply: func(s *State) { s.DropReach(to) }})
}
