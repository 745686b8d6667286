package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Sources are the control planes that run. They come and go with the
// configuration; what one has said stays as far as the next one may say it, too.
type Sources struct {
	queue   *Queue
	version string // of the program
	log     *slog.Logger

	mu   sync.Mutex // of the pointers
	bgp  *BGP
	kube *Kubernetes
}

// Config is what the control planes are made of.
type Config struct {
	BGP     config.BGP
	Overlay config.Overlay
}

// forBGP and forKube are what each of them depends on.
func (c Config) forBGP() Config {
	return Config{BGP: c.BGP, Overlay: config.Overlay{Mode: c.Overlay.Mode}}
}

func (c Config) forKube() Config {
	o := &c.Overlay
	return Config{Overlay: config.Overlay{Mode: o.Mode, Node: o.Node, LocatorPool: o.LocatorPool, Kube: o.Kube}}
}

// NewSources are none; Adjust starts them. They push what they hear to a queue.
func NewSources(to *Queue, version string, log *slog.Logger) *Sources {
	return &Sources{queue: to, version: version, log: log}
}

// BGP is the speaker that runs; nil: the node speaks no BGP.
func (s *Sources) BGP() *BGP {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bgp
}

// Kubernetes returns the running watch, or nil.
func (s *Sources) Kubernetes() *Kubernetes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kube
}

// Problem is why the Kubernetes API says nothing now; "": it does, or nobody
// asks it.
func (s *Sources) Problem() string {
	if k := s.Kubernetes(); k != nil {
		return k.problem()
	}
	return ""
}

// Adjust starts and stops control planes, and has them publish this node. self is
// the zero value as long as the node is no member of a cluster. What state holds
// stays until a new control plane says otherwise.
func (s *Sources) Adjust(ctx context.Context, c Config, self overlay.Self, state *State) error {
	return errors.Join(s.adjustBGP(ctx, c.forBGP(), self, state), s.adjustKube(ctx, c.forKube(), c.Overlay.UsesKube(), self, state))
}

func (s *Sources) adjustBGP(ctx context.Context, c Config, self overlay.Self, state *State) error {
	h := s.BGP()
	if h != nil && !desired.Same(h.of, c) {
		s.set(nil, s.kube)
		h.stop()
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
		s.log.Info("speaks BGP", "asn", c.BGP.ASN, "router_id", c.BGP.RouterID)
		s.set(h, s.kube)
	}
	if self.Name == "" {
		return nil
	}
	return h.setNode(self.Node())
}

func (s *Sources) adjustKube(ctx context.Context, c Config, uses bool, self overlay.Self, state *State) error {
	k := s.Kubernetes()
	if k != nil && !desired.Same(k.of, c) {
		s.set(s.bgp, nil)
		k.stop()
		k = nil
	}
	if k == nil {
		if !uses {
			return nil
		}
		w, err := kube.New(kube.Config{
			Kubeconfig: c.Overlay.Kube.Kubeconfig, Namespace: c.Overlay.Kube.Namespace, Node: NodeName(&c.Overlay), Version: s.version, Log: s.log,
		})
		if err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
		k = NewKubernetes(c, w, s.queue, s.log)
		k.start(ctx, state)
		s.set(s.bgp, k)
	}
	if c.Overlay.Mode == config.OverlayKube && self.Name != "" {
		k.publish(self.Node())
	}
	return nil
}

func (s *Sources) set(h *BGP, k *Kubernetes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bgp, s.kube = h, k
}

// Stop ends what runs, at the daemon's end.
func (s *Sources) Stop() {
	h, k := s.BGP(), s.Kubernetes()
	s.set(nil, nil)
	if h != nil {
		h.leave()
	}
	if k != nil {
		k.leave()
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
