package observed

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Kubernetes observes the Kubernetes API, publishes this node there and claims
// its locator.
type Kubernetes struct {
	of      Config // what it was made of
	watcher *kube.Watcher
	queue   *Queue
	log     *slog.Logger
	pool    netip.Prefix // to claim a locator of; zero: none

	cancel  context.CancelFunc
	running sync.WaitGroup
	claims  chan struct{} // the Node is there, or is another one
	uid     string        // of the Node, as the API had it last
	node    overlay.Node  // that was published

	relabelled func() // the labels of pods have changed
	repoliced  func() // what NetworkPolicies depend on has changed
}

// NewKubernetes makes one that pushes updates to a queue. The watcher asks nothing
// before start.
func NewKubernetes(c Config, w *kube.Watcher, to *Queue, log *slog.Logger) *Kubernetes {
	return &Kubernetes{of: c, watcher: w, queue: to, log: log, pool: c.Overlay.LocatorPool, claims: make(chan struct{}, 1), relabelled: func() {}, repoliced: func() {}}
}

// start watches. What s holds of Kubernetes stays until the API server says
// otherwise.
func (k *Kubernetes) start(ctx context.Context, s *State) {
	ctx, k.cancel = context.WithCancel(ctx)
	known := kube.Known{Nodes: s.InOrder(), LocalSIDs: s.Self.SIDs, Classes: s.Classes}
	for _, p := range s.Paths {
		if p.Kube != "" {
			known.Paths = append(known.Paths, kube.Path{Name: p.KubeName, Origin: p.Kube, Advertised: p.Advertised, DelayConstraint: p.DelayConstraint})
		}
	}
	k.running.Go(func() {
		if err := k.watcher.Run(ctx, k, known); err != nil {
			k.log.Error("the Kubernetes API is not watched any more", "event", logevent.KubeStopped, "error", err)
		}
	})
	if k.pool.IsValid() {
		k.running.Go(func() { k.claim(ctx) })
	}
}

// claim claims a locator for each Node that this node is made of.
func (k *Kubernetes) claim(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.claims:
		}
		p, err := k.watcher.Claim(ctx, k.pool)
		if err != nil { // ctx has ended
			return
		}
		k.queue.Push(Update{Entry: Entry{EntrySelf, "locator"}, Apply: func(s *State) { s.Self.Locator = p }})
	}
}

// Verdicts are those on the paths of Kubernetes: of the policies, by policy, and on
// the updates that this node refuses. roundTrips are of the policies' lists (kube.Verdict).
func (s *State) Verdicts(verdicts map[string][]srpolicy.Verdict, refused map[Entry]Refusal, roundTrips map[string]string) (out []kube.Verdict) {
	for _, r := range refused {
		if r.KubeName != "" {
			out = append(out, kube.Verdict{Path: r.KubeName, Why: r.Why.Error()})
		}
	}
	for policy, list := range verdicts {
		for _, v := range list {
			p, ok := s.Paths[v.Path]
			if !ok || p.Kube == "" {
				continue
			}
			one := kube.Verdict{Path: p.KubeName, Valid: v.Valid, Active: v.Active, Why: v.Why}
			if v.Active {
				one.RoundTrips = roundTrips[policy]
			}
			out = append(out, one)
		}
	}
	return out
}

// SetVerdicts writes verdicts to the objects of their paths.
func (k *Kubernetes) SetVerdicts(v []kube.Verdict) { k.watcher.SetVerdicts(v) }

// SetSelf pushes this node's own Node, as a kube.Handler.
func (k *Kubernetes) SetSelf(self kube.Self) {
	k.queue.Push(Update{Entry: Entry{EntrySelf, "Node"}, Apply: func(s *State) { s.Self.Self = self }})
	if k.pool.IsValid() && self.UID != k.uid {
		k.uid = self.UID
		k.ClaimGone()
	}
}

// ClaimGone has the locator claimed, as a kube.Handler.
func (k *Kubernetes) ClaimGone() {
	select {
	case k.claims <- struct{}{}:
	default:
	}
}

// SetLocalSIDs pushes this node's SIDs in the ConfigMap, as a kube.Handler.
func (k *Kubernetes) SetLocalSIDs(sids kube.LocalSIDs) {
	k.queue.Push(Update{
		Entry:    Entry{EntrySelf, "SIDs"},
		Apply:    func(s *State) { s.Self.SIDs = sids },
		Withdraw: func(s *State) { s.Self.SIDs = kube.LocalSIDs{} },
	})
}

// PutNode pushes another node, as a kube.Handler.
func (k *Kubernetes) PutNode(n overlay.Node) {
	k.queue.Push(Update{
		Entry:    Entry{EntryNode, n.Name},
		Retry:    true,
		Apply:    func(s *State) { s.PutNode(n) },
		Withdraw: func(s *State) { s.DropNode(n.Name) },
	})
}

// DeleteNode pushes that another node is gone, as a kube.Handler.
func (k *Kubernetes) DeleteNode(name string) {
	k.queue.Push(Update{Entry: Entry{EntryNode, name}, Apply: func(s *State) { s.DropNode(name) }})
}

// KubePathName is the name on this node of a kube.Path.
func KubePathName(name string) string { return shortName("kube", name) }

// PutPath pushes a candidate path, as a kube.Handler.
func (k *Kubernetes) PutPath(p kube.Path) {
	name := KubePathName(p.Name)
	k.queue.Push(Update{
		Entry: Entry{EntryPath, name},
		Apply: func(s *State) {
			s.PutPath(name, Path{Path: bgp.Path{Advertised: p.Advertised}, DelayConstraint: p.DelayConstraint, Kube: p.Origin, KubeName: p.Name})
		},
		Withdraw: func(s *State) { s.DropPath(name) },
		Retry:    true,
		KubeName: p.Name,
	})
}

// WithdrawPath pushes that a candidate path is gone, as a kube.Handler.
func (k *Kubernetes) WithdrawPath(name string) {
	name = KubePathName(name)
	k.queue.Push(Update{Entry: Entry{EntryPath, name}, Apply: func(s *State) { s.DropPath(name) }})
}

// Class is a traffic class of Kubernetes.
type Class = kube.Class

// KubeClasses is the entry of all traffic classes of Kubernetes.
var KubeClasses = Entry{EntryClasses, "Kubernetes"}

// SetClasses pushes all traffic classes, as a kube.Handler.
func (k *Kubernetes) SetClasses(all map[string]Class) {
	k.queue.Push(Update{Entry: KubeClasses, Apply: func(s *State) { s.Classes = all }, Retry: true})
}

// PodsChanged says that labels of pods have changed, as a kube.Handler.
func (k *Kubernetes) PodsChanged() { k.relabelled() }

// NetworkPoliciesChanged says that what NetworkPolicies depend on has changed, as a
// kube.Handler.
func (k *Kubernetes) NetworkPoliciesChanged() { k.repoliced() }
