package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/config/oc"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Port is BGP's.
const Port = 179

// Config configures a speaker.
type Config struct {
	ASN      uint32
	RouterID netip.Addr // IPv4; Route Targets name the node by it
	// Listen are the addresses that peers connect to; none: the speaker only
	// connects.
	Listen []netip.Addr
	Port   uint16 // Port unless set
	Peers  []Peer
	// Restart is how long peers and this node keep the other's routes while it is
	// away (graceful restart, RFC 4724); 0: not at all.
	Restart time.Duration
	// Stale is how much longer each keeps the other's routes, at the least preference, if the
	// other stays away (RFC 9494); 0: not at all.
	Stale time.Duration
	// Restarting says that this node still forwards by what an earlier speaker
	// received: peers that kept its routes go on keeping them.
	Restarting bool
	// ClusterID is the cluster ID of this node as a route reflector: the router ID
	// unless set.
	ClusterID netip.Addr
	// MaxPrefixes is how many prefixes or candidate paths of each family a peer may
	// advertise. A peer that advertises more is disconnected for LimitPause. 0: any
	// number.
	MaxPrefixes uint32
	// Waits: the speaker connects when Connect is called. Peers drop routes of an
	// earlier speaker that are not advertised again soon.
	Waits   bool
	Cluster *Cluster // nil: it is no node of a cluster
	Origin  *Origin  // nil: it advertises no prefixes of its own
	Log     *slog.Logger

	pause time.Duration // in place of LimitPause
}

// Peer is a neighbour.
type Peer struct {
	Address  netip.Addr
	Port     uint16 // Port unless set
	ASN      uint32
	Local    netip.Addr // to connect from; the kernel's choice unless set
	Password string     // TCP MD5 (RFC 2385)
	// Hops is how far away an external peer may be; packets from farther away are
	// dropped (TTL security, RFC 5082). 0: any distance.
	Hops    uint8
	Passive bool          // the peer connects to us
	Hold    time.Duration // hold time; 90 s unless set
	// RouteReflector: the peer reflects our routes (RFC 4456). Client: this node
	// reflects the peer's.
	RouteReflector, Client bool
	// Families to exchange. Default: all with an internal peer; with an external
	// one Unicast if this node advertises prefixes, else SRPolicy.
	Families []Family
	// Spoken are the address families that the peer accepted from an earlier
	// speaker (Handler.Speaks). A node that restarts offers no others.
	Spoken []string
}

// Family is a pair of address families, for IPv4 and IPv6.
type Family string

// The families that a peer can have.
const (
	SRPolicy Family = "sr-policy" // SAFI 73
	Unicast  Family = "unicast"   // prefixes of the cluster
	// L3VPN are prefixes of the VPN through SRv6. A peer with this family belongs
	// to the SR domain: its SIDs are accepted (RFC 9252 section 9).
	L3VPN Family = "l3vpn"
	// LinkState is BGP-LS (AFI 16388, SAFI 71): the topology of an IGP. No peer has
	// it by default. It is only received.
	LinkState Family = "link-state"
)

// Source says who advertises a candidate path: the originator of RFC 9256 section
// 2.4, and the peer that it came from.
type Source struct {
	ASN  uint32
	Node netip.Addr // its router ID
	Peer netip.Addr
}

// Path is a candidate path that a peer advertises.
type Path struct {
	srpolicy.Advertised
	Source
	Stale bool // its peer is away
}

// Handler receives candidate paths for this node. Its methods are called one after
// the other, and must not call methods of the speaker that change something.
type Handler interface {
	// Put reports a path that is new or has changed.
	Put(Path)
	// Withdraw reports a path that is gone: its color, endpoint and distinguisher.
	Withdraw(srpolicy.Advertised)
	// Complete is called when a peer has advertised all its routes of all families, or has had
	// the restart time to.
	Complete(peer netip.Addr)
	// Speaks is called when a session is up, with the configured address families
	// that the peer accepts, such as ipv6-unicast.
	Speaks(peer netip.Addr, families []string)
}

