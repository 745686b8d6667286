package agent

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netpol"
)

// flowNames are the names of addresses.
type flowNames struct {
	made   time.Time
	pods   map[netpol.Address]flow.End
	local  map[int]flow.End // by ifindex
	nodes  map[netip.Addr]string
	ranges []podRange
}

// podRange is a prefix of the pods of a node.
type podRange struct {
	prefix netip.Prefix
	node   string
}

func (b *flowNames) who(tenant uint8, address netip.Addr, pod int) flow.End {
	if !address.IsValid() {
		return b.local[pod]
	}
	if e, known := b.pods[netpol.Address{Tenant: tenant, Addr: address}]; known {
		return e
	}
	if tenant != 0 {
		return flow.End{}
	}
	if node := b.nodes[address]; node != "" {
		return flow.End{Node: node}
	}
	if at := slices.IndexFunc(b.ranges, func(r podRange) bool { return r.prefix.Contains(address) }); at >= 0 {
		return flow.End{Node: b.ranges[at].node, Workload: flow.WorkloadUnknown}
	}
	return flow.End{}
}

// newNames asks everybody who knows names.
func (f *flowKeeper) newNames(now time.Time) *flowNames {
	b := &flowNames{made: now, pods: map[netpol.Address]flow.End{}, local: map[int]flow.End{}, nodes: map[netip.Addr]string{}}
	var self string
	_ = f.core.read(func() error { // a daemon that ends has no names
		g := f.core.goal
		self = g.Self.Name
		for _, a := range append([]netip.Addr{g.Self.Address}, g.Self.Addresses...) {
			b.nodes[a] = self
		}
		for _, p := range g.Self.Prefixes {
			b.nodes[p.Masked().Addr().Next()] = self // by which its kernel sends to pods
		}
		if g.Wanted == nil {
			return nil
		}
		for _, p := range g.Wanted.Peers {
			name := cmp.Or(p.Name, p.Address.String())
			for _, a := range append([]netip.Addr{p.Address}, p.Addresses...) {
				b.nodes[a] = name
			}
			for _, prefix := range p.Prefixes {
				b.nodes[prefix.Masked().Addr().Next()] = name
				b.ranges = append(b.ranges, podRange{prefix, name})
			}
		}
		return nil
	})
	workloads := map[string]string{} // by pod
	state, _ := f.source.NetworkState()
	for _, p := range state.Pods {
		workloads[p.Key()] = p.Workload
	}
	for a, p := range state.Owners() {
		b.pods[a] = flow.End{Pod: p.Key(), Namespace: p.Namespace, Workload: p.Workload, Node: p.Node}
	}
	for _, p := range f.core.pods.List() {
		e := flow.End{Pod: p.Key(), Namespace: p.Namespace, Workload: workloads[p.Key()], Node: self, Local: true}
		b.local[p.HostIfindex] = e
		for _, a := range p.Addresses {
			b.pods[netpol.Address{Tenant: p.TenantID, Addr: a}] = e
		}
	}
	return b
}
