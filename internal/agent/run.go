package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf"
)

// retryInterval is how often what failed is tried again, if nothing in the
// network changes meanwhile.
const retryInterval = 5 * time.Second

// Run takes the data path over, or loads it, brings it to the desired state and
// keeps it there until ctx ends, which is no error. Links, programs and maps
// stay pinned: packets are forwarded on by what the tables last held.
func (a *Agent) Run(ctx context.Context) (err error) {
	c := a.core
	if c.store, err = store.Open(a.options.StatePath, a.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.store.Flush(), c.store.Close()) }()
	host, err := a.open.host()
	if err != nil {
		return err
	}
	if c.pods, err = pods.Open(c.store.DB(), host, a.log); err != nil {
		return err
	}
	defer c.pods.Close()
	goal, err := a.firstGoal()
	if err != nil {
		return err
	}
	if err := a.openDataPath(goal); err != nil {
		return err
	}
	defer func() {
		c.pods.Close()
		err = errors.Join(err, c.upf.close(), a.end())
	}()

	snapshots := make(chan *netdev.Snapshot, 1)
	file := goal.Config(plan.Scope{})
	c.watch, err = a.open.watcher(netdev.Options{
		Tables: plan.Compile(goal, file, &netdev.Snapshot{}, nil, plan.Scope{}).RouteTables(),
		OnChange: func(s *netdev.Snapshot) {
			select {
			case <-snapshots: // which nobody has taken yet
			default:
			}
			snapshots <- s
		},
		AnyEthernet: len(file.Interfaces) > 0 && !slices.ContainsFunc(file.Interfaces, func(i config.Interface) bool { return i.Mode != "generic" }),
		Logger:      a.log,
	})
	if err != nil {
		return fmt.Errorf("network state: %w", err)
	}
	c.spread = &spreader{dp: c.dp.Spread, cards: c.dp.SpreadCards, times: cpuClocks, log: a.log}
	c.dp.ClassifyPods = c.pods.SetClasses
	c.pods.SetLabels(a.sources.PodLabels)
	a.policing.begin(a.sources)
	c.probing, c.roundTrips = newProbing(a.log, c.turn), roundTrips{}
	defer c.probing.stop()
	c.writer = apply.NewWriter(&c.dp.DataPath, c.upf.upf, a.log)
	c.network = apply.NewNetwork(&c.dp.DataPath, c.watch.KeepAlive, a.log)
	c.overlay = apply.NewOverlay(host, &c.dp.DataPath, c.pods, a.log)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watch.Run(ctx) })
	group.Go(func() error { return a.follow(ctx, group, goal, snapshots) })
	return ignoreCancel(group.Wait())
}

// openDataPath takes the data path over while it reads the sessions of an earlier
// daemon: neither needs the other, and SMFs wait for both.
func (a *Agent) openDataPath(goal *plan.Goal) error {
	p := goal.Desired.Process
	if p.Overlay.IsSet() { // programs that are loaded without it never ask it
		if err := netdev.LoadConntrack(); err != nil {
			a.log.Warn("answers of Services may be lost: load the module nf_conntrack before culvert starts", "event", logevent.HostConntrackMissing, "error", err)
		}
	}
	c := a.core
	closed, err := closedPorts(goal.Config(plan.Scope{}))
	if err != nil {
		return err
	}
	var both errgroup.Group
	both.Go(func() (err error) {
		c.dp, err = a.open.dataPath(dataplane.Options{
			PinPath: a.options.PinPath, Limits: settings.Limits(p.Limits), N4Places: placesOf(&p), Closed: closed, Logger: a.log,
		}, c.store.DB())
		if err != nil {
			return fmt.Errorf("data path: %w", err)
		}
		return nil
	})
	both.Go(func() (err error) {
		c.upf, err = newUserPlane(a, goal)
		return err
	})
	err = both.Wait()
	if full := sessionsFit(c.upf.upf, p.Limits.Sessions); full != nil {
		err = full
	}
	switch {
	case err == nil:
		c.upf.path.DataPath = c.dp.Sessions
		if c.upf.upf != nil {
			c.upf.counts = c.dp.Counters.Signalling
			c.upf.signalling = upf.Share(c.upf.upf, c.dp.N4, p.UPF.N4Fast == config.On)
		}
	case c.dp != nil:
		err = errors.Join(err, a.end(), c.upf.close())
	default:
		err = errors.Join(err, c.upf.close())
	}
	return err
}

// sessionsFit refuses a limit that is too small for the sessions of an earlier daemon, while
// packets still meet the former tables.
func sessionsFit(u *upf.UPF, limit uint32) error {
	if u == nil || u.Len() <= int(limit) {
		return nil
	}
	return fmt.Errorf("limits.sessions is %d, and there are %d sessions: set it to at least %d, or release sessions while it is as it was", limit, u.Len(), u.Len())
}

// placesOf is how many places of SEIDs the data path knows: twice the sessions, as they
// are taken in turn.
func placesOf(p *desired.Process) uint32 {
	if !p.UPF.IsSet() || p.UPF.N4Fast != config.On {
		return 0
	}
	return min(2*p.Limits.Sessions, session.Places)
}

