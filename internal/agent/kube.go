package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// claimedBits is the length of the locator that a node claims.
const claimedBits = 48

// kubernetes is the node as one of a cluster that has the Kubernetes API.
type kubernetes struct {
	of      planeConfig // what it was made of
	watcher *kube.Watcher
	inbox   *inbox
	log     *slog.Logger
	pool    netip.Prefix // a locator is to be claimed of it

	stopped context.CancelFunc
	running sync.WaitGroup
	claims  chan struct{} // the Node is there, or is another one
	uid     string        // of the Node that was told last
	node    overlay.Node  // that was published

	mu      sync.Mutex
	said    map[string]uint64  // the number of what was said last, by what it is about
	last    uint64             // number
	refused map[string]refusal // by the same
}

// refusal is why this node cannot use what was said.
type refusal struct {
	hearing
	path string // that it is about, as the watcher knows it; empty: it is about none
	why  error
}

func newKubernetes(c planeConfig, a *Agent) (*kubernetes, error) {
	w, err := kube.New(kube.Config{
		Kubeconfig: c.Overlay.Kube.Kubeconfig, Namespace: c.Overlay.Kube.Namespace, Node: NodeName(&c.Overlay), Version: a.options.Version, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	return &kubernetes{of: c, watcher: w, inbox: a.inbox, log: a.log, pool: c.Overlay.LocatorPool, claims: make(chan struct{}, 1),
		said: map[string]uint64{}, refused: map[string]refusal{}}, nil
}

// say tells the agent something that it may refuse.
func (k *kubernetes) say(path string, h hearing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	number := k.last
	delete(k.refused, h.name)
	k.said[h.name] = number
	h.refused = func(why error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.said[h.name] == number {
			k.refused[h.name] = refusal{h, path, why}
		}
	}
	k.inbox.push(h)
}

// unsay tells the agent that something is gone.
func (k *kubernetes) unsay(name string, h hearing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.refused, name)
	delete(k.said, name)
	k.inbox.push(h)
}

// sayAgain says what was refused: what it could not be beside may be gone.
func (k *kubernetes) sayAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, r := range k.refused {
		delete(k.refused, name) // until it is refused again
		k.inbox.push(r.hearing)
	}
}

// againInterval is how often that is.
const againInterval = time.Minute

func (k *kubernetes) keepSaying(ctx context.Context) {
	again := time.NewTicker(againInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			k.sayAgain()
		}
	}
}

// start watches. What was told before holds until the API server says otherwise.
func (k *kubernetes) start(ctx context.Context, t told) {
	ctx, k.stopped = context.WithCancel(ctx)
	known := kube.Known{Nodes: t.members(), LocalSIDs: t.self.SIDs}
	for _, h := range t.paths {
		if h.Kube != "" {
			known.Paths = append(known.Paths, kube.Path{Name: h.KubeName, Origin: h.Kube, Advertised: h.Advertised})
		}
	}
	k.running.Go(func() {
		if err := k.watcher.Run(ctx, k, known); err != nil {
			k.log.Error("the Kubernetes API is not watched any more", "error", err)
		}
	})
	k.running.Go(func() { k.keepSaying(ctx) })
	if k.pool.IsValid() {
		k.running.Go(func() { k.claim(ctx) })
	}
}

// leave is stop at the daemon's end: nobody waits for the API server then.
func (k *kubernetes) leave() { k.stopped() }

func (k *kubernetes) stop() {
	k.stopped()
	k.running.Wait()
}

// claim takes a locator for each Node that this node is made of.
func (k *kubernetes) claim(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.claims:
		}
		p, err := k.watcher.Claim(ctx, k.pool, claimedBits)
		if err != nil { // ctx has ended
			return
		}
		k.inbox.push(hearing{name: "locator " + p.String(), apply: func(t *told) { t.self.Locator = p }})
	}
}

// tell publishes this node, and what became of the paths that it was told. a.mu
// is not held.
func (k *kubernetes) tell(a *Agent, d *desired) {
	if d.process.Overlay.Mode == config.OverlayKube && d.self.Name != "" {
		if n := d.self.Node(); !same(n, k.node) {
			k.node = n
			k.watcher.Publish(n)
		}
	}
	k.watcher.SetVerdicts(a.kubeVerdicts())
}

