package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// observed is a Handler that keeps what it receives.
type observed struct {
	mu        sync.Mutex
	paths     map[key]Path
	events    []string
	completed []netip.Addr
	spoken    map[netip.Addr][]string
}

func newObserved() *observed {
	return &observed{paths: map[key]Path{}, spoken: map[netip.Addr][]string{}}
}

func (h *observed) Put(p Path) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths[keyOf(p.Advertised)] = p
	h.events = append(h.events, fmt.Sprintf("put %d", p.Color))
}

func (h *observed) Withdraw(a srpolicy.Advertised) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.paths, keyOf(a))
	h.events = append(h.events, fmt.Sprintf("withdraw %d", a.Color))
}

func (h *observed) Complete(peer netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.completed = append(h.completed, peer)
}

func (h *observed) Speaks(peer netip.Addr, families []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spoken[peer] = families
}

func (h *observed) path(color uint32) (Path, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, p := range h.paths {
		if k.color == color {
			return p, true
		}
	}
	return Path{}, false
}

func (h *observed) has(color uint32) bool { _, ok := h.path(color); return ok }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("after 30 s still not so: %s", what)
}

const testPort = 1179

func speaker(t *testing.T, c Config, h Handler) *Speaker {
	t.Helper()
	c.Port = testPort
	for i := range c.Peers {
		c.Peers[i].Port = testPort
	}
	return standard(t, c, h)
}

// standard starts a speaker with BGP's own port.
func standard(t *testing.T, c Config, h Handler) *Speaker {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	s, err := Start(t.Context(), c, h)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(s.Stop)
	t.Cleanup(stop)
	return s
}

func established(t *testing.T, s *Speaker) {
	t.Helper()
	eventually(t, "the session is established", func() bool { return isEstablished(s) })
}

func isEstablished(s *Speaker) bool {
	peers, err := s.Peers(context.Background())
	return err == nil && len(peers) > 0 && !slices.ContainsFunc(peers, func(p PeerStatus) bool { return p.State != "established" })
}

// A headend receives what is for it, of changes, and of the end; what is for
// others, and what comes from a third, it neither uses nor passes on.
func TestHeadendReceivesPolicies(t *testing.T) {
	t.Parallel()
	h, other := newObserved(), newObserved()
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{addr("127.94.0.5")}, Peers: []Peer{
		{Address: addr("127.94.0.9"), ASN: 65001, Passive: true, Local: addr("127.94.0.5")},
		{Address: addr("127.94.0.6"), ASN: 65002, Passive: true, Local: addr("127.94.0.5")},
	}}, h)
	injector := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Peers: []Peer{
		{Address: addr("127.94.0.5"), ASN: 65001, Local: addr("127.94.0.9"), Hold: 9 * time.Second}}}, nil)
	neighbour := speaker(t, Config{ASN: 65002, RouterID: addr("10.0.0.6"), Peers: []Peer{
		{Address: addr("127.94.0.5"), ASN: 65001, Local: addr("127.94.0.6")}}}, other)
	established(t, headend)

	advertise := func(a srpolicy.Advertised, to []netip.Addr) {
		t.Helper()
		if err := injector.Advertise(a, to); err != nil {
			t.Fatal(err)
		}
	}
	advertise(gold(), []netip.Addr{addr("10.0.0.5")})
	eventually(t, "the policy arrives", func() bool { return h.has(100) })
	got, _ := h.path(100)
	if want := (Path{gold(), Source{65001, addr("10.0.0.9"), addr("127.94.0.9")}, false}); !reflect.DeepEqual(got, want) {
		t.Errorf("received %+v, want %+v", got, want)
	}

	four := gold()
	four.Color, four.Endpoint = 104, addr("192.0.2.7")
	advertise(four, nil) // NO_ADVERTISE: it is for whoever receives it
	elsewhere := gold()
	elsewhere.Color = 105
	advertise(elsewhere, []netip.Addr{addr("10.0.0.77")})
	changed := gold()
	changed.Preference = 300
	advertise(changed, []netip.Addr{addr("10.0.0.5")})
	eventually(t, "the change arrives", func() bool { p, _ := h.path(100); return p.Preference == 300 })
	if p, ok := h.path(104); !ok || p.Endpoint != addr("192.0.2.7") {
		t.Errorf("the one for an IPv4 endpoint: %+v", p)
	}
	if h.has(105) {
		t.Error("what is for another headend was taken")
	}

	if err := injector.Withdraw(gold()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the withdrawal arrives", func() bool { return !h.has(100) })
	if err := injector.Withdraw(gold()); err == nil {
		t.Error("it was withdrawn twice")
	}
	if !h.has(104) || other.has(104) || other.has(100) || len(other.events) > 0 {
		t.Errorf("the neighbour received %q", other.events)
	}
	peers, err := headend.Peers(context.Background())
	if err != nil || len(peers) != 2 || peers[0].Received+peers[1].Received != 2 {
		t.Errorf("peers %+v, %v", peers, err)
	}
	_ = neighbour
}