// end closes the data path once nobody uses it any more.
func (a *Agent) end() error {
	c := a.core
	c.mu.Lock()
	close(c.ending) // which ends a trace, too
	c.mu.Unlock()
	a.tracing.Lock()
	defer a.tracing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dp.Close()
}

// follow waits for the first snapshot, takes over, and then goes along with
// what changes in the network. Until the kernel has said what there is, nothing
// is touched: what the tables hold may be old, but nothing in them is empty.
func (a *Agent) follow(ctx context.Context, group *errgroup.Group, goal *plan.Goal, snapshots <-chan *netdev.Snapshot) (err error) {
	c := a.core
	lacks := needs{core: c, proc: "/proc"}
	select {
	case <-ctx.Done():
		return nil
	case s := <-snapshots:
		if a.punts, err = newPunts(c); err != nil {
			return fmt.Errorf("slow path: %w", err)
		}
		if err := takeOver(ctx, a.core, group, goal, s); err != nil {
			return err
		}
		lacks.look()
	}
	group.Go(func() error { return a.punts.Run(ctx) })
	if err := adjustSources(ctx, a); err != nil {
		a.sources.Stop()
		return err
	}
	group.Go(func() error {
		a.policing.keeper.Run(ctx)
		return nil
	})
	a.traffic.flows.source = a.sources
	group.Go(func() error {
		a.traffic.flows.run(ctx)
		return nil
	})
	close(c.ready)
	group.Go(func() error { return a.runSources(ctx) })
	group.Go(func() error { return c.listen(ctx) })
	group.Go(func() error { return c.store.Keep(ctx) })
	group.Go(func() error { return c.spread.run(ctx) })
	if a.options.OnReady != nil {
		a.options.OnReady()
	}
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-snapshots:
			c.update(s)
			a.punts.Retry()
		case <-retry.C:
			c.retry()
			lacks.look()
			c.pods.Retry()
			c.pods.UpdateMTU()
		case <-c.upf.path.put:
			time.Sleep(syncPause) // for all sessions that are put in the meantime
			c.mu.Lock()
			if c.isReady() == nil {
				c.network.SyncHops()
			}
			c.mu.Unlock()
		}
	}
}

// takeOver brings the data path to the first goal. SMFs are answered while the sessions of an
// earlier daemon are being restored, unless packets meet tables of another layout meanwhile:
// what SMFs change would not hold for them.
func takeOver(ctx context.Context, c *core, group *errgroup.Group, goal *plan.Goal, links *netdev.Snapshot) error {
	all, err := c.begin(goal, links)
	if err != nil {
		return err
	}
	start := func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.upf.start(ctx, group, goal, c.n4Ports())
	}
	early := !c.dp.Renewing()
	if early {
		if err := start(); err != nil {
			return err
		}
	}
	c.upf.collect()
	if c.upf.upf != nil {
		c.upf.upf.Restore() // before what was not put is swept
	}
	if err := c.complete(all); err != nil || early {
		return err
	}
	return start()
}

// newPunts has packets handled by the links as they are then.
func newPunts(c *core) (*punt.Handler, error) {
	links := func() *netdev.Snapshot {
		c.mu.RLock()
		defer c.mu.RUnlock()
		return c.links
	}
	ask := func(key netdev.Key) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.network.Ask(key)
	}
	resolve := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.network.SyncHops()
	}
	return punt.New(c.dp.Punts, c.upf.upf, punt.Network{Links: links, Ask: ask, Resolve: resolve}, c.log)
}

// firstGoal is of the file, or of what was applied in its place if the file is
// still the same, and of the API.
func (a *Agent) firstGoal() (*plan.Goal, error) {
	api, others, replaced, err := a.core.store.Load()
	if err != nil {
		return nil, err
	}
	c := desired.Completed(a.options.Config)
	if replaced != nil {
		sum, err := fileSum(a.options.ConfigPath)
		if err != nil {
			return nil, err
		}
		if sum == replaced.File {
			a.log.Info("starting from the configuration that was applied last; to go back to the file, change it or reload", "event", logevent.ConfigRestored, "file", a.options.ConfigPath)
			c = desired.Completed(&replaced.Config)
		} else {
			a.log.Warn("the configuration file has changed: what was applied in its place is dropped", "event", logevent.ConfigSuperseded, "file", a.options.ConfigPath)
			replaced = nil
		}
	}
	goal := (&plan.Goal{Desired: desired.State{API: api}, Observed: others}).WithFile(c)
	if _, err := desired.Index(append(goal.Desired.File[:len(goal.Desired.File):len(goal.Desired.File)], goal.Desired.API...)); err != nil {
		return nil, err
	}
	if err := goal.Config(plan.Scope{}).Validate(); err != nil {
		return nil, fmt.Errorf("%w: the configuration and what was added through the API do not fit together: %w", desired.ErrInvalid, err)
	}
	a.core.replaced = replaced
	return goal, a.core.store.Save(api, goal.Desired.API, goal.Observed, replaced)
}

// fileSum is the SHA-256 of a file; of none it is empty.
func fileSum(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
