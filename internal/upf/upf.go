package upf

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/buffer"
	"github.com/culvert-net/culvert/internal/upf/lan"
	"github.com/culvert-net/culvert/internal/upf/path"
	"github.com/culvert-net/culvert/internal/upf/pool"
	"github.com/culvert-net/culvert/internal/upf/stats"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/wheel"
)

// Options are set when the UPF starts. Zero values stand for the defaults.
type Options struct {
	DataPath DataPath
	Journal  string // directory where sessions survive the process
	Logger   *slog.Logger
	Sessions int              // limit: 1,000,000
	Now      func() time.Time // the clock: time.Now
}

// UPF is the user plane of an N4 server. Its methods may be called from any
// goroutine.
type UPF struct {
	o       Options
	stats   stats.Counters
	store   *store.Store // sessions
	ues     *pool.Pools  // UE addresses
	install *installer   // sessions into the data path
	reports *reporter    // usage and timers of sessions to SMFs
	kept    *keeper      // packets of idle UEs
	paths   *path.Paths  // GTP-U peers
	behind  behind       // networks behind UEs
	links   *lan.Links   // floods between Ethernet sessions
	hosts   *lan.Hosts   // behind Ethernet sessions

	restored  bool // Restore was called: only whoever configures sets and reads it
	restoring restorer
}

var _ pfcp.UPF = (*UPF)(nil)

// New reads the sessions that an earlier process left in the journal. Restore puts
// them into the data path.
func New(o Options) (*UPF, error) {
	o.Sessions, o.Logger = cmp.Or(o.Sessions, 1_000_000), cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	u := &UPF{o: o, ues: pool.New(nil), hosts: &lan.Hosts{}}
	u.restoring.u, u.restoring.done = u, make(chan struct{})
	u.restoring.end = sync.OnceFunc(func() { close(u.restoring.done) })
	var err error
	u.store, err = store.Open(store.Options{Dir: o.Journal, Max: o.Sessions, Log: o.Logger, Stats: &u.stats})
	if err != nil {
		return nil, err
	}
	if u.store.Len() == 0 {
		u.restoring.end()
	}
	u.links = lan.NewLinks(lan.Options{Log: o.Logger, Now: o.Now, Stats: &u.stats,
		Inject: func(seid uint64, frame []byte, ifindex int) error {
			return o.DataPath.InjectFor(seid, frame, ifindex, false)
		}})
	u.install = &installer{dp: o.DataPath, store: u.store, links: u.links}
	u.install.config.Store(newSettings(Config{}, o.Logger))
	u.reports = &reporter{install: u.install, store: u.store, hosts: u.hosts, stats: &u.stats, log: o.Logger, now: o.Now}
	u.reports.wheel.Start(o.Now())
	u.kept = &keeper{crowded: map[*store.Entry]bool{}, install: u.install, reports: u.reports, log: o.Logger, now: o.Now,
		pool: buffer.Pool{Stats: &u.stats, Limits: func() buffer.Limits { return u.install.config.Load().bufferLimits() }}}
	peering := &peering{dp: o.DataPath, store: u.store, reports: u.reports, log: o.Logger, now: o.Now}
	u.paths = path.New(path.Options{
		Log: o.Logger, Now: o.Now, Stats: &u.stats, Interval: func() time.Duration { return u.install.config.Load().EchoInterval },
		Failed: peering.pathFailed, Recovered: peering.pathRecovered, GPDU: peering.fromSMF, EndMarker: peering.endMarker,
		Echo:       func(r path.Received) bool { return o.DataPath.IsSilent(r.In) },
		Indication: func(to session.PeerTEID) { u.reports.errorIndicated(u.paths.Sessions(to), to) },
	})
	peering.paths = u.paths
	return u, nil
}

// Start says who gets reports. Nobody gets them before.
func (u *UPF) Start(r pfcp.Reporter) { u.reports.to.Store(&r) }

// Run does what is to be done in the background until ctx ends, which is no error.
// Sessions stay in the journal and in the data path.
func (u *UPF) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	restored := func(then func() error) {
		group.Go(func() error {
			select {
			case <-u.restoring.done:
				return then()
			case <-ctx.Done():
				return nil
			}
		})
	}
	restored(func() error { // until then the data path cannot say whose they are: they wait there
		return u.o.DataPath.SessionEvents(ctx, func(e datapath.Event) { u.reports.check(u.store.Entry(e.Session)) })
	})
	every := func(d time.Duration, do func()) {
		group.Go(func() error {
			ticker := time.NewTicker(d)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-ticker.C:
					do()
				}
			}
		})
	}
	every(wheel.Tick, func() {
		for _, e := range u.reports.wheel.Take(u.o.Now()) {
			u.reports.check(e)
		}
		u.kept.reopen()
	})
	if s := u.install.share; s != nil && s.on {
		restored(func() error { return s.run(ctx) })
		group.Go(func() error { return u.o.DataPath.EndMarkers(ctx, s.endMarker) })
	}
	every(time.Second, u.store.RenewGrown)
	every(time.Second, u.reports.lookForHosts)
	group.Go(func() error { return u.links.Run(ctx) })
	group.Go(func() error {
		return u.paths.Run(ctx, func() []netip.Addr { return u.install.config.Load().Addresses })
	})
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// Close closes the journal. No method may be called afterwards.
func (u *UPF) Close() error { return u.store.Close() }

// GTPUAddresses implements pfcp.UPF. It returns the first address of each family,
// for every interface.
func (u *UPF) GTPUAddresses(session.Interface, string) (v4, v6 netip.Addr) {
	for _, a := range u.install.config.Load().Addresses {
		switch {
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !v6.IsValid():
			v6 = a
		}
	}
	return v4, v6
}

// SaveState implements pfcp.UPF.
func (u *UPF) SaveState(key string, value []byte) error { return u.store.SaveState(key, value) }

// LoadState implements pfcp.UPF.
func (u *UPF) LoadState() (map[string][]byte, error) { return u.store.State(), nil }

// Features implements pfcp.UPF.
func (u *UPF) Features() session.Features {
	return session.Features{
		Ethernet:    true,
		UEAddresses: u.ues.Any(), FramedRouting: true, EndMarkers: true, NotificationDelay: true,
		NumberOfPackets: true, QuotaValidity: true, QuotaAction: true, Duplication: true, PacketRate: true, PathReports: true,
	}
}
