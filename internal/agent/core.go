package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/upf"
)

// core is the agent's state. Every change of it goes through change, update or
// retry.
type core struct {
	log   *slog.Logger
	level *slog.LevelVar // follows log.level; nil: nothing does

	ready  chan struct{} // closed when every packet meets the tables
	ending chan struct{} // closed when Run ends: nothing may use the data path then
	adjust chan struct{} // the control planes may differ from the goal

	observing sync.Mutex // keeps updates in their order

	// mu keeps changes apart from each other and from what reads them.
	mu       sync.RWMutex
	dp       *dataPath
	watch    watcher
	store    *store.Store
	queue    *observed.Queue
	goal     *plan.Goal
	refused  map[observed.Entry]observed.Refusal
	replaced *store.Applied // the configuration that holds in place of the file's
	links    *netdev.Snapshot
	writer   *apply.Writer
	network  *apply.Network
	overlay  *apply.Overlay
	upf      *userPlane
	restored func() (sessions, of int) // of an earlier daemon; nil: none are known yet
	pods     *pods.Pods
	spread   *spreader
	probing  *probing
	// roundTrips are adjustSources' own.
	roundTrips roundTrips
	policing   *policing
	flows      *flowKeeper

	announcing announcing
}

// proposal is a goal that somebody asks for.
type proposal struct {
	goal     *plan.Goal // what follows from it is not derived yet
	replaced *store.Applied
	touched  []desired.Ref // all that may differ from the goal before; nil: anything may
	deleted  []desired.Ref // on purpose: nothing may refer to them
}

// isReady has to be asked with mu held for the answer to last.
func (c *core) isReady() error {
	select {
	case <-c.ending:
		return fmt.Errorf("%w: the daemon is ending", pods.ErrNotReady)
	default:
	}
	select {
	case <-c.ready:
		return nil
	default:
		return fmt.Errorf("%w: the daemon is still starting", pods.ErrNotReady)
	}
}

// change goes from the present goal to the one that propose makes of it, or leaves
// everything as it is.
func (c *core) change(ctx context.Context, dryRun bool, propose func(*plan.Goal) (proposal, error)) ([]desired.Change, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.isReady(), ctx.Err()); err != nil {
		return nil, err
	}
	p, err := propose(c.goal)
	if err != nil {
		return nil, err
	}
	return c.pursue(p, dryRun)
}

// pursue plans and applies a proposal. mu is held.
func (c *core) pursue(p proposal, dryRun bool) ([]desired.Change, error) {
	self, moved := p.goal.SelfOn(c.links)
	scope := plan.Scope{}
	if !moved {
		scope = plan.ScopeOf(c.goal, p.goal, p.touched)
	}
	to, err := c.judge(p, self, scope)
	if err != nil && scope.Policies != nil {
		// What is beyond the scope may be part of the reason.
		scope = plan.Scope{}
		to, err = c.judge(p, self, scope)
	}
	if err != nil {
		return nil, err
	}
	scope = scope.WithKinds(to.changes)
	tables := plan.Compile(to.goal, to.config, c.links, c.writer.Tables, scope)
	if dryRun {
		return to.changes, c.writer.Rehearse(tables, scope)
	}
	if err := c.commit(to.goal, tables, scope, p.replaced); err != nil {
		return nil, err
	}
	// People read no more than that.
	const most = 100
	for _, change := range to.changes[:min(len(to.changes), most)] {
		c.log.Info("changed", "event", logevent.ResourceChanged, "op", change.Op, "kind", change.Kind, "key", change.Key, "detail", change.Detail)
	}
	if more := len(to.changes) - most; more > 0 {
		c.log.Info("changed", "event", logevent.ResourceChanged, "more", more)
	}
	return to.changes, nil
}

// judged is what a proposal comes to in a scope.
type judged struct {
	goal    *plan.Goal
	config  *config.Config // of the resources in the scope
	changes []desired.Change
}

