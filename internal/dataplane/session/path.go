package session

import (
	"net/netip"
	"unsafe"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Paths are where the rules of sessions lead in an outer header. The caller of its methods
// holds the data path's lock.
type Paths struct{ s *Sessions }

// wordAdjacency is the word of an entry of forwarding with the adjacency, in its first half.
const wordAdjacency = int(unsafe.Offsetof(abi.Forwarding{}.Adjacency)) / 8

// Changed leads what goes to a remote end to the next hop that it has now.
func (p *Paths) Changed(remote netip.Addr) error {
	f := p.s.forwardings
	hop := p.s.node.Toward(remote)
	for model, e := range f.byModel {
		if !model.tunnels() || model.Remote != remote || e.hop == hop {
			continue
		}
		index, err := p.s.node.Acquire(hop)
		if err != nil {
			return err
		}
		e.value.Adjacency = index
		f.array.StoreHalf(e.index, wordAdjacency, 0, index)
		former := e.hop
		e.hop = hop
		if err := p.s.node.Release(former); err != nil {
			return err
		}
	}
	return nil
}

// Each calls visit for each way to forward to a remote end or into a policy (Flow.Policy), with the outer
// source (the zero Addr: the policy's).
func (p *Paths) Each(visit func(source netip.Addr, to *Forwarding)) {
	for model, e := range p.s.forwardings.byModel {
		model.Flow.Policy = e.way.Policy // model is a copy
		if model.tunnels() || model.Flow.Policy != "" {
			visit(p.s.forwardings.source(&model), &model)
		}
	}
}

// tunnels says whether packets get an outer header to Remote.
func (m *Forwarding) tunnels() bool { return m.Kind == ForwardGTPU || m.Kind == ForwardSRv6 }
