package apitest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/pods"
)

// PodMTU is what AddPod says.
const PodMTU = 1440

// Pods are those that were added.
func (a *Agent) Pods() ([]pods.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.pods), a.Err
}

// AddPod gives the next addresses.
func (a *Agent) AddPod(key pods.Attachment, p pods.Pod) (pods.Network, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return pods.Network{}, a.Err
	}
	n := len(a.pods) + 2
	s := pods.Status{Attachment: key, Pod: p, Addresses: []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", n)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:1::%d", n)),
	}}
	a.pods = append(a.pods, s)
	given := pods.Network{
		Addresses: s.Addresses, Gateways: []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}, MTU: PodMTU,
		Routes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
	if p.Tenant != "" {
		given.Routes = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd09::/48")}
	}
	return given, nil
}

// DeletePod forgets a pod.
func (a *Agent) DeletePod(key pods.Attachment) error {
	_, err := a.retain(func(s pods.Status) bool { return s.Attachment != key })
	return err
}

// CheckPod finds a difference if the pod is not there.
func (a *Agent) CheckPod(key pods.Attachment, _ pods.Pod) ([]string, error) {
	all, err := a.Pods()
	if err != nil || slices.ContainsFunc(all, func(s pods.Status) bool { return s.Attachment == key }) {
		return nil, err
	}
	return []string{"there is no attachment " + key.String()}, nil
}

// RetainPods forgets the others.
func (a *Agent) RetainPods(network string, valid []pods.Attachment) ([]pods.Attachment, error) {
	return a.retain(func(s pods.Status) bool { return s.Network != network || slices.Contains(valid, s.Attachment) })
}

func (a *Agent) retain(stays func(pods.Status) bool) (removed []pods.Attachment, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Err != nil {
		return nil, a.Err
	}
	var left []pods.Status
	for _, s := range a.pods {
		if stays(s) {
			left = append(left, s)
		} else {
			removed = append(removed, s.Attachment)
		}
	}
	a.pods = left
	return removed, nil
}

// PodReadiness is what Readiness says.
func (a *Agent) PodReadiness() (pods.Readiness, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Readiness, a.Err
}