// judge derives what follows from a proposal, and says whether it can be.
func (c *core) judge(p proposal, self overlay.Self, scope plan.Scope) (j judged, err error) {
	j.goal = p.goal.Derive(self, c.goal, scope)
	if err := j.goal.Dangling(p.deleted); err != nil {
		return j, err
	}
	if j.changes, err = c.goal.Diff(j.goal, scope); err != nil {
		return j, err
	}
	j.config = j.goal.Config(scope)
	if err := j.goal.Validate(j.config, scope, c.writer.Tables.ListsBeyond(scope)); err != nil {
		return j, err
	}
	if err := c.upf.validate(&j.config.UPF); err != nil {
		return j, err
	}
	return j, c.goal.CheckInterfaces(j.config, scope, c.links)
}

// commit brings the data path and the state file to a goal with its tables, or
// leaves both as they are.
func (c *core) commit(to *plan.Goal, tables *plan.Tables, scope plan.Scope, replaced *store.Applied) error {
	from := c.goal
	var save func() error
	if !desired.SameList(from.Desired.API, to.Desired.API) || c.replaced != replaced {
		save = func() error { return c.store.Save(from.Desired.API, to.Desired.API, to.Observed, replaced) }
	}
	c.overlay.LowerMTU(to, tables, c.links)
	if err := c.writer.Commit(tables, scope, save); err != nil {
		c.overlay.Sync(from, c.writer.Tables, c.links)
		return err
	}
	if !observed.SameMap(from.Observed.Paths, to.Observed.Paths) || !from.Observed.OnlyPaths(&to.Observed) {
		c.store.Note(to.Observed)
	}
	if len(to.Observed.Former) > 0 && len(from.Observed.Former) == 0 {
		time.AfterFunc(observed.FormerTime, func() { c.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Former = nil }}) })
	}
	if len(to.Observed.Left) > 0 && !observed.SameMap(from.Observed.Left, to.Observed.Left) {
		time.AfterFunc(observed.LeftTime, func() { c.queue.Push(observed.Update{Apply: func(s *observed.State) { s.ForgetLeft(time.Now()) }}) })
	}
	if u := &to.Desired.Process.UPF; c.upf.server != nil && !desired.Same(from.Desired.Process.UPF, *u) {
		c.upf.setSMFs(u)
	}
	c.goal, c.replaced = to, replaced
	c.setLogLevel()
	c.watch.SetTables(tables.RouteTables())
	c.sync()
	c.touch()
	return nil
}

// sync writes what the kernel says to the data path, the overlay to the kernel, and the
// interfaces of N4 to its server. mu is held.
func (c *core) sync() {
	c.network.Sync(c.links, c.writer.Tables, c.goal.Self.Prefixes)
	c.overlay.Sync(c.goal, c.writer.Tables, c.links)
	if c.upf.server != nil {
		c.upf.server.SetPorts(c.n4Ports())
	}
}

// n4Ports returns the interfaces of N4 as the links are now.
func (c *core) n4Ports() []int { return n4Ports(c.upf.config.Addresses, listed(c.goal), c.links) }

// touch has the control planes adjusted soon. It does not wait.
func (c *core) touch() {
	select {
	case c.adjust <- struct{}{}:
	default:
	}
}

func (c *core) setLogLevel() {
	if level := c.goal.Desired.Process.Log.Level; c.level != nil && level != "" {
		_ = c.level.UnmarshalText([]byte(level)) // one that the configuration may have
	}
}

// begin is the first part of bringing the tables to the first goal. A data path that was pinned
// goes on forwarding by them all the time: everything is put, which changes nothing where
// nothing changed; interfaces are attached once that is there; and only then what was not put
// is swept out. Between begin, which reserves the resources of an earlier daemon's sessions, and
// complete these sessions are put.
func (c *core) begin(g *plan.Goal, links *netdev.Snapshot) (all *plan.Tables, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	self, _ := g.SelfOn(links)
	if m := g.Derive(self, nil, plan.Scope{}); m.Config(plan.Scope{}).Validate() == nil {
		g = m
	} else {
		g = m.Alone() // others will say again what holds still
		c.store.Note(g.Observed)
	}
	c.links, c.goal = links, g
	all = plan.Compile(g, g.Config(plan.Scope{}), links, nil, plan.Scope{})
	first := *all
	first.Ports = map[string]plan.Port{}
	if err := c.writer.Start(&first); err != nil {
		return nil, err
	}
	if c.upf.upf != nil {
		c.upf.upf.Reserve()
		c.restored = func() (int, int) { return upf.Restored(c.upf.upf) }
	}
	return all, nil
}

