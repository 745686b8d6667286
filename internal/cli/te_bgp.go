package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/engine/claim"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/linkstate"
)

// mostObjects is how many routes of a family a peer of the engine may advertise.
const mostObjects = 100_000

// teSpeaker is the engine's BGP speaker.
type teSpeaker struct {
	speaker  *bgp.Speaker
	settings netfile.BGP
	since    time.Time
	ready    bool // peers have advertised everything once, or had the time to
}

// startSpeaker makes the engine's speaker. It connects when Connect is called. restarting says
// that headends have paths of an earlier one.
func startSpeaker(ctx context.Context, b netfile.BGP, restarting bool, log *slog.Logger) (*teSpeaker, error) {
	if !b.IsSet() {
		return nil, errors.New("engine.bgp: is missing (fix: give asn, router_id and peers in the file of the network)")
	}
	c := bgp.Config{
		ASN: b.ASN, RouterID: b.RouterID, Listen: b.Listen, Port: b.Port, Restart: time.Duration(b.Restart), Restarting: restarting,
		MaxPrefixes: mostObjects, Waits: true, Log: log,
	}
	for i, p := range b.Peers {
		password, err := bgp.ReadPassword(p.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("engine.bgp.peers[%d].password_file: %w", i, err)
		}
		peer := bgp.Peer{
			Address: p.Address, Port: p.Port, ASN: p.ASN, Local: p.Source, Password: password, Hops: p.Hops, Passive: p.Passive,
			Hold: time.Duration(p.HoldTime) * time.Second, RouteReflector: p.RouteReflector, Families: []bgp.Family{bgp.LinkState, bgp.SRPolicy},
		}
		if len(p.Families) > 0 {
			peer.Families = nil
		}
		for _, name := range p.Families {
			peer.Families = append(peer.Families, bgp.Family(name))
		}
		c.Peers = append(c.Peers, peer)
	}
	s, err := bgp.Start(ctx, c, nil)
	if err != nil {
		return nil, fmt.Errorf("engine.bgp: %w", err)
	}
	return &teSpeaker{speaker: s, settings: b, since: time.Now()}, nil
}

// stop ends its sessions; nil has none.
func (s *teSpeaker) stop() {
	if s != nil {
		s.speaker.Stop()
	}
}

// startEngine starts the speaker of an engine that takes its topology from BGP, or writes by it: nil
// for another one. It advertises what headends have of an earlier engine before it connects, so
// that they keep it.
func (a *app) startEngine(ctx context.Context, file *netfile.Network, nodes map[string]string, source string, log *slog.Logger) (*teSpeaker, *advertiser, error) {
	b := file.Engine.BGP
	if file.Engine.Write != netfile.WriteBGP && source != sourceBGP {
		return nil, nil, nil
	}
	headends, err := a.headends(file, nodes)
	if err != nil {
		return nil, nil, err
	}
	paths := &advertiser{claim: claim.New(b.RouterID, max(time.Duration(b.Restart), 3*time.Duration(file.Engine.Every)), log), paths: map[pathKey]bgp.Injection{}}
	had := []bgp.Injection(nil)
	if file.Engine.Write == netfile.WriteBGP {
		had = adopt(ctx, written(file, headends, paths), min(time.Duration(b.Wait), time.Duration(b.Restart)/2), log)
	}
	s, err := startSpeaker(ctx, b, len(had) > 0, log)
	if err != nil {
		return nil, nil, err
	}
	paths.injector = bgp.NewInjector(s.speaker)
	if err := errors.Join(paths.change(had, nil), s.speaker.Connect()); err != nil {
		s.stop()
		return nil, nil, err
	}
	if len(had) > 0 {
		log.Info("headends have candidate paths of an earlier engine; they stay", "event", logevent.TEAdopted, "paths", len(had))
	}
	return s, paths, nil
}

// topology is what peers advertise by BGP-LS. The first time it waits until they have advertised
// everything, or for as long as the file says.
func (s *teSpeaker) topology(ctx context.Context) (te.Topology, []te.LeftOut, error) {
	if err := s.await(ctx); err != nil {
		return te.Topology{}, nil, err
	}
	n := s.speaker.Network(time.Duration(s.settings.Keep))
	if len(n.Unknown) > 0 {
		return te.Topology{}, nil, fmt.Errorf("BGP peer %s is away for more than %s (engine.bgp.keep): what only it knew is unknown now", n.Unknown[0], time.Duration(s.settings.Keep))
	}
	topology, left := linkstate.Topology(n.Objects)
	if len(topology.Links) == 0 {
		return topology, left, fmt.Errorf("no BGP peer advertises a topology%s", s.why(ctx, left))
	}
	for _, peer := range n.Waits {
		left = append(left, te.LeftOut{What: fmt.Sprintf("what only BGP peer %s knows", peer), Why: "it has not advertised everything yet"})
	}
	return topology, left, nil
}

// await waits for peers that have not advertised everything.
func (s *teSpeaker) await(ctx context.Context) error {
	for !s.ready {
		n := s.speaker.Network(time.Duration(s.settings.Keep))
		s.ready = len(n.Waits) == 0 || time.Since(s.since) >= time.Duration(s.settings.Wait)
		if s.ready {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// why says what sessions and objects lack.
func (s *teSpeaker) why(ctx context.Context, left []te.LeftOut) string {
	peers, err := s.speaker.Peers(ctx)
	if err != nil {
		return ": " + err.Error()
	}
	var words []string
	for _, p := range peers {
		word := fmt.Sprintf("the session with %s is %s", p.Address, p.State)
		if p.Reason != "" && p.State != "established" {
			word += " (" + strings.TrimSpace(p.Reason) + ")"
		}
		words = append(words, word)
	}
	for _, l := range left[:min(len(left), 3)] {
		words = append(words, l.String())
	}
	return ": " + strings.Join(words, "; ")
}

// topologyOnce reads the topology by a speaker that ends then.
func topologyOnce(ctx context.Context, b netfile.BGP) (te.Topology, []te.LeftOut, error) {
	s, err := startSpeaker(ctx, b, false, slog.New(slog.DiscardHandler))
	if err != nil {
		return te.Topology{}, nil, err
	}
	defer s.stop()
	if err := s.speaker.Connect(); err != nil {
		return te.Topology{}, nil, err
	}
	return s.topology(ctx)
}
