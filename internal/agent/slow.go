package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
	"github.com/culvert-net/culvert/internal/upf"
)

// slowPath joins what the data path hands up to what handles it.
type slowPath struct {
	upf     *upf.UPF // nil: there are no sessions
	handler *slowpath.SlowPath
	close   func() error
}

func newSlowPath(dp dataPath, plane *upf.UPF, links func() *netdev.Snapshot, ask func(netdev.Key), log *slog.Logger) (*slowPath, error) {
	s := &slowPath{upf: plane}
	out := &sender{links: links, ask: ask, toUE: dp.InjectToUE}
	raw, err := slowpath.NewRawSender()
	switch {
	case err == nil:
		out.out, out.raw = raw, raw
	case errors.Is(err, unix.EPERM): // as a service it has no CAP_NET_RAW
		out.out = &dataplane.Transmitter{}
	default:
		return nil, err
	}
	s.close = out.out.Close
	s.handler = slowpath.New(slowpath.Options{
		Injector: dp, Sender: out, Logger: log,
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

func neighbourKey(links *netdev.Snapshot, n slowpath.Neighbour) (netdev.Key, bool) {
	l, ok := links.LinkByIndex(n.Ifindex)
	return netdev.Key{NextHop: n.Addr, Interface: l.Name}, ok
}

// run handles what comes until ctx ends, which is no error.
func (s *slowPath) run(ctx context.Context, dp dataPath) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.handler.Run(ctx) })
	group.Go(func() error {
		err := dp.Punts(ctx, s.handle)
		return ignoreCancel(err)
	})
	if err := errors.Join(group.Wait(), s.close()); err != nil {
		return fmt.Errorf("slow path: %w", err)
	}
	return nil
}

// handle gives a packet to whom it is for.
func (s *slowPath) handle(p dataplane.Punt) {
	switch {
	case p.Kind != dataplane.PuntBuffer && p.Kind != dataplane.PuntDuplicate && p.Kind != dataplane.PuntFlood:
		s.handler.Handle(packetOf(p))
	case s.upf == nil: // left in the ring by a daemon that was a user plane function
	case p.Kind == dataplane.PuntBuffer:
		s.upf.Buffer(sessionPacket(p))
	case p.Kind == dataplane.PuntFlood:
		s.upf.Flood(p.Link, p.Ifindex, p.Data)
	default:
		s.upf.Duplicate(sessionPacket(p))
	}
}

func sessionPacket(p dataplane.Punt) upf.Packet {
	return upf.Packet{Session: p.Session, Rule: p.Rule, Ifindex: p.Ifindex, L3: p.L3, Data: p.Data}
}

func packetOf(p dataplane.Punt) slowpath.Packet {
	return slowpath.Packet{
		Kind: slowpath.Kind(p.Kind), Ifindex: p.Ifindex, Info: p.Info, L3: p.L3,
		Type: p.Type, Code: p.Code, Data: p.Data,
		Table: p.Table, Session: p.Session, NextHop: slowpath.Neighbour{Ifindex: p.Egress, Addr: p.NextHop},
	}
}

func (s *slowPath) counters() map[string]uint64 {
	out := map[string]uint64{}
	for name, n := range s.handler.Counters.All() {
		out[name] = n
	}
	return out
}