// complete is the second part, with what begin returned. All sessions have been put.
func (c *core) complete(all *plan.Tables) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, links := c.goal, c.links
	c.network.Sync(links, all, g.Self.Prefixes)
	whole := *all
	c.writer.Converge(&whole, plan.Scope{})
	c.overlay.Sync(g, c.writer.Tables, links)
	c.touch()
	if err := c.policing.enforce(&g.Desired.Process.Overlay); err != nil {
		return err // no pod may be put that is open
	}
	c.flows.enable(g.Desired.Process.Overlay.Flows.Enabled)
	if err := c.pods.Restore(c.dp.Pods, links); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if err := c.dp.Sweep(); err != nil {
		return fmt.Errorf("remove what is left of the last run: %w", err)
	}
	if err := c.writer.DetachOthers(all.Ports); err != nil {
		return err
	}
	for r := range g.All() {
		if name := r.Interface(); name != "" {
			if _, there := links.Link(name); !there {
				c.log.Warn("there is no such interface yet: waiting for it", "event", logevent.InterfaceMissing, "interface", name, "resource", r.Ref.String())
			}
		}
	}
	logLinkStates(c.log, g, c.overlay.UplinkNames(), &netdev.Snapshot{}, links)
	c.setLogLevel()
	if len(c.writer.Failures) > 0 {
		return nil // which is in the log
	}
	c.log.Info("the data path is in the desired state", "event", logevent.DataPathReady, "build", c.dp.Build(),
		"resources", len(g.Desired.File)+len(g.Desired.API), "interfaces", len(c.writer.Modes))
	return nil
}

// update goes along with a change of the links. Packets leave lists that no route leads to any
// more, by one store for each policy, before anything is planned.
func (c *core) update(links *netdev.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dp.TurnLists(plan.Unreachable(c.links), plan.Unreachable(links))
	logLinks(c.log, c.goal, c.links, links)
	logLinkStates(c.log, c.goal, c.overlay.UplinkNames(), c.links, links)
	c.links = links
	if !c.rejoin() {
		scope := plan.Scope{}.WithKinds(nil) // no resource differs
		c.converge(plan.Compile(c.goal, c.goal.Config(scope), links, c.writer.Tables, scope), scope)
	}
	c.sync()
}

// retry tries again what failed, and makes again what somebody else removed and no snapshot shows.
func (c *core) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rejoin()
	if len(c.writer.Failures) > 0 {
		c.converge(plan.Compile(c.goal, c.goal.Config(plan.Scope{}), c.links, nil, plan.Scope{}), plan.Scope{})
	}
	if c.overlay.Look() || c.network.Failed() || c.overlay.Failed() {
		c.sync()
	}
}

func (c *core) converge(to *plan.Tables, scope plan.Scope) {
	c.overlay.LowerMTU(c.goal, to, c.links)
	c.writer.Converge(to, scope)
	c.touch() // the control planes publish which paths are active
}

// rejoin goes along where the links changed what this node is in its cluster. It
// says whether it did.
func (c *core) rejoin() bool {
	if _, moved := c.goal.SelfOn(c.links); !moved {
		return false
	}
	if _, err := c.pursue(proposal{goal: c.goal, replaced: c.replaced}, false); err != nil {
		c.log.Error("cannot be in the cluster as the network is now; will try again", "event", logevent.OverlayUnfit, "error", err)
		return false
	}
	return true
}

// retryRefused is how often a refused update is applied again.
const retryRefused = time.Minute

// listen applies what others say until ctx ends.
func (c *core) listen(ctx context.Context) error {
	again := time.NewTicker(retryRefused)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.queue.Ready():
			c.observeNext(false)
		case <-again.C:
			c.observeNext(true)
		}
	}
}

// observeNext applies the updates of the queue, and before these, if again says so,
// the refused ones: they are older.
func (c *core) observeNext(again bool) {
	c.observing.Lock()
	defer c.observing.Unlock()
	var updates []observed.Update
	if again {
		for _, r := range c.refused {
			updates = append(updates, r.Update)
		}
	}
	c.observe(append(updates, c.queue.Take()...))
}

