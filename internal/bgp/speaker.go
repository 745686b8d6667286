package bgp

import (
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
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Port is BGP's.
const Port = 179

// Config is what a speaker is told.
type Config struct {
	ASN      uint32
	RouterID netip.Addr // IPv4; Route Targets name the node by it
	// Listen are the addresses that peers connect to; none: it only connects.
	Listen []netip.Addr
	Port   uint16 // Port unless set
	Peers  []Peer
	// Restart is how long peers, and this node, keep what the other told while it
	// is away (graceful restart, RFC 4724); 0: not at all.
	Restart time.Duration
	// Restarting says that this node forwards what an earlier speaker was told:
	// peers that kept its routes go on keeping them.
	Restarting bool
	// ClusterID is that of this node as the route reflector of its clients: the
	// router ID unless set.
	ClusterID netip.Addr
	// MaxPrefixes is how many prefixes, or candidate paths, of each family a peer may
	// advertise: one that advertises more is disconnected for LimitPause. 0: any
	// number.
	MaxPrefixes uint32
	// Waits has it connect when Connect is called. Peers drop what they kept of an
	// earlier speaker and are not told again at once.
	Waits   bool
	Cluster *Cluster // nil: this speaker tells and hears of SR policies only
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
	// Hops is how far away an external peer may be: one that is farther is not
	// heard (TTL security, RFC 5082). 0: it may be anywhere.
	Hops    uint8
	Passive bool          // it connects to us
	Hold    time.Duration // hold time; 90 s unless set
	// RouteReflector says that the peer passes on what it is told (RFC 4456), and
	// Client that this node does, of what the peer tells.
	RouteReflector, Client bool
	// Families are what is spoken with it: unless set, all with an internal peer,
	// and with an external one Unicast if this node is one of a cluster, else
	// SRPolicy.
	Families []Family
	// Spoken are the address families that it took of those with an earlier
	// speaker (Handler.Speaks). A node that restarts offers no others.
	Spoken []string
}

// Family is what is spoken with a peer, for IPv4 and IPv6.
type Family string

const (
	SRPolicy Family = "sr-policy" // SAFI 73
	Unicast  Family = "unicast"   // prefixes of the cluster
	// L3VPN are prefixes of the VPN through SRv6. A peer that it is spoken with
	// belongs to the SR domain: its SIDs are taken (RFC 9252 section 9).
	L3VPN Family = "l3vpn"
)

// Source says who told of a candidate path: the originator of RFC 9256 section
// 2.4, and the peer that it came by.
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

// Handler hears of candidate paths for this node. Its methods are called one
// after the other, and must not call those of the speaker that change something.
type Handler interface {
	// Put is for a path that is new or has changed.
	Put(Path)
	// Withdraw is for one that is gone: its color, endpoint and distinguisher.
	Withdraw(srpolicy.Advertised)
	// Complete is called when a peer has told all that it knows, of all families.
	Complete(peer netip.Addr)
	// Speaks is called when a session is up: with the address families that the
	// peer takes of those that are meant for it, such as ipv6-unicast.
	Speaks(peer netip.Addr, families []string)
}

// Speaker is a BGP speaker for SR policies (SAFI 73) and, as a node of a cluster,
// for prefixes.
type Speaker struct {
	config  Config
	handler Handler
	log     *slog.Logger
	server  *server.BgpServer
	stop    context.CancelFunc

	connect func() error // once

	telling sync.Mutex // held while handlers are told something
	reach   *reach     // nil: no node of a cluster
	awaited map[netip.Addr]map[bgp.Family]bool
	offered map[netip.Addr][]bgp.Family // to each peer
	keeps   map[netip.Addr][]bgp.Family // what each peer keeps over its restart, it said last
	offers  map[key]map[netip.Addr]*offer
	told    map[key]Path // to the handler
	stopped bool
	looking bool // how much peers advertise will be looked at

	mu        sync.Mutex
	own       map[key]*apiutil.Path
	malformed map[netip.Addr]uint64 // by the peer that sent it
}

// key is a policy's NLRI.
type key struct {
	distinguisher, color uint32
	endpoint             netip.Addr
}

func keyOf(a srpolicy.Advertised) key { return key{a.Distinguisher, a.Color, a.Endpoint} }

// Start opens the sockets and connects to the peers. The handler hears of paths
// until Stop; nil: nobody listens.
func Start(ctx context.Context, c Config, h Handler) (*Speaker, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn) // each session's ups and downs are told by us
	r, err := newReach(c)
	if err != nil {
		return nil, err
	}
	s := &Speaker{
		config: c, handler: h, log: c.Log, reach: r, awaited: map[netip.Addr]map[bgp.Family]bool{}, offered: map[netip.Addr][]bgp.Family{},
		keeps: map[netip.Addr][]bgp.Family{}, offers: map[key]map[netip.Addr]*offer{}, told: map[key]Path{},
		own: map[key]*apiutil.Path{}, malformed: map[netip.Addr]uint64{},
		server: server.NewBgpServer(server.LoggerOption(c.Log, level)),
	}
	go s.server.Serve()
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.server.StopBgp(context.Background(), &api.StopBgpRequest{}))
	}
	return s, nil
}

