package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
)

// retryInterval is how often what failed is tried again, if nothing in the
// network changes meanwhile.
const retryInterval = 5 * time.Second

// Run takes the data path over, or loads it, brings it to the desired state and
// keeps it there until ctx ends, which is no error. Links, programs and maps
// stay pinned: packets are forwarded on by what the tables last held.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.store, err = openStore(a.options.StatePath, a.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.saveTold(), a.store.close()) }()
	if err := a.openPods(); err != nil {
		return err
	}
	defer a.pods.close()
	d, err := a.initial()
	if err != nil {
		return err
	}
	if err := a.open(d.process); err != nil {
		return err
	}
	defer func() {
		a.pods.close()
		err = errors.Join(err, a.upf.close(), a.end())
	}()

	snapshots := make(chan *netdev.Snapshot, 1)
	a.watch, err = a.openWatcher(netdev.Options{
		Tables:      compile(d, &netdev.Snapshot{}).routeTables(),
		OnChange:    func(s *netdev.Snapshot) { newest(snapshots, s) },
		AnyEthernet: allGeneric(d.config()),
		Logger:      a.log,
	})
	if err != nil {
		return fmt.Errorf("network state: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watch.Run(ctx) })
	group.Go(func() error { return a.follow(ctx, group, d, snapshots) })
	return ignoreCancel(group.Wait())
}

// open takes the data path over while it reads the sessions of an earlier
// daemon: neither needs the other, and SMFs wait for both.
func (a *Agent) open(p process) error {
	if p.Overlay.IsSet() { // programs that are loaded without it never ask it
		if err := netdev.LoadConntrack(); err != nil {
			a.log.Warn("answers of Services may miss their way: load the module nf_conntrack before culvert starts", "error", err)
		}
	}
	var both errgroup.Group
	both.Go(func() (err error) {
		a.dp, err = a.openDataPath(dataplane.Options{
			PinPath: a.options.PinPath, Limits: dataplane.Limits(p.Limits), Logger: a.log,
		})
		if err != nil {
			return fmt.Errorf("data path: %w", err)
		}
		return nil
	})
	both.Go(func() (err error) {
		a.upf, err = newUserPlane(a, p)
		return err
	})
	err := both.Wait()
	switch {
	case err == nil:
		a.upf.use(a.dp)
	case a.dp != nil:
		err = errors.Join(err, a.end())
	default:
		err = errors.Join(err, a.upf.close())
	}
	return err
}

// newest replaces a snapshot that nobody has taken yet. There is one sender.
func newest(c chan *netdev.Snapshot, s *netdev.Snapshot) {
	select {
	case <-c:
	default:
	}
	c <- s
}

// follow waits for the first snapshot, takes over, and then goes along with
// what changes in the network. Until the kernel has said what there is, nothing
// is touched: what the tables hold may be old, but nothing in them is empty.
func (a *Agent) follow(ctx context.Context, group *errgroup.Group, d *desired, snapshots <-chan *netdev.Snapshot) error {
	select {
	case <-ctx.Done():
		return nil
	case s := <-snapshots:
		if err := a.takeOver(d, s); err != nil {
			return err
		}
	}
	group.Go(func() error { return a.slow.run(ctx, a.dp) })
	if err := a.upf.start(ctx, group); err != nil {
		return err
	}
	if err := a.adjustPlanes(ctx); err != nil {
		a.stopPlanes()
		return err
	}
	close(a.ready)
	group.Go(func() error { return a.runPlanes(ctx) })
	group.Go(func() error { return a.listen(ctx) })
	group.Go(func() error { return a.keepTold(ctx) })
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
			a.update(s)
			a.slow.handler.Retry()
		case <-retry.C:
			a.retry()
			a.pods.retry()
			a.pods.retell()
		case <-a.upf.touched():
			a.syncNew()
		}
	}
}

// initial is the desired state at the start: of the file, or of what was
// applied in its place if the file is still the same, and of the API.
func (a *Agent) initial() (*desired, error) {
	api, others, replaced, err := a.store.load()
	if err != nil {
		return nil, err
	}
	c := completed(a.options.Config)
	if replaced != nil {
		sum, err := fileSum(a.options.ConfigPath)
		if err != nil {
			return nil, err
		}
		if sum == replaced.File {
			a.log.Info("starting from the configuration that was applied last; to go back to the file, change it or reload", "file", a.options.ConfigPath)
			c = completed(&replaced.Config)
		} else {
			a.log.Warn("the configuration file has changed: what was applied in its place is dropped", "file", a.options.ConfigPath)
			replaced = nil
		}
	}
	before := &desired{api: api, told: others}
	d := before.withFile(c)
	if _, err := d.index(); err != nil {
		return nil, err
	}
	whole := d.asked()
	whole.SetDefaults()
	if err := whole.Validate(); err != nil {
		return nil, fmt.Errorf("%w: the configuration and what was added through the API do not fit together: %w", ErrInvalid, err)
	}
	a.replaced = replaced
	return d, a.store.save(before, d, replaced)
}