// observe applies updates: all at once if that holds together. If not, the error
// says which resources are at fault, and the updates that these follow from are
// applied one by one. An update that cannot be used is treated as withdrawn.
func (c *core) observe(updates []observed.Update) {
	c.mu.Lock()
	for _, u := range updates {
		delete(c.refused, u.Entry)
	}
	c.mu.Unlock()
	var batches [][]observed.Update
	if len(updates) > 0 {
		batches = append(batches, updates)
	}
	for len(batches) > 0 {
		batch := batches[0]
		batches = batches[1:]
		next, err := c.observeAll(batch)
		switch {
		case err == nil:
		case len(batch) > 1:
			batches = append(plan.Split(batch, next, err), batches...)
		default:
			u := batch[0]
			c.log.Warn("update rejected; treating it as withdrawn", "event", logevent.UpdateRejected, "update", u.Entry.String(), "error", err)
			if u.Retry {
				c.mu.Lock()
				c.refused[u.Entry] = observed.Refusal{Update: u, Why: err}
				c.mu.Unlock()
			}
			if u.Withdraw == nil {
				continue
			}
			if _, err := c.observeAll([]observed.Update{{Entry: u.Entry, Apply: u.Withdraw}}); err != nil {
				c.log.Error("cannot withdraw", "event", logevent.UpdateNotWithdrawn, "update", u.Entry.String(), "error", err)
			}
		}
	}
	c.touch()
}

// observeAll applies updates, or leaves everything as it is. next is the goal that
// it tried then.
func (c *core) observeAll(updates []observed.Update) (next *plan.Goal, err error) {
	_, err = c.change(context.Background(), false, func(now *plan.Goal) (proposal, error) {
		g := *now
		g.Observed = now.Observed.Edit()
		for _, u := range updates {
			u.Apply(&g.Observed)
		}
		next = &g
		return proposal{goal: next, replaced: c.replaced, touched: plan.TouchedPaths(now, next)}, nil
	})
	if errors.Is(err, pods.ErrNotReady) { // the daemon is ending
		return next, nil
	}
	return next, err
}

// adjustSources has the control planes be those of the goal, and publish this node
// and what became of the paths. It is called by one goroutine at a time.
func adjustSources(ctx context.Context, a *Agent) error {
	c := a.core
	c.mu.RLock()
	g := c.goal
	c.mu.RUnlock()
	p := &g.Desired.Process
	config := observed.Config{
		BGP: observed.BGPConfig(p.BGP, p.Overlay.Mode, g.Self), Overlay: p.Overlay, Announces: len(p.UPF.Announce) > 0,
		VPNs: bgpVPNs(g),
	}
	err := errors.Join(a.sources.Adjust(ctx, config, g.Self, &g.Observed), c.announce(a.sources.BGP()), c.probing.adjust(g), c.policing.enforce(&p.Overlay))
	c.flows.enable(p.Overlay.Flows.Enabled)
	if k := a.sources.Kubernetes(); k != nil {
		c.mu.RLock()
		verdicts := append(c.goal.Observed.Verdicts(c.writer.Tables.Verdicts, c.refused, c.roundTrips.tell(c.writer.Tables.Policies, c.probing.delays(), time.Now())), c.classVerdicts()...)
		c.mu.RUnlock()
		k.SetVerdicts(verdicts)
	}
	return err
}

// adjustPause is how long changes are gathered before control planes announce them.
const adjustPause = 100 * time.Millisecond

// runSources adjusts the control planes until ctx ends.
func (a *Agent) runSources(ctx context.Context) error {
	defer a.sources.Stop()
	retry, look := time.NewTicker(retryInterval), time.NewTicker(announceInterval)
	defer retry.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := a.core.announce(a.sources.BGP()); err != nil {
				a.log.Error("cannot announce what is to be announced; will try again", "event", logevent.BGPAnnounceFailed, "error", err)
			}
			continue
		case <-a.core.adjust:
		case <-retry.C:
		}
		if err := adjustSources(ctx, a); err != nil {
			a.log.Error("a control plane differs from its configuration; will try again", "event", logevent.ControlPlaneFailed, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(adjustPause):
		}
	}
}
