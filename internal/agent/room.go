package agent

import "github.com/culvert-net/culvert/internal/agent/pods"

// PodPools are the prefixes that pods of an agent's node have addresses of.
func PodPools(a *Agent) ([]pods.Pool, error) {
	return usePods(a.core, func(p *pods.Pods) ([]pods.Pool, error) { return p.Pools(), nil })
}

// roomProblems says that no pod can be added to a member for want of addresses. The node stays
// ready: its pods go on, and an address is free when one of them ends.
func roomProblems(of *pods.Pods) []string {
	if err := of.Room(); err != nil {
		return []string{"no more pods can be added: " + err.Error()}
	}
	return nil
}
