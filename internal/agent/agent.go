package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/pfcp"
)

// Where things are unless Options say otherwise.
const (
	DefaultStatePath = "/var/lib/culvert/state.db"
	DefaultPinPath   = "/sys/fs/bpf/culvert"
)

// Options are what a daemon is started with.
type Options struct {
	// Config is what the file at ConfigPath says: read from there unless set.
	Config     *config.Config
	ConfigPath string
	StatePath  string // DefaultStatePath unless set
	PinPath    string // DefaultPinPath unless set
	Version    string // of the program
	Logger     *slog.Logger
	// LogLevel, if set, follows log.level of what is applied.
	LogLevel *slog.LevelVar
	// OnReady is called once, when every packet meets the tables of the
	// desired state.
	OnReady func()
}

// Agent keeps the data path in the desired state. Its methods may be called
// from any goroutine, while Run runs.
type Agent struct {
	options Options
	log     *slog.Logger
	started time.Time
	ready   chan struct{}
	ending  chan struct{} // closed when Run ends: nothing may use the data path then

	openDataPath func(dataplane.Options) (dataPath, error)
	openWatcher  func(netdev.Options) (watcher, error)
	openServer   func(pfcp.Config, pfcp.UPF) (*pfcp.Server, error)
	openHost     func() (clusterHost, error)

	// mu keeps changes apart from each other and from what reads them.
	mu       sync.RWMutex
	dp       dataPath
	watch    watcher
	store    *store
	desired  *desired
	replaced *applied // the configuration that holds in place of the file's
	tables   *tables  // what the data path holds
	links    *netdev.Snapshot
	network  network
	modes    map[string]dataplane.Mode // of attached interfaces, by name
	failures map[Ref]error             // what could not be put, to be tried again

	slow    *slowPath
	upf     *userPlane // nil: the node is no user plane function
	planes  planes
	inbox   *inbox // what others tell
	unsaved *unsaved
	host    clusterHost
	overlay overlayState
	pods    *pods
	tracing sync.Mutex
}

var _ Service = (*Agent)(nil)

// New prepares a daemon; it touches nothing before Run.
func New(o Options) (*Agent, error) {
	o.StatePath = cmp.Or(o.StatePath, DefaultStatePath)
	o.PinPath = cmp.Or(o.PinPath, DefaultPinPath)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Config == nil {
		c, err := config.Load(o.ConfigPath)
		if err != nil {
			return nil, err
		}
		o.Config = c
	}
	return &Agent{
		options:      o,
		log:          o.Logger,
		started:      time.Now(),
		ready:        make(chan struct{}),
		ending:       make(chan struct{}),
		openDataPath: openDataPath,
		openWatcher:  openWatcher,
		openServer:   pfcp.New,
		openHost:     openHost,
		inbox:        newInbox(),
		unsaved:      newUnsaved(),
		planes:       planes{changed: make(chan struct{}, 1)},
		modes:        map[string]dataplane.Mode{},
		failures:     map[Ref]error{},
	}, nil
}

func openDataPath(o dataplane.Options) (dataPath, error) {
	dp, err := dataplane.Open(o)
	if err != nil {
		return nil, err
	}
	return dp, nil
}