func (c *Config) check() error {
	switch {
	case c.ASN == 0:
		return errors.New("asn: is missing: give this node's AS number")
	case !c.RouterID.Is4():
		return fmt.Errorf("router_id: %s: give an IPv4 address", c.RouterID)
	}
	for i, p := range c.Peers {
		if !p.Address.IsValid() || p.ASN == 0 {
			return fmt.Errorf("peers[%d]: give address and asn", i)
		}
	}
	return nil
}

// begin is all that can fail of Start.
func (s *Speaker) begin(ctx context.Context) error {
	port := int32(-1)
	var listen []string
	if len(s.config.Listen) > 0 {
		port = int32(orPort(s.config.Port))
		for _, a := range s.config.Listen {
			listen = append(listen, a.String())
		}
	}
	err := s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: s.config.ASN, RouterId: s.config.RouterID.String(), ListenPort: port, ListenAddresses: listen,
		GracefulRestart: s.gracefulRestart(), Families: numbers(slices.Concat(families, unicastFamilies, vpnFamilies)),
	}})
	if err != nil {
		return fmt.Errorf("start BGP: %w", err)
	}
	if err := s.setExport(ctx); err != nil {
		return err
	}
	watching, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	for _, p := range s.config.Peers {
		s.offered[p.Address] = s.offer(p)
	}
	err = s.server.WatchEvent(watching, server.WatchEventMessageCallbacks{
		OnPathUpdate: s.update, OnPathEor: s.complete, OnPeerUpdate: s.peerChanged,
	}, server.WatchPostUpdate(false, "", ""), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		cancel()
		return fmt.Errorf("watch BGP: %w", err)
	}
	s.connect = sync.OnceValue(s.addPeers)
	if s.config.Waits || s.reach != nil { // SetNode connects
		return nil
	}
	if err := s.Connect(); err != nil {
		cancel()
		return err
	}
	return nil
}

// Connect connects to the peers, if that was not done yet.
func (s *Speaker) Connect() error { return s.connect() }

func (s *Speaker) addPeers() error {
	for _, p := range s.config.Peers {
		if err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.peerNow(p)}); err != nil {
			return fmt.Errorf("peer %s: %w", p.Address, err)
		}
	}
	return nil
}

func orPort(p uint16) uint16 {
	if p == 0 {
		return Port
	}
	return p
}

// deferral is how long a node that restarts waits for peers to tell what they
// know before it advertises anything itself (RFC 4724 section 4.1): long enough for
// all to connect again, or a route reflector would withdraw what the last of them
// had told. What peers have kept is true meanwhile.
const deferral = 15 * time.Second

func (s *Speaker) gracefulRestart() *api.GracefulRestart {
	if s.config.Restart == 0 {
		return nil
	}
	return &api.GracefulRestart{
		Enabled: true, RestartTime: uint32(s.config.Restart.Seconds()), NotificationEnabled: true,
		LocalRestarting: s.config.Restarting, DeferralTime: uint32(deferral.Seconds()),
	}
}

// peer is what GoBGP is told of one. s.telling is held.
func (s *Speaker) peer(p Peer) *api.Peer {
	hold := p.Hold
	if hold == 0 {
		hold = 90 * time.Second
	}
	out := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.ASN, AuthPassword: p.Password},
		Transport: &api.Transport{PassiveMode: p.Passive, RemotePort: uint32(orPort(p.Port))},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(hold.Seconds()), KeepaliveInterval: uint64(hold.Seconds() / 3), ConnectRetry: s.connectRetry(), IdleHoldTimeAfterReset: 1,
		}},
		GracefulRestart: s.gracefulRestart(),
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
		id := s.config.ClusterID
		if !id.IsValid() {
			id = s.config.RouterID
		}
		out.RouteReflector = &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: id.String()}
	}
	for _, f := range s.offered[p.Address] {
		out.AfiSafis = append(out.AfiSafis, s.afiSafi(f))
	}
	return out
}

