package agent

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

// headend is the node as one that BGP peers tell candidate paths to, and what is
// behind other nodes.
type headend struct {
	of      planeConfig // what it was made of
	config  bgp.Config
	speaker *bgp.Speaker
	inbox   *inbox
	node    overlay.Node // that it tells of
	expiry  *time.Timer  // of what an earlier one was told
	spoken  map[netip.Addr][]string
}

// bgpOf is the configuration of BGP with what follows from this node: it may be
// the same on all nodes of a cluster. It has no router ID as long as that is not known.
func bgpOf(d *desired) config.BGP {
	b, s := d.process.BGP, d.self
	if d.process.Overlay.Mode != config.OverlayBGP {
		return b
	}
	if !b.RouterID.IsValid() {
		b.RouterID = routerID(s)
	}
	b.Listen, b.Peers = slices.Clone(b.Listen), slices.Clone(b.Peers)
	for i, a := range b.Listen {
		if a.IsUnspecified() {
			b.Listen[i] = s.Address
		}
	}
	if slices.Contains(b.Listen, netip.Addr{}) {
		b.RouterID = netip.Addr{}
	}
	b.Peers = slices.DeleteFunc(b.Peers, func(p config.BGPPeer) bool { return p.Address == s.Address || slices.Contains(s.Addresses, p.Address) })
	return b
}

// routerID is a node's IPv4 address; where it has none, four octets that no other
// node's are likely to be (RFC 6286 wants no more than that they are unique).
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

// newHeadend reads the passwords. It hears of other nodes, too, if the overlay is
// by BGP.
func newHeadend(c planeConfig, t told, to *inbox, log *slog.Logger) (*headend, error) {
	b := &c.BGP
	h := &headend{of: c, inbox: to, spoken: maps.Clone(t.spoken), config: bgp.Config{
		ASN: b.ASN, RouterID: b.RouterID, Listen: b.Listen, Port: b.Port, Restart: time.Duration(b.RestartTime) * time.Second, Log: log,
		Restarting: t.byBGP(), ClusterID: b.ClusterID, MaxPrefixes: b.MaxPrefixes,
	}}
	for i, p := range b.Peers {
		password, err := bgp.ReadPassword(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("bgp.peers[%d].password_file: %w", i, err)
		}
		h.config.Peers = append(h.config.Peers, bgp.Peer{
			Address: p.Address, Port: p.Port, ASN: p.ASN, Local: p.Source, Password: password, Hops: p.Hops, Passive: p.Passive,
			Hold: time.Duration(p.HoldTime) * time.Second, RouteReflector: p.RouteReflector, Client: p.Client, Families: families(p.Families),
			Spoken: t.spoken[p.Address],
		})
	}
	if c.Overlay.Mode == config.OverlayBGP {
		h.config.Cluster = &bgp.Cluster{
			Handler: h, Headends: t.headends(), Prefixes: b.Prefixes, SIDs: b.UnicastSIDs, Locator: !b.NoLocator, VPN: vpn(b.VPN),
		}
	}
	return h, nil
}

func families(names []string) (out []bgp.Family) {
	for _, name := range names {
		out = append(out, bgp.Family(name))
	}
	return out
}

func vpn(c config.BGPVPN) *bgp.VPN {
	if !c.IsSet() {
		return nil
	}
	return &bgp.VPN{Distinguisher: c.Distinguisher, Import: c.Import, Export: c.Export}
}

// byBGP says that peers told something to an earlier speaker, which the data path
// does still.
func (t told) byBGP() bool {
	for _, p := range t.paths {
		if p.Kube == "" {
			return true
		}
	}
	return len(t.reaches) > 0
}

// headends are the router IDs of the nodes that peers told of.
func (t told) headends() (out []netip.Addr) {
	for _, r := range t.reaches {
		for _, o := range r.Routes {
			if !slices.Contains(out, o.Node) {
				out = append(out, o.Node)
			}
		}
	}
	return out
}

// start connects. What was told before, to an earlier daemon or under another
// configuration, holds until it is told again, or has had time to be.
func (h *headend) start(ctx context.Context) (err error) {
	h.inbox.push(hearing{apply: (*told).restore})
	if h.speaker, err = bgp.Start(ctx, h.config, h); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	h.expiry = time.AfterFunc(h.config.Restart, func() {
		h.inbox.push(hearing{apply: func(t *told) {
			t.forget(func(p heard) bool { return p.restored }, func(r reached) bool { return r.awaited != nil })
		}})
	})
	return nil
}