// Without graceful restart a session's end withdraws what came by it; with it,
// what the peer advertised stays for as long as was agreed, and is confirmed.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		restart     time.Duration
		own, remote netip.Addr // of their own: a port that was closed is not free at once
	}{
		{"at once", 0, addr("127.94.1.5"), addr("127.94.1.9")},
		{"gracefully", 30 * time.Second, addr("127.94.1.15"), addr("127.94.1.19")},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, restart := newObserved(), c.restart
			headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{c.own}, Restart: restart, Peers: []Peer{
				{Address: c.remote, ASN: 65001, Passive: true, Local: c.own}}}, h)
			inject := func() *Speaker {
				s := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Restart: restart, Peers: []Peer{
					{Address: c.own, ASN: 65001, Local: c.remote}}}, nil)
				if err := s.Advertise(gold(), nil); err != nil {
					t.Fatal(err)
				}
				established(t, headend)
				return s
			}
			ends := func(n int) func() bool { // of the RIB
				return func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return len(h.completed) >= n
				}
			}
			first := inject()
			eventually(t, "the policy arrives", func() bool { return h.has(100) })
			if restart != 0 {
				eventually(t, "the first one has sent all", ends(1))
			}
			first.Stop()
			eventually(t, "the session is down", func() bool {
				peers, err := headend.Peers(context.Background())
				return err == nil && peers[0].State != "established"
			})
			if restart == 0 {
				eventually(t, "the policy is gone", func() bool { return !h.has(100) })
				return
			}
			if !h.has(100) {
				t.Fatal("the policy went with the session")
			}
			inject()
			eventually(t, "the second one has sent all", ends(2))
			if !h.has(100) || slices.Contains(h.events, "withdraw 100") {
				t.Errorf("events %q", h.events)
			}
		})
	}
}

// Two injectors, even with one router ID, advertise one NLRI: what one of them says is
// not lost because of what the other does.
func TestTwoInjectors(t *testing.T) {
	h := newObserved()
	own, a, b := addr("127.94.19.5"), addr("127.94.19.66"), addr("127.94.19.67")
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{own}, Peers: []Peer{
		{Address: a, ASN: 65001, Passive: true, Local: own}, {Address: b, ASN: 65001, Passive: true, Local: own}}}, h)
	first, second := tellTo(t, a, own, bgp.RF_SR_POLICY_IPv6), tellTo(t, b, own, bgp.RF_SR_POLICY_IPv6)
	established(t, headend)
	by := func(peer netip.Addr) func() bool {
		return func() bool { p, ok := h.path(100); return ok && p.Peer == peer }
	}
	sound := wellKnown + policy6 + forUs + tunnel(t, goldTunnel)
	withdrawn := "80 0f 1c 0002 49" + goldNLRI
	first.update(sound)
	eventually(t, "the first arrives", by(a))
	second.update(sound)
	eventually(t, "the second is received, too", func() bool {
		peers, err := headend.Peers(t.Context())
		return err == nil && peers[0].Received+peers[1].Received == 2
	})
	for name, attrs := range map[string]string{
		"it withdraws":             withdrawn,
		"what it says is bad":      wellKnown + policy6 + tunnel(t, goldTunnel),
		"what it says is not read": wellKnown + policy6 + forUs + tunnel(t, "0c 05 00 00 0000c8"),
		"it means another headend": wellKnown + policy6 + "c0 10 08 0102 0a000009 0000\n" + tunnel(t, goldTunnel),
	} {
		first.update(attrs)
		eventually(t, name+": the second arrives", by(b))
		first.update(sound)
		eventually(t, name+": the first arrives again", by(a))
	}
	if slices.Contains(h.events, "withdraw 100") {
		t.Errorf("in between there was none: %q", h.events)
	}
	second.update(withdrawn)
	first.conn.Close()
	eventually(t, "both are gone", func() bool { return !h.has(100) })
}

