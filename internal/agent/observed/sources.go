package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Sources are the control planes that run. They come and go with the
// configuration; what one has said stays as far as the next one may say it, too.
type Sources struct {
	queue   *Queue
	version string // of the program
	log     *slog.Logger

	bgp  atomic.Pointer[BGP]
	kube atomic.Pointer[Kubernetes]

	relabelled func()
	// Repoliced, if set before Adjust, is called where NetworkState may return something else.
	Repoliced func()
}

// Config is what the control planes are made of.
type Config struct {
	BGP     config.BGP
	Overlay config.Overlay
	// Announces: BGP advertises UE prefixes too (BGP.Announce).
	Announces bool
	// VPNs that UE prefixes are advertised in.
	VPNs []bgp.VPN
}

// NewSources are none; Adjust starts them. They push what they observe to a queue, and
// call relabelled where PodLabels may return something else.
func NewSources(to *Queue, version string, relabelled func(), log *slog.Logger) *Sources {
	return &Sources{queue: to, version: version, relabelled: relabelled, log: log}
}

// BGP is the speaker that runs; nil: the node speaks no BGP.
func (s *Sources) BGP() *BGP { return s.bgp.Load() }

// Kubernetes returns the running watch, or nil.
func (s *Sources) Kubernetes() *Kubernetes { return s.kube.Load() }

// PodLabels returns the labels of a pod on this node, and whether they are known.
func (s *Sources) PodLabels(namespace, name string) (map[string]string, bool) {
	if k := s.Kubernetes(); k != nil {
		return k.watcher.PodLabels(namespace, name)
	}
	return nil, false
}

// NetworkState is what NetworkPolicies depend on; complete: the API has sent all of it.
func (s *Sources) NetworkState() (state netpol.State, complete bool) {
	if k := s.Kubernetes(); k != nil {
		return k.watcher.NetworkState()
	}
	return state, false
}

// Problem is why the Kubernetes API says nothing now; "": it does, or nobody
// asks it.
func (s *Sources) Problem() string {
	k := s.Kubernetes()
	if k == nil {
		return ""
	}
	switch now := k.watcher.Status(); {
	case now.Error != "":
		return "the Kubernetes API does not answer: " + now.Error
	case !now.Complete:
		return "the Kubernetes API has not sent everything yet"
	}
	return ""
}

// Refused are the objects of the Kubernetes API with paths for this node that it refuses.
func (s *Sources) Refused() []string {
	if k := s.Kubernetes(); k != nil {
		return k.watcher.Refused()
	}
	return nil
}

// Adjust starts and stops control planes, and has them publish this node. self is
// the zero value as long as the node is no member of a cluster. What state holds
// stays until a new control plane says otherwise.
func (s *Sources) Adjust(ctx context.Context, c Config, self overlay.Self, state *State) error {
	// What each of them depends on.
	o := &c.Overlay
	forBGP := Config{BGP: c.BGP, Announces: c.Announces, VPNs: c.VPNs, Overlay: config.Overlay{Mode: o.Mode, Tenants: o.Tenants}}
	forKube := Config{Overlay: config.Overlay{Mode: o.Mode, Node: o.Node, LocatorPool: o.LocatorPool, Accept: o.Accept, Kube: o.Kube}}
	if o.EnforcesPolicies() { // pods have addresses of tenants
		forKube.Overlay.Tenants = o.Tenants
	}
	return errors.Join(s.adjustBGP(ctx, forBGP, self, state), s.adjustKube(ctx, forKube, o.UsesKube(), self, state))
}

func (s *Sources) adjustBGP(ctx context.Context, c Config, self overlay.Self, state *State) error {
	h := s.BGP()
	if h != nil && !desired.Same(h.of, c) {
		s.bgp.Store(nil)
		h.stopTimers()
		h.speaker.Stop()
		h = nil
	}
	if h == nil {
		if !c.BGP.RouterID.IsValid() {
			return nil // it speaks no BGP, or does not know yet as whom
		}
		var err error
		if h, err = NewBGP(c, state, s.queue, s.log); err != nil {
			return err
		}
		if err := h.start(ctx); err != nil {
			return err
		}
		s.log.Info("speaks BGP", "event", logevent.BGPStarted, "asn", c.BGP.ASN, "router_id", c.BGP.RouterID)
		s.bgp.Store(h)
	}
	n, parts := self.Node(), self.Parts()
	if self.Name == "" || h.config.Cluster == nil || desired.Same(h.node, n) && slices.Equal(h.parts, parts) {
		return nil
	}
	return h.advertise(ctx, n, parts)
}

func (s *Sources) adjustKube(ctx context.Context, c Config, uses bool, self overlay.Self, state *State) error {
	k := s.Kubernetes()
	if k != nil && !desired.Same(k.of, c) {
		s.kube.Store(nil)
		k.cancel()
		k.running.Wait()
		k = nil
	}
	if k == nil {
		if !uses {
			return nil
		}
		w, err := kube.New(kube.Config{
			Kubeconfig: c.Overlay.Kube.Kubeconfig, Namespace: c.Overlay.Kube.Namespace, Node: NodeName(&c.Overlay), Version: s.version, Trust: kube.Trust{Pool: c.Overlay.LocatorPool, Accept: c.Overlay.Accept}, Log: s.log,
			NetworkPolicies: c.Overlay.EnforcesPolicies(), Tenants: c.Overlay.Tenants,
		})
		if err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
		k = NewKubernetes(c, w, s.queue, s.log)
		k.relabelled = s.relabelled
		if s.Repoliced != nil {
			k.repoliced = s.Repoliced
		}
		k.start(ctx, state)
		s.kube.Store(k)
	}
	if n := self.Node(); c.Overlay.Mode == config.OverlayKube && self.Name != "" && !desired.Same(n, k.node) {
		k.node = n
		k.watcher.Publish(n)
	}
	return nil
}

// Stop ends what runs, at the daemon's end. It does not wait for the API server.
func (s *Sources) Stop() {
	if h := s.bgp.Swap(nil); h != nil {
		h.stopTimers()
		h.speaker.Leave()
	}
	if k := s.kube.Swap(nil); k != nil {
		k.cancel()
	}
}

// NodeName is the name of this node.
func NodeName(o *config.Overlay) string {
	if name := cmp.Or(o.Node, os.Getenv("NODE_NAME")); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "" // which is reported as missing
	}
	return strings.ToLower(name)
}