func openWatcher(o netdev.Options) (watcher, error) {
	w, err := netdev.NewWatcher(o)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Ready is closed when every packet meets the tables of the desired state.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// isReady has to be asked with mu held for the answer to last.
func (a *Agent) isReady() error {
	select {
	case <-a.ending:
		return fmt.Errorf("%w: the daemon is ending", ErrNotReady)
	default:
	}
	select {
	case <-a.ready:
		return nil
	default:
		return fmt.Errorf("%w: the daemon is still starting", ErrNotReady)
	}
}

// end lets go of the data path once nobody uses it any more.
func (a *Agent) end() error {
	a.mu.Lock()
	close(a.ending) // which ends a trace, too
	a.mu.Unlock()
	a.tracing.Lock()
	defer a.tracing.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dp.Close()
}

// Running is the whole running configuration, of the file and the API.
func (a *Agent) Running() *config.Config {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.desired == nil {
		return a.options.Config
	}
	return a.desired.asked()
}

// Apply makes the resources of OriginFile those of the given configuration.
// They hold until the file at ConfigPath is applied, by Reload or because it
// was changed before the next start.
func (a *Agent) Apply(ctx context.Context, c *config.Config, dryRun bool) ([]Change, error) {
	sum, err := fileSum(a.options.ConfigPath)
	if err != nil {
		return nil, err
	}
	return a.apply(ctx, c, &applied{Config: *c, File: sum}, dryRun)
}

// Reload applies the file at ConfigPath.
func (a *Agent) Reload(ctx context.Context) ([]Change, error) {
	if a.options.ConfigPath == "" {
		return nil, fmt.Errorf("%w: the daemon was started without a configuration file", ErrInvalid)
	}
	c, err := config.Load(a.options.ConfigPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return a.apply(ctx, c, nil, false)
}

func (a *Agent) apply(ctx context.Context, c *config.Config, replaced *applied, dryRun bool) ([]Change, error) {
	c = completed(c)
	if replaced != nil {
		replaced.Config = *c
	}
	return a.change(ctx, dryRun, func(now *desired) (proposal, error) {
		return proposal{to: now.withFile(c), replaced: replaced}, nil
	})
}

// Add puts every resource of the fragment, as OriginAPI.
func (a *Agent) Add(ctx context.Context, fragment *config.Config) ([]Change, error) {
	fragment = completed(fragment)
	return a.change(ctx, false, func(now *desired) (proposal, error) {
		next, touched, err := now.withAPI(fragment)
		return proposal{to: next, replaced: a.replaced, touched: touched}, err
	})
}

// Delete removes resources of OriginAPI.
func (a *Agent) Delete(ctx context.Context, refs []Ref) ([]Change, error) {
	return a.change(ctx, false, func(now *desired) (proposal, error) {
		next, err := now.without(refs)
		return proposal{to: next, replaced: a.replaced, deleted: refs}, err
	})
}

// change goes from the running state to the one that next makes of it, or
// leaves everything as it is.
func (a *Agent) change(ctx context.Context, dryRun bool, next func(*desired) (proposal, error)) ([]Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := errors.Join(a.isReady(), ctx.Err()); err != nil {
		return nil, err
	}
	p, err := next(a.desired)
	if err != nil {
		return nil, err
	}
	if n, ok := a.narrow(p); ok {
		if err := a.commit(n.to, n.recompiled(a.tables, a.links), p.replaced); err != nil {
			return nil, err
		}
		a.logChanges(n.changes)
		return n.changes, nil
	}
	to := p.to.asMember(a.links)
	if err := to.dangling(p.deleted); err != nil {
		return nil, err
	}
	return a.changeTo(to, p.replaced, dryRun)
}

// changeTo is the rest of change.
func (a *Agent) changeTo(to *desired, replaced *applied, dryRun bool) ([]Change, error) {
	changes, err := diff(a.desired, to)
	if err != nil {
		return nil, err
	}
	c := to.completed()
	if err := a.validate(c); err != nil {
		return nil, err
	}
	if err := to.standsAlone(); err != nil {
		return nil, err
	}
	if dryRun {
		return changes, nil
	}
	if err := a.commit(to, recompile(to, c, a.links, a.tables, changes), replaced); err != nil {
		return nil, err
	}
	a.logChanges(changes)
	return changes, nil
}

// logChanges names changes one by one as far as somebody would read that.
func (a *Agent) logChanges(changes []Change) {
	const most = 100
	for _, c := range changes[:min(len(changes), most)] {
		a.log.Info("changed", "op", c.Op, "kind", c.Kind, "key", c.Key, "detail", c.Detail)
	}
	if more := len(changes) - most; more > 0 {
		a.log.Info("changed", "more", more)
	}
}

// logPaths says of policies that packets take another candidate path from now on.
func (a *Agent) logPaths(from, to *tables) {
	log := func(name string) {
		verdicts := to.verdicts[name]
		if _, was := from.verdicts[name]; !was || len(verdicts) == 0 {
			return
		}
		if before := from.activePath(name); before != verdicts[0].Path {
			a.log.Info("policy takes another candidate path", "policy", name, "path", pathName(verdicts[0].Path), "before", pathName(before), "why", verdicts[0].Why)
		}
	}
	if to.only != nil {
		for name := range to.only {
			log(name)
		}
		return
	}
	for name := range to.verdicts {
		log(name)
	}
}

// pathName is what people read of a candidate path.
func pathName(name string) string { return cmp.Or(name, "(its own segment lists)") }

// validate says whether a desired state's configuration holds together, and
// whether what it names for the first time exists.
func (a *Agent) validate(c *config.Config) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := a.upf.validate(c); err != nil {
		return err
	}
	known := linkNames(a.links)
	for r := range a.desired.all() {
		// What went away since is reported, not refused.
		known = append(known, interfacesOf(r)...)
	}
	if err := c.CheckInterfaces(known); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// commit brings the data path and the state file to a desired state, whose tables
// are next, or leaves both as they are.
func (a *Agent) commit(to *desired, next *tables, replaced *applied) error {
	steps := a.plan(a.tables, next)
	if !sameList(a.desired.api, to.api) || a.replaced != replaced {
		steps = append(steps, step{
			ref: Ref{KindSettings, "state file"},
			do:  func() error { return a.store.save(a.desired, to, replaced) },
		})
	}
	a.lowerMTU(to, next)
	if err := run(steps); err != nil {
		a.syncOverlay()
		return err
	}
	if !a.desired.told.is(to.told) {
		a.unsaved.note(to.told)
	}
	if len(to.told.former) > 0 && len(a.desired.told.former) == 0 {
		time.AfterFunc(formerTime, func() { a.inbox.push(hearing{apply: func(t *told) { t.former = nil }}) })
	}
	if !same(a.desired.process.UPF, to.process.UPF) {
		a.upf.setSMFs(&to.process.UPF)
	}
	a.logPaths(a.tables, next)
	a.desired, a.replaced, a.tables = to, replaced, next
	a.forgetModes()
	a.setLogLevel()
	a.watch.SetTables(next.routeTables())
	a.syncNetwork()
	a.syncOverlay()
	a.touchPlanes()
	return nil
}

func (a *Agent) plan(from, to *tables) []step {
	p := newPlanner(a.dp, a.upf.plane(), from, to, func(name string, mode dataplane.Mode) { a.modes[name] = mode })
	return p.plan()
}

func (a *Agent) forgetModes() {
	for name := range a.modes {
		if _, there := a.tables.ports[name]; !there {
			delete(a.modes, name)
		}
	}
}

func (a *Agent) setLogLevel() {
	if a.options.LogLevel == nil || a.desired.process.Log.Level == "" {
		return
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.desired.process.Log.Level)); err == nil {
		a.options.LogLevel.Set(level)
	}
}

// completed is a copy with the defaults filled in: the caller's stays as it is.
func completed(c *config.Config) *config.Config {
	out := *c
	out.Interfaces = slices.Clone(c.Interfaces)
	out.Locators = slices.Clone(c.Locators)
	out.SIDs = slices.Clone(c.SIDs)
	out.Policies = slices.Clone(c.Policies)
	out.CandidatePaths = slices.Clone(c.CandidatePaths)
	out.SetDefaults()
	return &out
}

// ignoreCancel: the end of a context is how things end here.
func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