// Speaker is a BGP speaker for SR policies (SAFI 73) and for prefixes: those of a node of
// a cluster, and those of a user plane function.
type Speaker struct {
	config  Config
	handler Handler
	log     *slog.Logger
	server  *server.BgpServer
	stop    context.CancelFunc

	connect func() error // once

	reporting sync.Mutex // held while a handler is called
	reach     *reach     // nil: it exchanges SR policies only
	awaited   map[netip.Addr]map[bgp.Family]bool
	sessions  map[netip.Addr]int          // how often that of each peer came up and went down
	offered   map[netip.Addr][]bgp.Family // to each peer
	keeps     map[netip.Addr][]bgp.Family // what each peer last said it keeps over its restart
	offers    map[key]map[netip.Addr]*offer
	reported  map[key]Path // to the handler
	stopped   bool
	limitDue  bool // checkLimit is scheduled
	links     map[netip.Addr]*lsTable
	isUp      func(peer netip.Addr) bool // its session is established

	mu        sync.Mutex
	own       map[key]*apiutil.Path
	malformed map[netip.Addr]uint64 // by the peer that sent it
	intruding map[netip.Addr]uint64 // routes to prefixes of this node, in the same way
}

// key is a policy's NLRI.
type key struct {
	distinguisher, color uint32
	endpoint             netip.Addr
}

func keyOf(a srpolicy.Advertised) key { return key{a.Distinguisher, a.Color, a.Endpoint} }

// Start opens the sockets and connects to the peers. The handler receives paths
// until Stop; it may be nil.
func Start(ctx context.Context, c Config, h Handler) (*Speaker, error) {
	switch {
	case c.ASN == 0:
		return nil, errors.New("asn: is missing: give this node's AS number")
	case !c.RouterID.Is4():
		return nil, fmt.Errorf("router_id: %s: give an IPv4 address", c.RouterID)
	}
	for i, p := range c.Peers {
		if !p.Address.IsValid() || p.ASN == 0 {
			return nil, fmt.Errorf("peers[%d]: give address and asn", i)
		}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn) // the speaker itself logs sessions
	r, err := newReach(c)
	if err != nil {
		return nil, err
	}
	s := &Speaker{
		config: c, handler: h, log: c.Log, reach: r, awaited: map[netip.Addr]map[bgp.Family]bool{}, sessions: map[netip.Addr]int{}, offered: map[netip.Addr][]bgp.Family{},
		links: linkStateTables(&c), keeps: map[netip.Addr][]bgp.Family{}, offers: map[key]map[netip.Addr]*offer{}, reported: map[key]Path{},
		own: map[key]*apiutil.Path{}, malformed: map[netip.Addr]uint64{}, intruding: map[netip.Addr]uint64{},
		server: server.NewBgpServer(server.LoggerOption(c.Log.With("event", logevent.BGPLibrary), level)),
	}
	s.isUp = s.isEstablished
	go s.server.Serve()
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.server.StopBgp(context.Background(), &api.StopBgpRequest{}))
	}
	return s, nil
}

// begin does the part of Start that can fail.
func (s *Speaker) begin(ctx context.Context) error {
	if err := s.startServer(ctx); err != nil {
		return fmt.Errorf("start BGP: %w", err)
	}
	if err := s.setExport(ctx); err != nil {
		return err
	}
	if s.config.Origin != nil {
		if err := s.setImport(ctx); err != nil {
			return err
		}
	}
	watching, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	for _, p := range s.config.Peers {
		// A node that restarts ends each offered family with End-of-RIB after the deferral,
		// also families that the peer did not accept. FRR answers an unknown family by
		// ending the session, and drops the routes that it had kept. So a node that
		// restarts offers only what the peer accepted before.
		s.offered[p.Address] = slices.DeleteFunc(s.familiesOf(p), func(f bgp.Family) bool {
			return s.config.Restarting && len(p.Spoken) > 0 && !slices.Contains(p.Spoken, f.String())
		})
	}
	err := s.server.WatchEvent(watching, server.WatchEventMessageCallbacks{
		OnPathUpdate: s.update, OnPathEor: s.complete, OnPeerUpdate: s.peerChanged,
	}, server.WatchPostUpdate(false, "", ""), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		cancel()
		return fmt.Errorf("watch BGP: %w", err)
	}
	s.connect = sync.OnceValue(func() error {
		for _, p := range s.config.Peers {
			if err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.peer(p)}); err != nil {
				return fmt.Errorf("peer %s: %w", p.Address, err)
			}
		}
		if s.config.Restarting {
			time.AfterFunc(deferral, s.endRestart)
		}
		return nil
	})
	if s.config.Waits || s.reach != nil { // SetNode or Originate connects
		return nil
	}
	if err := s.Connect(); err != nil {
		cancel()
		return err
	}
	return nil
}

