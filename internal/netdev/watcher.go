package netdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/logevent"
)

// Options are what a Watcher needs.
type Options struct {
	// Tables are the routing tables that the snapshots hold, besides main and
	// local.
	Tables []uint32
	// OnChange gets each new snapshot that differs from the one before, and always the
	// first one. Only one goroutine calls it at a time.
	OnChange func(*Snapshot)
	// AnyEthernet: see Snapshot.
	AnyEthernet bool
	// ProbeInterval is how often the kernel sees that neighbours which are kept alive
	// are in use. Default 5 seconds.
	ProbeInterval time.Duration
	Logger        *slog.Logger
}

// Watcher keeps a Snapshot current. A notification of the kernel only says that something
// changed; the Watcher then reads the whole list. Notifications can be lost (ENOBUFS),
// and some changes have none: IPv4 routes vanish without one when their link goes down.
// A list that is read as a whole is always right.
type Watcher struct {
	options Options
	log     *slog.Logger
	kernel  *kernel
	events  []subscription

	dirty   atomic.Uint32
	wake    chan struct{}
	current atomic.Pointer[Snapshot]

	mu     sync.Mutex
	tables map[uint32]bool

	keeper keeper
	close  sync.Once
}

// subscription is a socket for notifications, and the parts of a snapshot that they
// outdate. Each socket has its own message numbers.
type subscription struct {
	*nl.NetlinkSocket
	about func(*syscall.NetlinkMessage) uint32
}

// Parts of a snapshot that may be outdated.
const (
	dirtyLinks uint32 = 1 << iota
	dirtyAddresses
	dirtyRoutes
	dirtyNeighbours
	dirtyRules
	dirtyAll = dirtyLinks | dirtyAddresses | dirtyRoutes | dirtyNeighbours | dirtyRules
)

const (
	// coalesce is how long a burst of notifications is gathered.
	coalesce = 5 * time.Millisecond
	// settle is the time after which routes are read once more when a link or an
	// address has changed: the kernel announces the cause before it removes the
	// routes.
	settle = 100 * time.Millisecond
	// resync bounds how long anything can stay unnoticed.
	resync = time.Minute
	// busy and longest limit the share of time that reading takes: after a read that
	// took t, the next one waits for busy * t.
	busy    = 4
	longest = time.Second
)

// NewWatcher opens its sockets in the network namespace of the calling thread
// and stays there. Run must follow, or Close.
func NewWatcher(o Options) (*Watcher, error) {
	w := &Watcher{
		options: o, log: cmp.Or(o.Logger, slog.Default()), wake: make(chan struct{}, 1),
		keeper: keeper{changed: make(chan struct{}, 1), kept: map[neighbourKey]bool{}},
	}
	w.options.ProbeInterval = cmp.Or(o.ProbeInterval, 5*time.Second)
	w.setTables(o.Tables)
	var err error
	if w.kernel, err = openKernel(); err != nil {
		return nil, err
	}
	if err := w.subscribe(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Watcher) subscribe() error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return fmt.Errorf("subscribe to route notifications: %w", err)
	}
	w.events = append(w.events, subscription{s, w.aboutRoute})
	if s, err = nl.Subscribe(unix.NETLINK_GENERIC); err != nil {
		return fmt.Errorf("subscribe to device notifications: %w", err)
	}
	w.events = append(w.events, subscription{s, w.aboutDevice})
	for _, g := range w.kernel.netdev.Groups {
		if g.Name != "mgmt" {
			continue
		}
		if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g.ID)); err != nil {
			return fmt.Errorf("subscribe to device notifications: %w", err)
		}
	}
	return nil
}

// Close ends Run, and closes what NewWatcher opened.
func (w *Watcher) Close() {
	w.close.Do(func() {
		for _, s := range w.events {
			s.Close()
		}
		w.kernel.close()
	})
}

// Snapshot returns the newest snapshot, or nil before the first.
func (w *Watcher) Snapshot() *Snapshot { return w.current.Load() }

// SetTables changes which tables the snapshots hold, in addition to main and local.
func (w *Watcher) SetTables(tables []uint32) {
	if w.setTables(tables) {
		w.touch(dirtyRoutes)
	}
}

