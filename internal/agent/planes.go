package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/config"
)

// planes are the control planes that run. They come and go with the
// configuration; what they told before stays as far as the next ones may tell
// it, too.
type planes struct {
	changed chan struct{} // there is something to adjust
	headend *headend      // nil: the node speaks no BGP
	cluster *kubernetes   // nil: it asks nothing of the Kubernetes API
}

// planeConfig is what they are made of.
type planeConfig struct {
	BGP     config.BGP
	Overlay config.Overlay
}

// forBGP and forKube are what each of them depends on.
func (c planeConfig) forBGP() planeConfig {
	return planeConfig{BGP: c.BGP, Overlay: config.Overlay{Mode: c.Overlay.Mode}}
}

func (c planeConfig) forKube() planeConfig {
	return planeConfig{Overlay: config.Overlay{Mode: c.Overlay.Mode, Node: c.Overlay.Node, LocatorPool: c.Overlay.LocatorPool, Kube: c.Overlay.Kube}}
}

// bgpHeadend is the one that runs, or nil.
func (a *Agent) bgpHeadend() *headend {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.planes.headend
}

// touchPlanes has them adjusted soon. It does not wait.
func (a *Agent) touchPlanes() {
	select {
	case a.planes.changed <- struct{}{}:
	default:
	}
}

// runPlanes adjusts them to what is asked for until ctx ends.
func (a *Agent) runPlanes(ctx context.Context) error {
	defer a.stopPlanes()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.planes.changed:
		case <-retry.C:
		}
		if err := a.adjustPlanes(ctx); err != nil {
			a.log.Error("a control plane is not as it is asked for; will try again", "error", err)
		}
		select { // what else comes now is told at once
		case <-ctx.Done():
		case <-time.After(saveInterval):
		}
	}
}

// adjustPlanes starts and stops what is to run, and tells it of this node.
// It is called by one goroutine at a time.
func (a *Agent) adjustPlanes(ctx context.Context) error {
	a.mu.RLock()
	d := a.desired
	a.mu.RUnlock()
	c := planeConfig{bgpOf(d), d.process.Overlay}
	return errors.Join(a.adjustBGP(ctx, c.forBGP(), d), a.adjustKube(ctx, c.forKube(), d))
}

func (a *Agent) adjustBGP(ctx context.Context, c planeConfig, d *desired) error {
	h := a.planes.headend
	if h != nil && !same(h.of, c) {
		a.setPlanes(nil, a.planes.cluster)
		h.stop()
		h = nil
	}
	if h == nil {
		if !c.BGP.RouterID.IsValid() {
			return nil // it speaks no BGP, or does not know yet as whom
		}
		var err error
		if h, err = newHeadend(c, d.told, a.inbox, a.log); err != nil {
			return err
		}
		if err := h.start(ctx); err != nil {
			return err
		}
		a.log.Info("speaks BGP", "asn", c.BGP.ASN, "router_id", c.BGP.RouterID)
		a.setPlanes(h, a.planes.cluster)
	}
	if d.self.Name == "" {
		return nil
	}
	return h.setNode(d.self.Node())
}

func (a *Agent) adjustKube(ctx context.Context, c planeConfig, d *desired) error {
	k := a.planes.cluster
	if k != nil && !same(k.of, c) {
		a.setPlanes(a.planes.headend, nil)
		k.stop()
		k = nil
	}
	if k == nil {
		if !d.process.Overlay.UsesKube() {
			return nil
		}
		var err error
		if k, err = newKubernetes(c, a); err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
		k.start(ctx, d.told)
		a.setPlanes(a.planes.headend, k)
	}
	k.tell(a, d)
	return nil
}

func (a *Agent) setPlanes(h *headend, k *kubernetes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.planes.headend, a.planes.cluster = h, k
}

func (a *Agent) stopPlanes() {
	h, k := a.planes.headend, a.planes.cluster
	a.setPlanes(nil, nil)
	if h != nil {
		h.leave()
	}
	if k != nil {
		k.leave()
	}
}