// connectRetry returns the pause between two attempts to connect, in seconds.
//
// GoBGP waits 75 to 100 % of it, and of its minimum of 2 s before the first
// attempt (fsm.go, connectLoop); no setting shortens that. So a speaker that
// only connects is heard 1.5 to 2 s after it starts. It retries at the minimum:
// nobody connects to it in the meantime.
func (s *Speaker) connectRetry() uint64 {
	if len(s.config.Listen) == 0 {
		return 2
	}
	return 5
}

func (s *Speaker) afiSafi(f bgp.Family) *api.AfiSafi {
	family := apiutil.ToApiFamily(f.Afi(), f.Safi())
	a := &api.AfiSafi{Config: &api.AfiSafiConfig{Enabled: true, Family: family}}
	if s.config.Restart > 0 {
		a.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
	}
	return a
}

// Stop ends all sessions. With graceful restart peers keep what we told them for
// as long as was agreed. What a route reflector passed on it withdraws from those
// whose sessions end last.
func (s *Speaker) Stop() {
	s.quiet()
	err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: s.config.Restart > 0})
	if err != nil {
		s.log.Warn("BGP did not end as it should", "error", err)
	}
}

// Leave is Stop for a process that is about to end: with graceful restart the
// sessions of a route reflector are left to end with it, all at once, so that
// nothing is withdrawn.
func (s *Speaker) Leave() {
	if s.config.Restart == 0 || !slices.ContainsFunc(s.config.Peers, func(p Peer) bool { return p.Client }) {
		s.Stop()
		return
	}
	s.quiet()
}

// quiet has the handlers hear nothing more.
func (s *Speaker) quiet() {
	s.telling.Lock()
	s.stopped = true
	s.telling.Unlock()
	s.stop()
}

// update hears of what each peer advertises and withdraws.
func (s *Speaker) update(paths []*apiutil.Path, _ time.Time) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.stopped {
		return
	}
	s.lookSoon()
	for _, p := range paths {
		if n, ok := p.Nlri.(*bgp.SRPolicyNLRI); ok {
			s.learn(p, n)
		} else if s.reach != nil {
			s.learnReach(p)
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

// complete hears an End-of-RIB. The last one of the families that the peer speaks
// says that it has told all.
func (s *Speaker) complete(p *apiutil.Path, _ time.Time) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if delete(s.awaited[p.PeerAddress], p.Family); s.stopped || len(s.awaited[p.PeerAddress]) > 0 {
		return
	}
	if s.handler != nil {
		s.handler.Complete(p.PeerAddress)
	}
}

func (s *Speaker) peerChanged(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	state := e.Peer.State
	switch state.SessionState {
	case bgp.BGP_FSM_ESTABLISHED:
		s.log.Info("BGP session is up", "peer", state.NeighborAddress, "asn", state.PeerASN, "router_id", state.RouterID)
		s.begun(state)
	case bgp.BGP_FSM_IDLE:
		s.log.Warn("BGP session is down", "peer", state.NeighborAddress, "reason", strings.TrimSpace(state.DisconnectMessage))
	}
}

// Advertise tells the peers of a candidate path, in place of an earlier one with
// its color, endpoint and distinguisher.
func (s *Speaker) Advertise(a srpolicy.Advertised, to Target) error {
	nlri, attrs, err := writePolicy(a, s.nextHop(a.Endpoint), to)
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

// nextHop is of the family that the endpoint has; nobody resolves it.
func (s *Speaker) nextHop(endpoint netip.Addr) netip.Addr {
	i := slices.IndexFunc(s.config.Listen, func(a netip.Addr) bool { return a.Is4() == endpoint.Is4() })
	switch {
	case i >= 0:
		return s.config.Listen[i]
	case endpoint.Is4():
		return s.config.RouterID
	}
	id := s.config.RouterID.As4()
	return netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: id[0], 13: id[1], 14: id[2], 15: id[3]})
}

// ErrNotAdvertised is that there is no such path of ours.
var ErrNotAdvertised = errors.New("nothing of that color, endpoint and distinguisher is advertised")

// Withdraw takes back what Advertise told.
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

// PeerStatus is a session as it is.
type PeerStatus struct {
	Address  netip.Addr
	ASN      uint32
	RouterID netip.Addr
	State    string // as RFC 4271 section 8.2.2 names it, in small letters
	Reason   string // why it went down last
	Since    time.Duration
	Received uint64 // what it advertises: candidate paths and prefixes
	Sent     uint64
	// Malformed is how many updates were treated as withdrawals, or lost an
	// attribute, because of what could not be read or used. One that lacks a
	// mandatory attribute is withdrawn and logged, and not among them.
	Malformed uint64
}

// Peers are the sessions.
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