// setTables says whether the tables changed.
func (w *Watcher) setTables(tables []uint32) bool {
	m := map[uint32]bool{TableMain: true, TableLocal: true}
	for _, t := range tables {
		m[t] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := !maps.Equal(w.tables, m)
	w.tables = m
	return changed
}

// touch marks parts as outdated.
func (w *Watcher) touch(parts uint32) {
	w.dirty.Or(parts)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, which is no error. It closes the Watcher.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	failed := make(chan error, len(w.events))
	for _, s := range w.events {
		readers.Go(func() {
			if err := w.listen(ctx, s); err != nil {
				failed <- err
			}
		})
	}
	readers.Go(func() { w.keep(ctx) })
	defer func() {
		cancel()
		for _, s := range w.events {
			s.Close() // wakes the readers
		}
		readers.Wait()
		w.Close()
	}()
	w.touch(dirtyAll)
	return w.loop(ctx, failed)
}

func (w *Watcher) loop(ctx context.Context, failed <-chan error) error {
	probe := time.NewTicker(w.options.ProbeInterval)
	defer probe.Stop()
	again := time.NewTicker(resync)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-again.C:
			w.touch(dirtyAll)
		case <-probe.C:
			w.renew(func(*Neighbour) bool { return true })
		case <-w.wake:
			if !sleep(ctx, coalesce) {
				return nil
			}
			start := time.Now()
			if !w.refresh() {
				sleep(ctx, settle)
				continue
			}
			sleep(ctx, min(busy*time.Since(start), longest)-coalesce)
		}
	}
}

// sleep returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(max(d, 0)):
		return true
	}
}

// refresh reads the outdated parts, and hands out a new snapshot if it differs.
func (w *Watcher) refresh() bool {
	parts := w.dirty.Swap(0)
	old := w.current.Load()
	s, err := w.read(old, parts)
	if err != nil {
		w.log.Warn("cannot read the kernel's network state; will try again", "event", logevent.KernelReadFailed, "error", err)
		w.touch(parts)
		return false
	}
	if parts&(dirtyLinks|dirtyAddresses) != 0 && old != nil {
		time.AfterFunc(settle, func() { w.touch(dirtyRoutes | dirtyNeighbours) })
	}
	w.current.Store(s)
	if old == nil || !s.same(old) {
		w.solicit(s)
		if w.options.OnChange != nil {
			w.options.OnChange(s)
		}
	}
	return true
}

func (w *Watcher) read(old *Snapshot, parts uint32) (*Snapshot, error) {
	s := &Snapshot{AnyEthernet: w.options.AnyEthernet, pods: &w.kernel.pods}
	if old != nil {
		s.Links, s.Addresses, s.Routes = old.Links, old.Addresses, old.Routes
		s.Neighbours, s.Rules = old.Neighbours, old.Rules
	}
	w.mu.Lock()
	tables := w.tables
	w.mu.Unlock()
	for _, part := range []struct {
		dirty uint32
		read  func() error
	}{
		{dirtyLinks, func() (err error) { s.Links, err = w.kernel.links(); return err }},
		{dirtyAddresses, func() (err error) { s.Addresses, err = w.kernel.addresses(); return err }},
		{dirtyRoutes, func() (err error) { s.Routes, err = w.kernel.routes(tables); return err }},
		{dirtyNeighbours, func() (err error) { s.Neighbours, err = w.kernel.neighbours(); return err }},
		{dirtyRules, func() (err error) { s.Rules, err = w.kernel.rules(); return err }},
	} {
		if parts&part.dirty == 0 {
			continue
		}
		if err := part.read(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// listen marks the parts that notifications are about, until the socket is closed.
func (w *Watcher) listen(ctx context.Context, s subscription) error {
	for {
		msgs, from, err := s.Receive()
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS):
			w.touch(dirtyAll)
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return fmt.Errorf("receive netlink notifications: %w", err)
		case from.Pid != nl.PidKernel:
			continue
		}
		var parts uint32
		for i := range msgs {
			parts |= s.about(&msgs[i])
		}
		if parts != 0 {
			w.touch(parts)
		}
	}
}

// aboutRoute returns the parts that a NETLINK_ROUTE notification outdates. A link that
// changes takes addresses, routes and neighbours with it.
func (w *Watcher) aboutRoute(m *syscall.NetlinkMessage) uint32 {
	if w.kernel.pods.takes(m) {
		return 0
	}
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return dirtyLinks | dirtyAddresses | dirtyRoutes | dirtyNeighbours
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return dirtyAddresses | dirtyRoutes
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		return dirtyRoutes
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return dirtyNeighbours
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return dirtyRules
	}
	return 0
}
