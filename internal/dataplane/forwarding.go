package dataplane

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// firstForwarding is the first entry of `forwarding` that is used. An entry of
// pdr has the index of one in the word that holds the length of a run of
// filters where it leads to these, so that every index is to be long enough.
const firstForwarding = anyLength

// maxForwardings bounds the table: peers, policies and markings, not sessions.
const maxForwardings = 65536

// maxIdleForwardings stay for whoever wants them again.
const maxIdleForwardings = 1024

// maxArgsOffset leaves room for Args.Mob.Session in a SID.
const maxArgsOffset = 128 - 40

// maxSlices bounds slices' numbers.
const maxSlices = 1024

// forwardingBook is an entry that rules share.
type forwardingBook struct {
	index uint32
	refs  int
	value abi.Forwarding
	// known says that model and what it refers to are there: not yet in what
	// an earlier daemon left.
	known bool
	model Forwarding // without its TEID
	adj   AdjacencyKey
}

func (d *DataPlane) checkForwarding(f *Forwarding) error {
	if f.Slice >= maxSlices {
		return fmt.Errorf("slice %d: want less than %d", f.Slice, maxSlices)
	}
	if f.Source.IsValid() && f.Remote.IsValid() && f.Source.Is4() != f.Remote.Is4() {
		return errors.New("source: want the family of remote")
	}
	if f.ArgsOffset > maxArgsOffset {
		return fmt.Errorf("argument offset %d: want at most %d", f.ArgsOffset, maxArgsOffset)
	}
	switch f.Kind {
	case ForwardTable:
	case ForwardGTPU:
		if !f.Remote.IsValid() || f.TEID == 0 {
			return errors.New("want a remote address and TEID")
		}
	case ForwardSRv6:
		if !f.Remote.Is6() {
			return fmt.Errorf("remote %s: want an IPv6 address", f.Remote)
		}
	case ForwardPolicy:
		switch p := d.policies[f.Policy]; {
		case p == nil:
			return fmt.Errorf("policy %q: there is none of that name", f.Policy)
		case p.layer2():
			return fmt.Errorf("policy %q: it encapsulates Ethernet frames", f.Policy)
		}
	case ForwardLink:
		if d.ethernet[f.Link] == nil {
			return fmt.Errorf("%s: there is no such link", f.Link)
		}
	default:
		return fmt.Errorf("forwarding of kind %d", f.Kind)
	}
	return nil
}

// forwardingSource is the outer source address, the node's own unless the model
// has one.
func (d *DataPlane) forwardingSource(f *Forwarding) netip.Addr {
	switch {
	case f.Source.IsValid() || f.Kind == ForwardTable || f.Kind == ForwardPolicy || f.Kind == ForwardLink:
		return f.Source
	case f.Kind == ForwardSRv6:
		return d.want.Source
	}
	for _, a := range d.want.GTPUAddresses {
		if a.Is4() == f.Remote.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// forwardingEntry is the entry for a model whose adjacency is known.
func (d *DataPlane) forwardingEntry(f *Forwarding, adjacency uint32) abi.Forwarding {
	e := abi.Forwarding{
		Adjacency: adjacency, Slice: f.Slice, Tos: f.ToS & f.ToSMask, TosMask: f.ToSMask,
		Source: abi.In6Of(d.forwardingSource(f)), Remote: abi.In6Of(f.Remote),
	}
	e.ArgsAt = f.ArgsOffset
	if f.Remote.Is4() {
		e.Ipv4 = 1
	}
	switch f.Kind {
	case ForwardTable:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_TABLE), abi.KernelTable(f.Table)
	case ForwardGTPU:
		e.Kind = uint8(abi.ForwardingKindFORWARD_GTPU)
	case ForwardSRv6:
		e.Kind = uint8(abi.ForwardingKindFORWARD_SRV6)
	case ForwardPolicy:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_POLICY), d.policies[f.Policy].index
	case ForwardLink:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_LINK), d.ethernet[f.Link].number
	}
	if f.Internal {
		e.Internal = 1
	}
	return e
}