// startServer starts GoBGP.
func (s *Speaker) startServer(ctx context.Context) error {
	port := int32(-1)
	var listen []string
	if len(s.config.Listen) > 0 {
		port = int32(cmp.Or(s.config.Port, Port))
		for _, a := range s.config.Listen {
			listen = append(listen, a.String())
		}
	}
	// GoBGP allocates two tables of 200 KiB for each family that it gets, and for all
	// families if it gets none.
	var numbers []uint32
	all := slices.Concat(families, unicastFamilies, vpnFamilies)
	if len(s.links) > 0 {
		all = append(all, lsFamilies...)
	}
	for _, f := range all {
		numbers = append(numbers, uint32(oc.AfiSafiType(f.String()).ToInt()))
	}
	return s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: s.config.ASN, RouterId: s.config.RouterID.String(), ListenPort: port, ListenAddresses: listen,
		GracefulRestart: s.config.gracefulRestart(), Families: numbers,
	}})
}

// Connect connects to the peers, once.
func (s *Speaker) Connect() error { return s.connect() }

// deferral is how long a node that restarts waits for its peers' routes before it
// advertises anything itself (RFC 4724 section 4.1). All peers must be able to
// connect again in that time, or a route reflector would withdraw the routes of the
// last of them. What peers have kept stays valid meanwhile.
const deferral = 15 * time.Second

func (c *Config) gracefulRestart() *api.GracefulRestart {
	if c.Restart == 0 {
		return nil
	}
	return &api.GracefulRestart{
		Enabled: true, RestartTime: uint32(c.Restart.Seconds()), NotificationEnabled: true,
		LocalRestarting: c.Restarting, DeferralTime: uint32(deferral.Seconds()), LonglivedEnabled: c.Stale > 0,
	}
}

// endRestart ends this node's restart for peers that have not come back by then. Of two that
// both restart, neither waits for the other's routes (RFC 4724 section 4.1): a route reflector
// that comes back later would not wait for those of this node, and withdraw them.
func (s *Speaker) endRestart() {
	s.reporting.Lock()
	var away []Peer
	if s.config.Restarting = false; !s.stopped {
		away = slices.DeleteFunc(slices.Clone(s.config.Peers), func(p Peer) bool { return s.isUp(p.Address) })
	}
	for _, p := range away {
		s.offered[p.Address] = s.familiesOf(p)
	}
	s.reporting.Unlock()
	for _, p := range away {
		err := s.server.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: p.Address.String()})
		if err == nil {
			err = s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.peer(p)})
		}
		s.logReset(p.Address, err)
	}
}

// peer returns GoBGP's configuration of a peer.
func (s *Speaker) peer(p Peer) *api.Peer {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	// The pause between two attempts to connect, in seconds. GoBGP waits 75 to 100 % of
	// it, and of its minimum of 2 s before the first attempt (fsm.go, connectLoop); no
	// setting shortens that. So a speaker that only connects receives its first path 1.5
	// to 2 s after it starts. It retries at the minimum: nobody connects to it in the
	// meantime.
	hold, retry := cmp.Or(p.Hold, 90*time.Second), uint64(2)
	if len(s.config.Listen) > 0 {
		retry = 5
	}
	out := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.ASN, AuthPassword: p.Password},
		Transport: &api.Transport{PassiveMode: p.Passive, RemotePort: uint32(cmp.Or(p.Port, Port))},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(hold.Seconds()), KeepaliveInterval: uint64(hold.Seconds() / 3), ConnectRetry: retry, IdleHoldTimeAfterReset: 1,
		}},
		GracefulRestart: s.config.gracefulRestart(),
	}
	if p.Local.IsValid() {
		out.Transport.LocalAddress = p.Local.String()
	}
	switch {
	case p.Hops > 0:
		out.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 256 - uint32(p.Hops)}
	case p.ASN != s.config.ASN:
		out.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: 255}
	}
	if p.Client {
		id := cmp.Or(s.config.ClusterID, s.config.RouterID)
		out.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: id.String()}
	}
	for _, f := range s.offered[p.Address] {
		a := &api.AfiSafi{Config: &api.AfiSafiConfig{Enabled: true, Family: apiutil.ToApiFamily(f.Afi(), f.Safi())}}
		if s.config.Restart > 0 {
			a.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
		if s.config.Stale > 0 {
			a.LongLivedGracefulRestart = &api.LongLivedGracefulRestart{
				Config: &api.LongLivedGracefulRestartConfig{Enabled: true, RestartTime: uint32(s.config.Stale.Seconds())},
			}
		}
		out.AfiSafis = append(out.AfiSafis, a)
	}
	return out
}

