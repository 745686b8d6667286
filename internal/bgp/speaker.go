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
	Log     *slog.Logger
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
}

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
// after the other.
type Handler interface {
	// Put is for a path that is new or has changed.
	Put(Path)
	// Withdraw is for one that is gone: its color, endpoint and distinguisher.
	Withdraw(srpolicy.Advertised)
	// Complete is called when a peer has told all that it knows.
	Complete(peer netip.Addr)
}

// Speaker is a BGP speaker for SR policies (SAFI 73).
type Speaker struct {
	config  Config
	handler Handler
	log     *slog.Logger
	server  *server.BgpServer
	stop    context.CancelFunc

	mu    sync.Mutex
	known map[key]bool // that the handler was told of
	own   map[key]*apiutil.Path
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
	s := &Speaker{
		config: c, handler: h, log: c.Log, known: map[key]bool{}, own: map[key]*apiutil.Path{},
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
		GracefulRestart: s.gracefulRestart(),
	}})
	if err != nil {
		return fmt.Errorf("start BGP: %w", err)
	}
	if err := s.keepToSelf(ctx); err != nil {
		return err
	}
	watch, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	err = s.server.WatchEvent(watch, server.WatchEventMessageCallbacks{
		OnBestPath: s.learn, OnPathEor: s.complete, OnPeerUpdate: s.peerChanged,
	}, server.WatchBestPath(true), server.WatchEor(true), server.WatchPeer())
	if err != nil {
		cancel()
		return fmt.Errorf("watch BGP: %w", err)
	}
	for _, p := range s.config.Peers {
		if err := s.server.AddPeer(ctx, &api.AddPeerRequest{Peer: s.peer(p)}); err != nil {
			cancel()
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

func (s *Speaker) gracefulRestart() *api.GracefulRestart {
	if s.config.Restart == 0 {
		return nil
	}
	return &api.GracefulRestart{Enabled: true, RestartTime: uint32(s.config.Restart.Seconds()), NotificationEnabled: true}
}

// keepToSelf advertises what is ours only: a headend is no transit for policies,
// and NO_ADVERTISE has to be honoured.
func (s *Speaker) keepToSelf(ctx context.Context) error {
	ours := &api.Policy{Name: "ours", Statements: []*api.Statement{{
		Name:       "ours",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := s.server.AddPolicy(ctx, &api.AddPolicyRequest{Policy: ours}); err != nil {
		return fmt.Errorf("make the export policy: %w", err)
	}
	err := s.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
		Policies: []*api.Policy{{Name: "ours"}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
	if err != nil {
		return fmt.Errorf("set the export policy: %w", err)
	}
	return nil
}

func (s *Speaker) peer(p Peer) *api.Peer {
	hold := p.Hold
	if hold == 0 {
		hold = 90 * time.Second
	}
	out := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.ASN, AuthPassword: p.Password},
		Transport: &api.Transport{PassiveMode: p.Passive, RemotePort: uint32(orPort(p.Port))},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: uint64(hold.Seconds()), KeepaliveInterval: uint64(hold.Seconds() / 3), ConnectRetry: 5, IdleHoldTimeAfterReset: 1,
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
	for _, f := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		a := &api.AfiSafi{Config: &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: f, Safi: api.Family_SAFI_SR_POLICY}}}
		if s.config.Restart > 0 {
			a.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
		}
		out.AfiSafis = append(out.AfiSafis, a)
	}
	return out
}

// Stop ends all sessions. With graceful restart peers keep what we told them for
// as long as was agreed.
func (s *Speaker) Stop() {
	s.stop()
	err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: s.config.Restart > 0})
	if err != nil {
		s.log.Warn("BGP did not end as it should", "error", err)
	}
}

// learn hears of what is the best path of each NLRI now.
func (s *Speaker) learn(paths []*apiutil.Path, _ time.Time) {
	for _, p := range paths {
		n, ok := p.Nlri.(*bgp.SRPolicyNLRI)
		if !ok || !p.PeerAddress.IsValid() || p.PeerAddress.IsUnspecified() { // our own
			continue
		}
		a, usable, err := readPolicy(n, p.Attrs, s.config.RouterID)
		switch {
		case p.Withdrawal:
			s.withdraw(a)
		case err != nil:
			s.log.Warn("an SR policy is treated as withdrawn", "peer", p.PeerAddress, "nlri", n.String(), "error", err)
			s.withdraw(a)
		case !usable: // for other headends
			s.withdraw(a)
		default:
			s.put(Path{a, Source{p.PeerASN, p.PeerID, p.PeerAddress}, p.Stale})
		}
	}
}

func (s *Speaker) put(p Path) {
	s.mu.Lock()
	s.known[keyOf(p.Advertised)] = true
	s.mu.Unlock()
	if s.handler != nil {
		s.handler.Put(p)
	}
}

func (s *Speaker) withdraw(a srpolicy.Advertised) {
	s.mu.Lock()
	was := s.known[keyOf(a)]
	delete(s.known, keyOf(a))
	s.mu.Unlock()
	if was && s.handler != nil {
		s.handler.Withdraw(srpolicy.Advertised{Distinguisher: a.Distinguisher, Color: a.Color, Endpoint: a.Endpoint})
	}
}

// complete hears an End-of-RIB.
func (s *Speaker) complete(p *apiutil.Path, _ time.Time) {
	if s.handler != nil && slices.Contains(families, p.Family) {
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
	Received uint64 // candidate paths that it advertises
	Sent     uint64
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
		for _, f := range p.GetAfiSafis() {
			state.Received += f.GetState().GetReceived()
			state.Sent += f.GetState().GetAdvertised()
		}
		out = append(out, state)
	})
	return out, err
}
