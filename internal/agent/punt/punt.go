package punt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/pathmtu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
	"github.com/culvert-net/culvert/internal/upf"
)

// DataPath is what this package calls of the data path.
type DataPath struct {
	Injector   slowpath.Injector
	InjectToUE func(session uint64, packet []byte) error
	// Steered says whether the node steers packets to an address; InjectSteered sends one so.
	Steered       func(netip.Addr) bool
	InjectSteered func(packet []byte) error
	// FindPaths and SetPathMTU are those of pathmtu.DataPath.
	FindPaths  func(match func(*dataplane.Path) bool) []dataplane.Path
	SetPathMTU func(mtu int, ends ...netip.Addr) error
	Read       func(context.Context, func(event.Punt)) error // calls the function for each packet
}

// Handler gives the packets of the data path to whom they are for.
type Handler struct {
	dp      DataPath
	upf     *upf.UPF // nil: there are no sessions
	handler *slowpath.SlowPath
	paths   *pathmtu.Learner
	out     transmitter
}

// Network is what the packets need of the node's network.
type Network struct {
	Links   func() *netdev.Snapshot // the last
	Ask     func(netdev.Key)        // has a neighbour resolved
	Resolve func()                  // has the adjacencies resolved that are new
}

// New opens what the node's own packets are sent by. plane is nil on a node without sessions.
func New(dp DataPath, plane *upf.UPF, network Network, log *slog.Logger) (*Handler, error) {
	links, ask := network.Links, network.Ask
	s := &Handler{dp: dp, upf: plane}
	s.paths = pathmtu.New(pathmtu.DataPath{Find: dp.FindPaths, Set: dp.SetPathMTU, Resolve: network.Resolve}, log, nil)
	out := &sender{links: links, ask: ask, toUE: dp.InjectToUE, steered: dp.Steered, steer: dp.InjectSteered}
	raw, err := slowpath.NewRawSender()
	switch {
	case err == nil:
		out.out, out.raw = raw, raw
	case errors.Is(err, unix.EPERM): // as a service it has no CAP_NET_RAW
		out.out = &xdp.Transmitter{}
	default:
		return nil, err
	}
	s.out = out.out
	s.handler = slowpath.New(slowpath.Options{
		Injector: dp.Injector, Sender: out, Logger: log,
		Resolve: func(n slowpath.Neighbour) {
			if key, ok := neighbourKey(links(), n); ok {
				ask(key)
			}
		},
		Resolved: func(n slowpath.Neighbour) bool {
			now := links()
			key, ok := neighbourKey(now, n)
			if !ok {
				return false
			}
			nh, err := netdev.Resolve(now, key)
			return err == nil && !nh.Pass
		},
	})
	return s, nil
}

// neighbourKey is a neighbour on its interface, or, without one, what the main table leads to.
func neighbourKey(links *netdev.Snapshot, n slowpath.Neighbour) (netdev.Key, bool) {
	if n.Ifindex == 0 {
		return netdev.Key{NextHop: n.Addr}, true
	}
	l, ok := links.LinkByIndex(n.Ifindex)
	return netdev.Key{NextHop: n.Addr, Interface: l.Name}, ok
}

// Run handles what comes until ctx ends, which is no error.
func (s *Handler) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.handler.Run(ctx) })
	group.Go(func() error { return s.paths.Run(ctx) })
	group.Go(func() error {
		if err := s.dp.Read(ctx, s.handle); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	if err := errors.Join(group.Wait(), s.out.Close()); err != nil {
		return fmt.Errorf("slow path: %w", err)
	}
	return nil
}

// ofSessions are the kinds of packets that the UPF takes.
var ofSessions = []event.PuntKind{event.PuntBuffer, event.PuntDuplicate, event.PuntFlood, event.PuntSend}

// handle gives a packet to whom it is for.
func (s *Handler) handle(p event.Punt) {
	packet := upf.Packet{Session: p.Session, Rule: p.Rule, Ifindex: p.Ifindex, L3: p.L3, Entry: p.Entry, Data: p.Data}
	switch {
	case p.Kind == event.PuntPathMTU:
		s.paths.Handle(p.Data[min(p.L3, len(p.Data)):], p.Info)
	case !slices.Contains(ofSessions, p.Kind):
		s.handler.Handle(slowpath.Packet{
			Kind: slowpath.Kind(p.Kind), Ifindex: p.Ifindex, Info: p.Info, L3: p.L3,
			Type: p.Type, Code: p.Code, Data: p.Data,
			Table: p.Table, Rewritten: p.Rewritten, Session: p.Session, NextHop: slowpath.Neighbour{Ifindex: p.Egress, Addr: p.NextHop},
		})
	case s.upf == nil: // left in the ring by a daemon that was a user plane function
	case p.Kind == event.PuntBuffer:
		s.upf.Buffer(packet)
	case p.Kind == event.PuntFlood:
		s.upf.Flood(p.Link, p.Ifindex, p.Data)
	case p.Kind == event.PuntSend:
		upf.Send(s.upf, packet)
	default:
		s.upf.Duplicate(packet)
	}
}

// Counters are events of the slow path, and of what it learns.
func (s *Handler) Counters() map[string]uint64 {
	all := maps.Collect(s.handler.Counters.All())
	maps.Insert(all, s.paths.Counters.All())
	return all
}

// PathMTU returns what is known of a path that is not the links'; the zero MTU: nothing.
func (s *Handler) PathMTU(ends ...netip.Addr) pathmtu.MTU { return s.paths.Of(ends...) }

// Retry sends what waits for a neighbour that the last links may have.
func (s *Handler) Retry() { s.handler.Retry() }
