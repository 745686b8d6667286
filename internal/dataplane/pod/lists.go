package pod

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// Lists are the numbers of the rules by which a pod takes packets and may send them; 0: it
// is not isolated in that direction.
type Lists struct {
	Ingress, Egress uint32
	Peers           uint32 // the table that says who peers are
}

// PolicyCounts are what NetworkPolicies did with the packets of a pod, since it was put.
type PolicyCounts struct {
	IngressDropped, EgressDropped uint64 // packets
	IngressFlows, EgressFlows     uint64 // that began, and were allowed
	Displaced                     uint64 // flows that were forgotten early for new ones of this pod
}

// Enforce has NetworkPolicies looked at, or not: new pods take and send nothing, but from and
// to this node's own stack, until SetLists says what they may. The caller holds the lock.
func (t *Table) Enforce(enforce bool) error {
	t.enforced = enforce
	for _, p := range t.pods {
		value := p.value
		value.Enforced = 0
		if enforce {
			value.Enforced = 1
		}
		if err := t.write(p, value); err != nil {
			return err
		}
	}
	return nil
}

// ListsOf says what each pod has, by ifindex. The caller holds the lock.
func (t *Table) ListsOf() map[int]Lists {
	out := make(map[int]Lists, len(t.pods))
	for ifindex, p := range t.pods {
		out[ifindex] = Lists{p.value.Ingress, p.value.Egress, p.value.Peers}
	}
	return out
}

// AnyIsolated says whether a pod is. The caller holds the lock.
func (t *Table) AnyIsolated() bool {
	for _, p := range t.pods {
		if isIsolated(p.value) {
			return true
		}
	}
	return false
}

func isIsolated(p abi.Pod) bool { return p.Ingress|p.Egress != 0 }

// TenantOf is the tenant of a pod. The caller holds the lock.
func (t *Table) TenantOf(ifindex int) uint8 {
	if p := t.pods[ifindex]; p != nil {
		return p.tenant
	}
	return 0
}

// SetLists changes what a pod has; one that is gone is not an error. The data path asks them
// about flows that it knows, too. The caller holds the lock.
func (t *Table) SetLists(ifindex int, l Lists) error {
	p := t.pods[ifindex]
	if p == nil {
		return nil
	}
	value := p.value
	value.Ingress, value.Egress, value.Peers = l.Ingress, l.Egress, l.Peers
	if value == p.value {
		return nil
	}
	if err := t.write(p, value); err != nil {
		return err
	}
	return t.renew(p)
}

// Renew has the data path ask again about the flows of all isolated pods. The caller holds
// the lock.
func (t *Table) Renew() error {
	for _, p := range t.pods {
		if isIsolated(p.value) {
			if err := t.renew(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// renew comes after what the generation is about: a packet that sees the new one sees that.
func (t *Table) renew(p *pod) error {
	value := p.value
	value.Generation++
	return t.write(p, value)
}

// PolicyCounts are those of all pods, by ifindex.
func (t *Table) PolicyCounts() (map[int]PolicyCounts, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[int]PolicyCounts, len(t.pods))
	for ifindex, p := range t.pods {
		var n [abi.NetpolCountNETPOL_COUNTS]uint64
		for i := range n {
			c, err := counter.Read(t.counts.Policies, p.index*uint32(len(n))+uint32(i))
			if err != nil {
				return nil, fmt.Errorf("pod at interface %d: %w", ifindex, err)
			}
			n[i] = c.Packets
		}
		out[ifindex] = PolicyCounts{
			IngressDropped: n[abi.NetpolCountNETPOL_INGRESS_DROPPED], EgressDropped: n[abi.NetpolCountNETPOL_EGRESS_DROPPED],
			IngressFlows: n[abi.NetpolCountNETPOL_INGRESS_FLOWS], EgressFlows: n[abi.NetpolCountNETPOL_EGRESS_FLOWS],
			Displaced: n[abi.NetpolCountNETPOL_DISPLACED],
		}
	}
	return out, nil
}
