package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/agent/store"
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
	// Config is the content of the file at ConfigPath: read from there unless set.
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
	open    openers

	core       *core
	punts      *punt.Handler
	sources    *observed.Sources
	tracing    sync.Mutex
	explaining sync.Mutex
	policing   *policing
	traffic    *podTraffic
}

// openers open what Run needs; tests have others.
type openers struct {
	dataPath func(dataplane.Options, *bbolt.DB) (*dataPath, error)
	watcher  func(netdev.Options) (watcher, error)
	server   func(pfcp.Config) (*pfcp.Server, error)
	host     func() (host, error)
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
	queue := observed.NewQueue()
	a := &Agent{
		options: o,
		log:     o.Logger,
		started: time.Now(),
		open: openers{
			dataPath: openDataPath,
			watcher:  func(o netdev.Options) (watcher, error) { return netdev.NewWatcher(o) },
			server:   pfcp.Open,
			host:     func() (host, error) { return netdev.NewHost() },
		},
		core: &core{
			log: o.Logger, level: o.LogLevel, queue: queue, refused: map[observed.Entry]observed.Refusal{},
			ready: make(chan struct{}), ending: make(chan struct{}), adjust: make(chan struct{}, 1),
		},
	}
	a.policing = &policing{core: a.core}
	a.core.policing = a.policing
	a.traffic = &podTraffic{policing: a.policing, flows: newFlows(a.core, a.policing)}
	a.core.flows = a.traffic.flows
	a.sources = observed.NewSources(queue, o.Version, a.core.relabel, o.Logger)
	a.sources.Repoliced = func() {
		a.policing.changed()
		a.traffic.flows.stale.Store(true)
	}
	return a, nil
}

// Ready is closed when every packet meets the tables of the desired state.
func (a *Agent) Ready() <-chan struct{} { return a.core.ready }

// Running is the whole running configuration, of the file and the API.
func (a *Agent) Running() *config.Config {
	a.core.mu.RLock()
	defer a.core.mu.RUnlock()
	if a.core.goal == nil {
		return a.options.Config
	}
	return a.core.goal.Desired.Config()
}

// Apply makes the resources of OriginFile those of the given configuration.
// They hold until the file at ConfigPath is applied, by Reload or because it
// was changed before the next start.
func (a *Agent) Apply(ctx context.Context, c *config.Config, dryRun bool) ([]desired.Change, error) {
	sum, err := fileSum(a.options.ConfigPath)
	if err != nil {
		return nil, err
	}
	c = desired.Completed(c)
	return a.core.change(ctx, dryRun, func(now *plan.Goal) (proposal, error) {
		return proposal{goal: now.WithFile(c), replaced: &store.Applied{Config: *c, File: sum}}, nil
	})
}

// Reload applies the file at ConfigPath.
func (a *Agent) Reload(ctx context.Context) ([]desired.Change, error) {
	if a.options.ConfigPath == "" {
		return nil, fmt.Errorf("%w: the daemon was started without a configuration file", desired.ErrInvalid)
	}
	c, lines, err := config.LoadLines(a.options.ConfigPath)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", desired.ErrInvalid, err)
	}
	c = desired.Completed(c)
	changes, err := a.core.change(ctx, false, func(now *plan.Goal) (proposal, error) {
		return proposal{goal: now.WithFile(c)}, nil
	})
	return changes, lines.Of(err)
}

// Add puts every resource of the fragment, as OriginAPI.
func (a *Agent) Add(ctx context.Context, fragment *config.Config) ([]desired.Change, error) {
	fragment = desired.Completed(fragment)
	return a.core.change(ctx, false, func(now *plan.Goal) (p proposal, err error) {
		next := *now
		p.goal, p.replaced = &next, a.core.replaced
		next.Desired, p.touched, err = now.Desired.WithAPI(fragment)
		return p, err
	})
}

// Delete removes resources of OriginAPI.
func (a *Agent) Delete(ctx context.Context, refs []desired.Ref) ([]desired.Change, error) {
	return a.core.change(ctx, false, func(now *plan.Goal) (p proposal, err error) {
		next := *now
		p.goal, p.replaced = &next, a.core.replaced
		next.Desired, p.deleted, err = now.Desired.Without(refs)
		return p, err
	})
}

// ignoreCancel: the end of a context is how things end here.
func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// usePods calls f while the data path is there to stay.
func usePods[T any](c *core, f func(*pods.Pods) (T, error)) (out T, err error) {
	if err := c.isReady(); err != nil {
		return out, err
	}
	err = c.pods.Use(func() error {
		out, err = f(c.pods)
		return err
	})
	return out, err
}

// relabel classifies pods by the labels that they have now. A daemon that is ending does not.
func (c *core) relabel() {
	_ = c.pods.Use(func() error {
		c.pods.Relabel()
		return nil
	})
}

// AddPod gives a pod its addresses, and has packets reach it: all of it, or
// nothing. A caller that asks again gets the same. Errors: ErrNotReady,
// ErrExhausted, ErrInvalid.
func (a *Agent) AddPod(key pods.Attachment, v pods.Pod) (pods.Network, error) {
	begun := time.Now()
	out, err := usePods(a.core, func(p *pods.Pods) (pods.Network, error) { return p.Add(key, v) })
	if err == nil {
		a.traffic.flows.stale.Store(true)
		a.policing.added(v)
	}
	a.log.Debug("pod add", "attachment", key.String(), "took", time.Since(begun), "error", err)
	return out, err
}

// PodTraffic is what becomes of pods' packets.
func (a *Agent) PodTraffic() PodTraffic { return a.traffic }

// DeletePod takes a pod's addresses back. A pod that is gone is no error.
func (a *Agent) DeletePod(key pods.Attachment) error {
	_, err := usePods(a.core, func(p *pods.Pods) (any, error) { return nil, p.Remove(key) })
	a.policing.changed()
	return err
}

// CheckPod lists what of a pod is not as AddPod left it. v is what the plugin says of it, without its
// host's ifindex.
func (a *Agent) CheckPod(key pods.Attachment, v pods.Pod) (differences []string, err error) {
	return usePods(a.core, func(p *pods.Pods) ([]string, error) { return p.Check(key, v) })
}

// RetainPods deletes the pods of a CNI network that are not among the valid
// ones, and returns which these were.
func (a *Agent) RetainPods(network string, valid []pods.Attachment) (removed []pods.Attachment, err error) {
	defer a.policing.changed()
	return usePods(a.core, func(p *pods.Pods) ([]pods.Attachment, error) { return p.Retain(network, valid) })
}

// PodReadiness says whether pods can be added.
func (a *Agent) PodReadiness() (pods.Readiness, error) {
	r, err := usePods(a.core, func(p *pods.Pods) (pods.Readiness, error) { return p.Readiness(), nil })
	if err == nil && !r.Ready {
		r.Reason = withSilence(a.sources.Problem(), r.Reason)
	}
	return r, err
}

// Pods are those on this node, by their addresses.
func (a *Agent) Pods() ([]pods.Status, error) {
	return usePods(a.core, func(p *pods.Pods) ([]pods.Status, error) { return p.List(), nil })
}