func (h *headend) stop() {
	h.expiry.Stop()
	h.speaker.Stop()
}

// leave is stop at the daemon's end.
func (h *headend) leave() {
	h.expiry.Stop()
	h.speaker.Leave()
}

// setNode has peers told of this node.
func (h *headend) setNode(n overlay.Node) error {
	if h.config.Cluster == nil || same(h.node, n) {
		return nil
	}
	if err := h.speaker.SetNode(n); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	h.node = n
	return nil
}

// Put, Withdraw, Complete and Speaks are what h hears as a bgp.Handler.
func (h *headend) Put(p bgp.Path) {
	name := learnedName(p.Node, p.Advertised)
	h.inbox.push(hearing{name: name, paths: true, apply: func(t *told) {
		// Another originator may be the best now, of the same NLRI.
		t.forgetPath(p.Advertised)
		t.putPath(name, heard{Path: p})
	}, without: func(t *told) { t.dropPath(name) }})
}

func (h *headend) Withdraw(gone srpolicy.Advertised) {
	h.inbox.push(hearing{paths: true, apply: func(t *told) { t.forgetPath(gone) }})
}

func (h *headend) Complete(peer netip.Addr) {
	h.inbox.push(hearing{apply: func(t *told) { t.complete(peer) }})
}

// Speaks has it known after a restart what a peer speaks.
func (h *headend) Speaks(peer netip.Addr, families []string) {
	if slices.Equal(h.spoken[peer], families) {
		return
	}
	h.spoken[peer] = families
	h.inbox.push(hearing{name: "families of " + peer.String(), apply: func(t *told) { t.spoken[peer] = families }})
}

// PutReach and WithdrawReach are what h hears as a bgp.ReachHandler.
func (h *headend) PutReach(p netip.Prefix, routes []bgp.Route) {
	h.inbox.push(hearing{name: p.String(), apply: func(t *told) { t.putReach(p, routes) }, without: func(t *told) { delete(t.reaches, p) }})
}

func (h *headend) WithdrawReach(p netip.Prefix) {
	h.inbox.push(hearing{apply: func(t *told) { delete(t.reaches, p) }})
}

// forgetPath removes what has the NLRI of an advertisement.
func (t *told) forgetPath(a srpolicy.Advertised) {
	for name, p := range t.paths {
		if p.Kube == "" && p.Color == a.Color && p.Endpoint == a.Endpoint && p.Distinguisher == a.Distinguisher {
			t.dropPath(name)
		}
	}
}

// BGPPeers are the node's BGP sessions.
func (a *Agent) BGPPeers() ([]BGPPeerStatus, error) {
	if err := a.isReady(); err != nil {
		return nil, err
	}
	h := a.bgpHeadend()
	if h == nil {
		return nil, ErrNotBGP
	}
	peers, err := h.speaker.Peers(context.Background())
	if err != nil {
		return nil, err
	}
	out := make([]BGPPeerStatus, len(peers))
	for i, p := range peers {
		out[i] = BGPPeerStatus{Address: p.Address, ASN: p.ASN, RouterID: p.RouterID, State: p.State, Reason: p.Reason,
			Since: p.Since, Received: int(p.Received)}
	}
	return out, nil
}

// bgpSessions is how many there are to be, and how many are established.
func (a *Agent) bgpSessions() (all, established int) {
	peers, err := a.BGPPeers()
	if err != nil {
		return 0, 0 // it speaks no BGP, or no more
	}
	for _, p := range peers {
		if p.State == "established" {
			established++
		}
	}
	return len(peers), established
}

func (s scrape) bgp() error {
	if s.bgpHeadend() == nil {
		return nil
	}
	peers, err := s.BGPPeers()
	if err != nil {
		return err
	}
	states := map[string]int{}
	for _, p := range peers {
		states[p.State]++
	}
	for state, n := range states {
		s.send(metricBGPPeers, float64(n), state)
	}
	return s.read(func() error {
		s.send(metricBGPPaths, float64(len(s.desired.told.paths)))
		return nil
	})
}