// acquireForwarding refers to the entry of a model, which checkForwarding has
// seen.
func (d *DataPlane) acquireForwarding(model Forwarding) (uint32, error) {
	s := d.sessions
	model.TEID = 0
	if f := s.forwardings[model]; f != nil {
		if f.refs == 0 {
			s.idle--
		}
		f.refs++
		return f.index, nil
	}
	var key AdjacencyKey
	if model.Kind == ForwardGTPU || model.Kind == ForwardSRv6 {
		key = AdjacencyKey{NextHop: model.Remote}
	} else if model.Kind == ForwardLink {
		key = model.Link.key()
	}
	adjacency, err := d.acquire(key)
	if err != nil {
		return 0, err
	}
	f, err := d.placeForwarding(d.forwardingEntry(&model, adjacency))
	if err != nil {
		return 0, errors.Join(err, d.release(key))
	}
	if model.Kind == ForwardPolicy {
		d.policies[model.Policy].use(user{userSession, "forwarding"})
	}
	f.known, f.model, f.adj = true, model, key
	f.refs++
	s.forwardings[model] = f
	return f.index, nil
}

// placeForwarding finds the entry among those of an earlier daemon, or writes
// one that no packet reaches yet.
func (d *DataPlane) placeForwarding(value abi.Forwarding) (*forwardingBook, error) {
	s := d.sessions
	if f := s.recovered[value]; f != nil {
		delete(s.recovered, value)
		return f, nil
	}
	if s.forwardingFree.empty() && s.idle > 0 {
		if err := d.reapForwardings(); err != nil {
			return nil, err
		}
	}
	index, err := d.takeIndex(&s.forwardingFree)
	if err != nil {
		return nil, err
	}
	d.forwarding.Put(index, &value)
	f := &forwardingBook{index: index, value: value}
	s.byForwarding[index] = f
	return f, nil
}

// releaseForwarding ends a reference. The entry stays for a while: packets may
// still meet it, and a peer that has lost its last session gets another soon.
func (d *DataPlane) releaseForwarding(index uint32) error {
	s := d.sessions
	f := s.byForwarding[index]
	if f == nil {
		return nil
	}
	if f.refs--; f.refs > 0 {
		return nil
	}
	if !f.known {
		delete(s.recovered, f.value)
		d.retireForwarding(f)
		return nil
	}
	if s.idle++; s.idle > maxIdleForwardings {
		return d.reapForwardings()
	}
	return nil
}

// reapForwardings gives up the entries that no rule has.
func (d *DataPlane) reapForwardings() error {
	s := d.sessions
	if s == nil {
		return nil
	}
	var errs []error
	for model, f := range s.forwardings {
		if f.refs > 0 {
			continue
		}
		if model.Kind == ForwardPolicy {
			d.policies[model.Policy].unuse(user{userSession, "forwarding"})
		}
		errs = append(errs, d.release(f.adj))
		delete(s.forwardings, model)
		d.retireForwarding(f)
	}
	s.idle = 0
	return errors.Join(errs...)
}

func (d *DataPlane) retireForwarding(f *forwardingBook) {
	delete(d.sessions.byForwarding, f.index)
	d.later(pending{kind: pendingForwarding, index: f.index})
}

// forwardingSourcesChanged lets rules go on with entries that have the node's
// new addresses.
func (d *DataPlane) forwardingSourcesChanged() error {
	s := d.sessions
	if s == nil {
		return nil
	}
	moved := map[uint32]uint32{}
	for model, f := range s.forwardings {
		value := f.value
		value.Source = abi.In6Of(d.forwardingSource(&model))
		if value == f.value {
			continue
		}
		next, err := d.placeForwarding(value)
		if err != nil {
			return err
		}
		next.known, next.model, next.adj, next.refs = true, model, f.adj, f.refs
		s.forwardings[model] = next
		moved[f.index] = next.index
		d.retireForwarding(f)
	}
	if len(moved) == 0 {
		return nil
	}
	for i := uint32(1); i < d.pdr.Len; i++ {
		out := d.pdr.Load(i, wordPDROut)
		if to := moved[uint32(out>>32)]; to != 0 && actionOf(d.pdr.Load(i, wordPDRDo)) == actionForward {
			d.pdr.Store(i, wordPDROut, out&0xffffffff|uint64(to)<<32)
		}
	}
	return nil
}