// trouble is why nothing is heard of the Kubernetes API now, "" if it is. a.mu is
// held.
func (a *Agent) trouble() string {
	if a.planes.cluster == nil {
		return ""
	}
	s := a.planes.cluster.watcher.Status()
	switch {
	case s.Error != "":
		return "the Kubernetes API does not answer: " + s.Error
	case !s.Complete:
		return "the Kubernetes API has not told yet what there is"
	}
	return ""
}

// withTrouble is why this node is no member, and what that may come from. a.mu is
// held.
func (a *Agent) withTrouble(problem string) string {
	if trouble := a.trouble(); trouble != "" {
		return trouble + "; " + problem
	}
	return problem
}

// kubeVerdicts are on the paths that Kubernetes told.
func (a *Agent) kubeVerdicts() []kube.Verdict {
	a.mu.RLock()
	defer a.mu.RUnlock()
	names := map[string]string{} // in Kubernetes, by ours
	for name, h := range a.desired.told.paths {
		if h.Kube != "" {
			names[name] = h.KubeName
		}
	}
	out := a.planes.cluster.refusedPaths()
	for _, verdicts := range a.tables.verdicts {
		for _, v := range verdicts {
			if name, ok := names[v.Path]; ok {
				out = append(out, kube.Verdict{Path: name, Valid: v.Valid, Active: v.Active, Why: v.Why})
			}
		}
	}
	return out
}

// refusedPaths are verdicts on paths that this node cannot use. Of no Kubernetes API
// there are none.
func (k *kubernetes) refusedPaths() (out []kube.Verdict) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.refused {
		if r.path != "" {
			out = append(out, kube.Verdict{Path: r.path, Why: r.why.Error()})
		}
	}
	return out
}

// What follows is what k hears as a kube.Handler.

// SetSelf is for this node's own Node.
func (k *kubernetes) SetSelf(s kube.Self) {
	k.inbox.push(hearing{name: "this node", apply: func(t *told) { t.self.Self = s }})
	if k.pool.IsValid() && s.UID != k.uid {
		k.uid = s.UID
		select {
		case k.claims <- struct{}{}:
		default:
		}
	}
}

// SetLocalSIDs is for what the ConfigMap says of this node's SIDs.
func (k *kubernetes) SetLocalSIDs(s kube.LocalSIDs) {
	k.inbox.push(hearing{name: "local SIDs", apply: func(t *told) { t.self.SIDs = s }, without: func(t *told) { t.self.SIDs = kube.LocalSIDs{} }})
}

// PutNode is for another node.
func (k *kubernetes) PutNode(n overlay.Node) {
	k.say("", hearing{name: "node " + n.Name, apply: func(t *told) { t.putNode(n) }, without: func(t *told) { delete(t.nodes, n.Name) }})
}

// DeleteNode is for one that is gone.
func (k *kubernetes) DeleteNode(name string) {
	k.unsay("node "+name, hearing{apply: func(t *told) { delete(t.nodes, name) }})
}

// PutPath is for a candidate path.
func (k *kubernetes) PutPath(p kube.Path) {
	name := shortName("kube", p.Name)
	k.say(p.Name, hearing{name: name, paths: true, apply: func(t *told) {
		t.putPath(name, heard{Path: bgp.Path{Advertised: p.Advertised}, Kube: p.Origin, KubeName: p.Name})
	}, without: func(t *told) { t.dropPath(name) }})
}

// WithdrawPath is for one that is gone.
func (k *kubernetes) WithdrawPath(name string) {
	name = shortName("kube", name)
	k.unsay(name, hearing{paths: true, apply: func(t *told) { t.dropPath(name) }})
}

// ipv6Of is the first IPv6 address among those of a Node.
func (s selfTold) ipv6Of() netip.Addr {
	if i := slices.IndexFunc(s.Addresses, netip.Addr.Is6); i >= 0 {
		return s.Addresses[i]
	}
	return netip.Addr{}
}