// Stop ends all sessions. With graceful restart peers keep our routes for the time
// agreed. A route reflector withdraws reflected routes from the clients whose
// sessions end last.
func (s *Speaker) Stop() {
	s.silence()
	err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: s.config.Restart > 0})
	if err != nil {
		s.log.Warn("stopping BGP failed", "event", logevent.BGPStopFailed, "error", err)
	}
}

// Leave is Stop for a process that is about to end. With graceful restart it leaves
// the sessions of a route reflector to end with the process, all at once, so that
// nothing is withdrawn.
func (s *Speaker) Leave() {
	if s.config.Restart == 0 || !slices.ContainsFunc(s.config.Peers, func(p Peer) bool { return p.Client }) {
		s.Stop()
		return
	}
	s.silence()
}

// silence stops all calls of the handlers.
func (s *Speaker) silence() {
	s.reporting.Lock()
	s.stopped = true
	s.reporting.Unlock()
	s.stop()
}

// update handles what a peer advertises and withdraws.
func (s *Speaker) update(paths []*apiutil.Path, _ time.Time) {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	if s.stopped {
		return
	}
	if s.config.MaxPrefixes > 0 && !s.limitDue {
		s.limitDue = true
		time.AfterFunc(lookEvery, s.checkLimit)
	}
	isUp := once(s.isUp)
	for _, p := range paths {
		switch n := p.Nlri.(type) {
		case *bgp.SRPolicyNLRI:
			s.observePath(p, n)
		case *bgp.LsAddrPrefix:
			s.observeLinkState(p, n, isUp)
		default:
			if s.reach != nil {
				s.observeRoute(p)
			}
		}
	}
	if s.reach != nil {
		s.rename()
	}
}

func (s *Speaker) countMalformed(peer netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.malformed[peer]++
}

// complete handles an End-of-RIB. After that of the peer's last family the peer has
// advertised everything.
func (s *Speaker) complete(p *apiutil.Path, _ time.Time) {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	if t := s.links[p.PeerAddress]; t != nil && p.Family == bgp.RF_LS {
		t.finish()
	}
	if delete(s.awaited[p.PeerAddress], p.Family); s.stopped || len(s.awaited[p.PeerAddress]) > 0 {
		return
	}
	if s.handler != nil {
		s.handler.Complete(p.PeerAddress)
	}
}

// settle handles, after the restart time, the missing End-of-RIBs of a peer whose session came
// up: one without graceful restart sends none. s.reporting is held.
func (s *Speaker) settle(peer netip.Addr) {
	if s.config.Restart == 0 {
		return
	}
	session := s.sessions[peer]
	time.AfterFunc(s.config.Restart, func() {
		s.reporting.Lock()
		defer s.reporting.Unlock()
		if !s.stopped && s.sessions[peer] == session && len(s.awaited[peer]) > 0 && s.handler != nil {
			clear(s.awaited[peer])
			s.handler.Complete(peer)
		}
	})
}

// peerChanged handles a change of a session's state.
func (s *Speaker) peerChanged(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	state := e.Peer.State
	switch state.SessionState {
	case bgp.BGP_FSM_ESTABLISHED:
		s.log.Info("BGP session is up", "event", logevent.BGPSessionUp, "peer", state.NeighborAddress, "asn", state.PeerASN, "router_id", state.RouterID)
		s.sessionUp(state)
	case bgp.BGP_FSM_IDLE:
		s.sessionDown(state.NeighborAddress)
		s.log.Warn("BGP session is down", "event", logevent.BGPSessionDown, "peer", state.NeighborAddress, "reason", strings.TrimSpace(state.DisconnectMessage))
	}
}