// A peer that comes back and does not say that it has kept what it advertised before has
// not: it goes at once (RFC 4724 section 4.2).
func TestPeerComesBackOtherwise(t *testing.T) {
	t.Parallel()
	h := newObserved()
	own, from := addr("127.94.18.5"), addr("127.94.18.66")
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{own}, Restart: restart,
		Peers: []Peer{{Address: from, ASN: 65001, Passive: true, Local: own}}}, h)
	kept := bgp.NewCapGracefulRestart(false, false, 120, []*bgp.CapGracefulRestartTuple{bgp.NewCapGracefulRestartTuple(bgp.RF_SR_POLICY_IPv6, true)})
	peer := tellWith(t, from, netip.AddrPortFrom(own, testPort), []bgp.ParameterCapabilityInterface{kept}, bgp.RF_SR_POLICY_IPv6)
	established(t, headend)
	peer.update(wellKnown + policy6 + forUs + tunnel(t, goldTunnel))
	eventually(t, "the policy arrives", func() bool { return h.has(100) })
	peer.conn.Close()
	eventually(t, "the session is down", func() bool { return !isEstablished(headend) })
	if !h.has(100) {
		t.Fatal("the policy went with the session")
	}
	tellTo(t, from, own, bgp.RF_SR_POLICY_IPv6)
	eventually(t, "the policy is gone", func() bool { return !h.has(100) })
}

// A second GoBGP, with types of its own, advertises what ours receive; what RFC 9830
// calls malformed is withdrawn, and the session stays.
func TestAgainstGoBGP(t *testing.T) {
	h := newObserved()
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{addr("127.94.2.5")}, Peers: []Peer{
		{Address: addr("127.94.2.9"), ASN: 65001, Passive: true, Local: addr("127.94.2.5")}}}, h)
	g := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), &slog.LevelVar{}))
	go g.Serve()
	t.Cleanup(g.Stop)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{Asn: 65001, RouterId: "10.0.0.9", ListenPort: -1}}))
	must(g.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: "127.94.2.5", PeerAsn: 65001},
		Transport: &api.Transport{LocalAddress: "127.94.2.9", RemotePort: testPort},
		Timers:    &api.Timers{Config: &api.TimersConfig{ConnectRetry: 1}},
		AfiSafis: []*api.AfiSafi{{Config: &api.AfiSafiConfig{Enabled: true,
			Family: &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_SR_POLICY}}}},
	}}))
	established(t, headend)

	send := func(attrs ...bgp.PathAttributeInterface) {
		t.Helper()
		nlri, err := bgp.NewSRPolicy(bgp.RF_SR_POLICY_IPv6, bgp.SRPolicyIPv6NLRILen, 7, 100, addr("fd11::1000").AsSlice())
		must(err)
		reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_SR_POLICY_IPv6, []bgp.PathNLRI{{NLRI: nlri}}, addr("fd11::9"))
		must(err)
		attrs = append([]bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0), reach}, attrs...)
		_, err = g.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{{Family: bgp.RF_SR_POLICY_IPv6, Nlri: nlri, Attrs: attrs}}})
		must(err)
	}
	noAdvertise := bgp.NewPathAttributeCommunities([]uint32{uint32(bgp.COMMUNITY_NO_ADVERTISE)})
	list := &bgp.TunnelEncapSubTLVSRSegmentList{
		TunnelEncapSubTLV: bgp.TunnelEncapSubTLV{Type: bgp.ENCAP_SUBTLV_TYPE_SRSEGMENT_LIST, Length: 21},
		Segments: []bgp.TunnelEncapSubTLVInterface{&bgp.SegmentTypeB{
			TunnelEncapSubTLV: bgp.TunnelEncapSubTLV{Type: bgp.EncapSubTLVType(bgp.TypeB), Length: 18}, SID: addr("fcff:3::1").AsSlice()}},
	}
	sound := bgp.NewPathAttributeTunnelEncap([]*bgp.TunnelEncapTLV{bgp.NewTunnelEncapTLV(bgp.TUNNEL_TYPE_SR_POLICY,
		[]bgp.TunnelEncapSubTLVInterface{bgp.NewTunnelEncapSubTLVSRPreference(0, 42), list})})
	send(noAdvertise, sound)
	eventually(t, "the policy arrives", func() bool { return h.has(100) })
	if p, _ := h.path(100); p.Preference != 42 || p.SegmentLists[0].Segments[0] != addr("fcff:3::1") || p.BindingSID.IsValid() {
		t.Errorf("received %+v", p)
	}
	for name, attrs := range map[string][]bgp.PathAttributeInterface{
		"nobody is named": {sound},
		"no list": {noAdvertise, bgp.NewPathAttributeTunnelEncap([]*bgp.TunnelEncapTLV{bgp.NewTunnelEncapTLV(bgp.TUNNEL_TYPE_SR_POLICY,
			[]bgp.TunnelEncapSubTLVInterface{bgp.NewTunnelEncapSubTLVSRPreference(0, 42)})})},
		"no tunnel": {noAdvertise},
	} {
		send(attrs...)
		eventually(t, name+": the policy is withdrawn", func() bool { return !h.has(100) })
		send(noAdvertise, sound)
		eventually(t, name+": a sound one is taken again", func() bool { return h.has(100) })
	}
	established(t, headend)
}