// takeOver brings the tables to the desired state. A data path that was pinned
// goes on forwarding by them all the time: everything is put, which changes
// nothing where nothing changed; interfaces are attached once that is there;
// and only then what was not put is swept out.
func (a *Agent) takeOver(d *desired, links *netdev.Snapshot) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	slow, err := newSlowPath(a.dp, a.upf.plane(), a.snapshot, a.ask, a.log)
	if err != nil {
		return fmt.Errorf("slow path: %w", err)
	}
	if m := d.asMember(links); m.completed().Validate() == nil {
		d = m
	} else {
		d = m.alone() // others will tell again what they still say
	}
	a.slow, a.links, a.desired = slow, links, d
	next := compile(d, links)
	ports := next.ports
	next.ports = map[string]port{}
	if err := run(withoutUndo(a.plan(newTables(), next))); err != nil {
		return err
	}
	a.tables = next
	a.upf.restore()
	a.syncNetwork()
	whole := *next
	whole.ports = maps.Clone(ports)
	a.converge(&whole)
	a.syncOverlay()
	if err := a.restorePods(); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if err := a.dp.Sweep(); err != nil {
		return fmt.Errorf("remove what is left of the last run: %w", err)
	}
	if err := a.detachOthers(ports); err != nil {
		return err
	}
	a.reportMissing()
	a.setLogLevel()
	a.log.Info("the data path is in the desired state", "build", a.dp.Build(), "resources", len(d.file)+len(d.api), "interfaces", len(a.modes))
	return nil
}

// detachOthers takes the program off interfaces that the configuration no
// longer has.
func (a *Agent) detachOthers(ports map[string]port) error {
	keep := map[int]bool{}
	for _, p := range ports {
		keep[p.ifindex] = true
	}
	for ifindex := range a.dp.Attached() {
		if keep[ifindex] {
			continue
		}
		if err := errors.Join(a.dp.Detach(ifindex), a.dp.DeletePort(ifindex)); err != nil {
			return fmt.Errorf("leave an interface that is not in the configuration: %w", err)
		}
	}
	return nil
}

// withoutUndo: at the start there is nothing to go back to. What was put is
// what the last run had, or what this one wants.
func withoutUndo(steps []step) []step {
	for i := range steps {
		steps[i].undo = nil
	}
	return steps
}

// snapshot is the network as it was last seen.
func (a *Agent) snapshot() *netdev.Snapshot {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.links
}

// update goes along with what changed in the network.
func (a *Agent) update(links *netdev.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.links = links
	if !a.rejoin() {
		a.converge(recompile(a.desired, a.desired.completed(), links, a.tables, nil))
	}
	a.syncNetwork()
	a.syncOverlay()
}

// retry tries again what failed.
func (a *Agent) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rejoin()
	if len(a.failures) > 0 {
		a.converge(compile(a.desired, a.links))
	}
	if a.network.failed > 0 {
		a.syncNetwork()
		a.syncOverlay()
	}
}

// converge goes as far towards the tables as it can. What fails is reported,
// and tried again later: it must not keep the rest from being right.
func (a *Agent) converge(to *tables) {
	failures := map[Ref]error{}
	a.lowerMTU(a.desired, to)
	for _, s := range a.plan(a.tables, to) {
		if err := s.do(); err != nil {
			failures[s.ref] = err
			if before := a.failures[s.ref]; before == nil || before.Error() != err.Error() {
				a.log.Error("cannot bring the data path to the desired state; will try again", "resource", s.ref.String(), "error", err)
			}
		}
	}
	for ref := range failures {
		to.without(ref, a.tables)
	}
	for ref := range a.failures {
		if failures[ref] == nil {
			a.log.Info("recovered", "resource", ref.String())
		}
	}
	a.logPaths(a.tables, to)
	a.failures, a.tables = failures, to
	a.forgetModes()
	a.touchPlanes() // who told the paths hears which of them are active
}

// without is for what could not be put: the next plan puts it again. An interface
// and steering are as if they were not there; a policy is what it was.
func (t *tables) without(ref Ref, before *tables) {
	switch ref.Kind {
	case KindInterface:
		delete(t.ports, ref.Key)
	case KindSteering:
		delete(t.steering, ref.Key)
	case KindPolicy:
		if was, there := before.policies[ref.Key]; there {
			t.policies[ref.Key], t.verdicts[ref.Key] = was, before.verdicts[ref.Key]
		}
	}
}

func (a *Agent) reportMissing() {
	for r := range a.desired.all() {
		for _, name := range interfacesOf(r) {
			if _, there := a.links.Link(name); !there {
				a.log.Warn("there is no such interface yet: waiting for it", "interface", name, "resource", r.Ref.String())
			}
		}
	}
}

func allGeneric(c *config.Config) bool {
	for _, i := range c.Interfaces {
		if i.Mode != "generic" {
			return false
		}
	}
	return len(c.Interfaces) > 0
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