// Advertise advertises a candidate path. It replaces an earlier one with the same
// color, endpoint and distinguisher. It is for the headends with these router IDs;
// none: for every peer.
func (s *Speaker) Advertise(a srpolicy.Advertised, headends []netip.Addr) error {
	// The next hop is of the endpoint's family; no peer resolves it.
	id := s.config.RouterID.As4()
	hop := netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: id[0], 13: id[1], 14: id[2], 15: id[3]})
	if a.Endpoint.Is4() {
		hop = s.config.RouterID
	}
	if i := slices.IndexFunc(s.config.Listen, func(l netip.Addr) bool { return l.Is4() == a.Endpoint.Is4() }); i >= 0 {
		hop = s.config.Listen[i]
	}
	nlri, attrs, err := writePolicy(a, hop, headends)
	if err != nil {
		return err
	}
	p := &apiutil.Path{Family: familyOf(a.Endpoint), Nlri: nlri, Attrs: attrs, Age: time.Now().Unix()}
	if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{p}}); err != nil {
		return fmt.Errorf("advertise color %d, endpoint %s: %w", a.Color, a.Endpoint, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[keyOf(a)] = p
	return nil
}

// ErrNotAdvertised says that this speaker does not advertise the path.
var ErrNotAdvertised = errors.New("nothing of that color, endpoint and distinguisher is advertised")

// Withdraw withdraws a path that Advertise advertised.
func (s *Speaker) Withdraw(a srpolicy.Advertised) error {
	s.mu.Lock()
	p := s.own[keyOf(a)]
	delete(s.own, keyOf(a))
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%w: color %d, endpoint %s, distinguisher %d", ErrNotAdvertised, a.Color, a.Endpoint, a.Distinguisher)
	}
	if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{p}}); err != nil {
		return fmt.Errorf("withdraw color %d, endpoint %s: %w", a.Color, a.Endpoint, err)
	}
	return nil
}

// PeerStatus is the state of a session.
type PeerStatus struct {
	Address  netip.Addr    `json:"address"`
	ASN      uint32        `json:"asn"`
	RouterID netip.Addr    `json:"router_id,omitzero"`
	State    string        `json:"state"`            // as RFC 4271 section 8.2.2 names it, in small letters
	Reason   string        `json:"reason,omitempty"` // of the last end of the session
	Since    time.Duration `json:"since"`            // that it is up, in ns
	Received uint64        `json:"received"`         // candidate paths and prefixes that it advertises
	Sent     uint64        `json:"-"`
	// Malformed counts the updates that could not be read or used: they were treated
	// as withdrawn or lost an attribute. Updates that lack a mandatory attribute are
	// withdrawn and logged, but not counted here.
	Malformed uint64 `json:"-"`
	// Intruding counts the routes that it advertised to prefixes that only this node may
	// have. They are not used.
	Intruding uint64 `json:"intruding,omitempty"`
}

// Peers returns the sessions.
func (s *Speaker) Peers(ctx context.Context) (out []PeerStatus, err error) {
	err = s.server.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
		state := PeerStatus{ASN: p.GetConf().GetPeerAsn(), Reason: p.GetState().GetDisconnectMessage()}
		state.Address, _ = netip.ParseAddr(p.GetConf().GetNeighborAddress())
		state.RouterID, _ = netip.ParseAddr(p.GetState().GetRouterId())
		state.State = strings.ToLower(strings.TrimPrefix(p.GetState().GetSessionState().String(), "SESSION_STATE_"))
		if up := p.GetTimers().GetState().GetUptime(); up != nil && state.State == "established" {
			state.Since = time.Since(up.AsTime())
		}
		s.mu.Lock()
		state.Intruding = s.intruding[state.Address]
		state.Malformed = s.malformed[state.Address] + p.GetState().GetMessages().GetReceived().GetDiscarded()
		s.mu.Unlock()
		for _, f := range p.GetAfiSafis() {
			state.Received += f.GetState().GetReceived()
			state.Sent += f.GetState().GetAdvertised()
		}
		out = append(out, state)
	})
	return out, err
}