// Who does not know the password, or is too far away, is not received.
func TestSessionsAreGuarded(t *testing.T) {
	t.Parallel()
	// Addresses of their own: one speaker's port is free some time after its end only.
	for name, tt := range map[string]struct {
		own, other   string
		ours, theirs Peer
	}{
		"password":    {"127.94.3.5", "127.94.3.9", Peer{Password: "one"}, Peer{Password: "two"}},
		"no password": {"127.94.3.6", "127.94.3.10", Peer{Password: "one"}, Peer{}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, own, other := tt.ours, tt.theirs, addr(tt.own), addr(tt.other)
			ours.Address, ours.ASN, ours.Passive, ours.Local = other, 65001, true, own
			theirs.Address, theirs.ASN, theirs.Local = own, 65001, other
			headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{own}, Peers: []Peer{ours}}, newObserved())
			speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Peers: []Peer{theirs}}, nil)
			for range 30 {
				time.Sleep(100 * time.Millisecond)
				peers, err := headend.Peers(context.Background())
				if err != nil || peers[0].State == "established" {
					t.Fatalf("%+v, %v", peers, err)
				}
			}
		})
	}
	t.Run("both know it", func(t *testing.T) {
		headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{addr("127.94.3.7")},
			Peers: []Peer{{Address: addr("127.94.3.11"), ASN: 65002, Passive: true, Local: addr("127.94.3.7"), Password: "one", Hops: 1}}}, newObserved())
		speaker(t, Config{ASN: 65002, RouterID: addr("10.0.0.9"),
			Peers: []Peer{{Address: addr("127.94.3.7"), ASN: 65001, Local: addr("127.94.3.11"), Password: "one", Hops: 1}}}, nil)
		established(t, headend)
	})
}

func TestConfigIsChecked(t *testing.T) {
	for want, c := range map[string]Config{
		"asn: is missing":        {RouterID: addr("10.0.0.5")},
		"router_id: ":            {ASN: 1, RouterID: addr("::1")},
		"peers[0]: give address": {ASN: 1, RouterID: addr("10.0.0.5"), Peers: []Peer{{ASN: 1}}},
	} {
		if s, err := Start(t.Context(), c, nil); err == nil || err.Error()[:len(want)] != want {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}
