package agent

import (
	"time"

	"github.com/culvert-net/culvert/internal/agent/pods"
)

// usePods calls f while the data path is there to stay.
func (c *core) usePods(f func(*pods.Pods) error) error {
	if err := c.isReady(); err != nil {
		return err
	}
	return c.pods.Use(func() error { return f(c.pods) })
}

// AddPod gives a pod its addresses, and has packets reach it: all of it, or
// nothing. A caller that asks again gets the same. Errors: ErrNotReady,
// ErrExhausted, ErrInvalid.
func (a *Agent) AddPod(key Attachment, v Pod) (out PodNetwork, err error) {
	begun := time.Now()
	err = a.core.usePods(func(p *pods.Pods) error {
		out, err = p.Add(key, v)
		return err
	})
	a.log.Debug("pod add", "attachment", key.String(), "took", time.Since(begun), "error", err)
	return out, err
}

// DeletePod takes a pod's addresses back. A pod that is gone is no error.
func (a *Agent) DeletePod(key Attachment) error {
	return a.core.usePods(func(p *pods.Pods) error { return p.Remove(key) })
}

// CheckPod lists what of a pod is not as AddPod left it.
func (a *Agent) CheckPod(key Attachment) (differences []string, err error) {
	err = a.core.usePods(func(p *pods.Pods) error {
		differences, err = p.Check(key)
		return err
	})
	return differences, err
}

// RetainPods deletes the pods of a CNI network that are not among the valid
// ones, and returns which these were.
func (a *Agent) RetainPods(network string, valid []Attachment) (removed []Attachment, err error) {
	err = a.core.usePods(func(p *pods.Pods) error {
		removed, err = p.Retain(network, valid)
		return err
	})
	return removed, err
}

// PodReadiness says whether pods can be added.
func (a *Agent) PodReadiness() (r PodReadiness, err error) {
	err = a.core.usePods(func(p *pods.Pods) error {
		r = p.Readiness()
		return nil
	})
	if err == nil && !r.Ready {
		r.Reason = withSilence(a.sources.Problem(), r.Reason)
	}
	return r, err
}

// Pods are those on this node, by their addresses.
func (a *Agent) Pods() (out []PodStatus, err error) {
	err = a.core.usePods(func(p *pods.Pods) error {
		out = p.List()
		return nil
	})
	return out, err
}
