package session

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// firstForwarding is the first entry of `forwarding` that is used. An entry of
// pdr has the index of one in the word that holds the length of a run of
// filters where it leads to these, so that every index is to be long enough.
const firstForwarding = anyLength

// maxForwardings bounds the table: peers, policies and markings, not sessions.
const maxForwardings = 65536

// maxIdleForwardings is how many entries without rules stay for the next session.
const maxIdleForwardings = 1024

// maxArgsOffset leaves room for Args.Mob.Session in a SID.
const maxArgsOffset = 128 - 40

// MaxSlices bounds slices' numbers.
const MaxSlices = 1024

// forwardings are the entries of forwarding, which rules of many sessions share.
type forwardings struct {
	node      Node
	array     *table.Array[abi.Forwarding]
	later     func(release)
	releases  *releases
	free      indexStack
	byModel   map[Forwarding]*forwardingEntry // without TEIDs
	byIndex   map[uint32]*forwardingEntry
	recovered map[abi.Forwarding]*forwardingEntry // what an earlier daemon left
	// recovering: until Sweep, rules that nobody has put yet may refer to any entry.
	recovering bool
	idle       int // of byModel: no rule refers to them
	ways       class.SessionWays
	templates  map[Forwarding]uint16 // numbers of ways to forward, without the gNB
	// lastTemplate is the highest of these.
	lastTemplate uint16
	// moving, if set, runs what moves rules to other entries, and moved learns of these.
	moving func(func() error) error
	moved  func(map[uint32]uint32) error
}

// forwardingEntry is an entry, and how many rules refer to it.
type forwardingEntry struct {
	index uint32
	refs  int
	value abi.Forwarding
	// known says that model and what it refers to are there: not yet in what
	// an earlier daemon left.
	known bool
	model Forwarding // without its TEID
	hop   adjacency.Key
	way   class.Way // ForwardPolicy
	// pinned: it stays, and refs counts no more.
	pinned bool
}

// check says what is wrong with a model.
func (f *forwardings) check(m *Forwarding) error {
	if m.Slice >= MaxSlices {
		return fmt.Errorf("slice %d: want less than %d", m.Slice, MaxSlices)
	}
	if m.Source.IsValid() && m.Remote.IsValid() && m.Source.Is4() != m.Remote.Is4() {
		return errors.New("source: want the family of remote")
	}
	if m.ArgsOffset > maxArgsOffset {
		return fmt.Errorf("argument offset %d: want at most %d", m.ArgsOffset, maxArgsOffset)
	}
	switch m.Kind {
	case ForwardTable:
	case ForwardVPN:
		if m.VPN == 0 {
			return errors.New("want the number of a VPN")
		}
	case ForwardGTPU:
		if !m.Remote.IsValid() || m.TEID == 0 {
			return errors.New("want a remote address and TEID")
		}
	case ForwardSRv6:
		if !m.Remote.Is6() {
			return fmt.Errorf("remote %s: want an IPv6 address", m.Remote)
		}
	case ForwardPolicy:
		return f.checkPolicy(m.Flow.Policy)
	case ForwardLink:
		if f.node.LinkNumber(m.Link) == 0 {
			return fmt.Errorf("link %s is missing", m.Link)
		}
	default:
		return fmt.Errorf("forwarding of kind %d", m.Kind)
	}
	return nil
}

// checkPolicy says why sessions cannot take a policy.
func (f *forwardings) checkPolicy(name string) error {
	switch _, layer2, found := f.node.Policy(name); {
	case !found:
		return fmt.Errorf("policy %q is missing", name)
	case layer2:
		return fmt.Errorf("policy %q encapsulates Ethernet frames", name)
	}
	return nil
}

// source is the outer source address, the node's own unless the model has one.
func (f *forwardings) source(m *Forwarding) netip.Addr {
	if m.Source.IsValid() || m.Kind != ForwardSRv6 && m.Kind != ForwardGTPU {
		return m.Source
	}
	return f.node.OuterSource(m)
}

// entry is the entry for a model whose adjacency is known.
func (f *forwardings) entry(m *Forwarding, adjacency uint32) abi.Forwarding {
	e := abi.Forwarding{
		Adjacency: adjacency, Slice: m.Slice, Tos: m.ToS & m.ToSMask, TosMask: m.ToSMask,
		Source: abi.In6Of(f.source(m)), Remote: abi.In6Of(m.Remote), ArgsAt: m.ArgsOffset, UeGroup: uint64(m.Group),
	}
	abi.SetFlag(&e.Ipv4, m.Remote.Is4())
	abi.SetFlag(&e.Internal, m.Internal)
	abi.SetFlag(&e.Control, m.Control)
	switch m.Kind {
	case ForwardTable:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_TABLE), abi.KernelTable(m.Table)
	case ForwardVPN:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_VPN), abi.TenantTable(m.VPN)
	case ForwardGTPU:
		e.Kind = uint8(abi.ForwardingKindFORWARD_GTPU)
	case ForwardSRv6:
		e.Kind = uint8(abi.ForwardingKindFORWARD_SRV6)
	case ForwardPolicy:
		e.Kind = uint8(abi.ForwardingKindFORWARD_POLICY)
		e.Index, e.Class = f.led(f.ways.Of(m.Flow))
	case ForwardLink:
		e.Kind, e.Index = uint8(abi.ForwardingKindFORWARD_LINK), f.node.LinkNumber(m.Link)
	}
	return e
}

// acquire refers to the entry of a model, which check has seen.
func (f *forwardings) acquire(forward *Forwarding) (uint32, error) {
	model := *forward
	model.TEID = 0
	if known := f.byModel[model]; known != nil {
		if known.refs == 0 && !known.pinned {
			f.idle--
		}
		known.refs++
		return known.index, nil
	}
	var hop adjacency.Key
	if model.tunnels() {
		hop = f.node.Toward(model.Remote)
	} else if model.Kind == ForwardLink {
		hop = model.Link.Key()
	}
	adjacency, err := f.node.Acquire(hop)
	if err != nil {
		return 0, err
	}
	if model.Kind == ForwardGTPU {
		if err = f.node.UsePeer(model.Remote); err != nil {
			return 0, errors.Join(err, f.node.Release(hop))
		}
	}
	e, err := f.place(f.entry(&model, adjacency))
	if err != nil {
		return 0, errors.Join(err, f.release(&model, hop))
	}
	e.known, e.model, e.hop = true, model, hop
	if model.Kind == ForwardPolicy {
		e.way = f.ways.Of(model.Flow)
		f.usePolicies(e, true)
	}
	e.refs++
	f.byModel[model] = e
	return e.index, nil
}

// release ends what acquire has of the next hop and of the peer.
func (f *forwardings) release(m *Forwarding, hop adjacency.Key) error {
	err := f.node.Release(hop)
	if m.Kind == ForwardGTPU {
		err = errors.Join(err, f.node.UnusePeer(m.Remote))
	}
	return err
}

// place finds the entry among those of an earlier daemon, or writes one that no
// packet reaches yet.
func (f *forwardings) place(value abi.Forwarding) (*forwardingEntry, error) {
	if e := f.recovered[value]; e != nil {
		delete(f.recovered, value)
		return e, nil
	}
	if f.free.empty() && f.idle > 0 && !f.recovering {
		if err := f.reap(); err != nil {
			return nil, err
		}
	}
	index, err := f.releases.take(&f.free)
	if err != nil {
		return nil, err
	}
	f.array.Put(index, &value)
	e := &forwardingEntry{index: index, value: value}
	f.byIndex[index] = e
	return e, nil
}

// releaseAll ends a reference to each of some entries; 0 is none. An entry stays
// for a while: packets may still meet it, and a peer that has lost its last
// session gets another soon.
func (f *forwardings) releaseAll(list []uint32) error {
	var errs []error
	for _, index := range list {
		e := f.byIndex[index]
		if e == nil || e.pinned {
			continue
		}
		if e.refs--; e.refs > 0 {
			continue
		}
		if !e.known {
			if f.recovering {
				continue // rules that nobody has put yet may refer to it
			}
			delete(f.recovered, e.value)
			f.retire(e)
		} else if f.idle++; f.idle > maxIdleForwardings {
			errs = append(errs, f.reap())
		}
	}
	return errors.Join(errs...)
}

// reap gives up the entries that no rule refers to; none before Sweep.
func (f *forwardings) reap() error {
	if f.recovering {
		return nil
	}
	var errs []error
	for model, e := range f.byModel {
		if e.refs > 0 || e.pinned {
			continue
		}
		if model.Kind == ForwardPolicy {
			f.usePolicies(e, false)
		}
		errs = append(errs, f.release(&model, e.hop))
		delete(f.byModel, model)
		f.retire(e)
	}
	f.idle = 0
	return errors.Join(errs...)
}

func (f *forwardings) retire(e *forwardingEntry) {
	delete(f.byIndex, e.index)
	f.later(release{kind: releaseForwarding, index: e.index})
}

// sourcesChanged lets rules go on with entries that have the node's new
// addresses.
func (f *forwardings) sourcesChanged(pdr *table.Array[abi.Pdr]) error {
	some := false
	for model, e := range f.byModel {
		some = some || e.value.Source != abi.In6Of(f.source(&model))
	}
	switch {
	case !some:
		return nil
	case f.moving == nil:
		return f.move(pdr)
	}
	return f.moving(func() error { return f.move(pdr) })
}

// move is sourcesChanged while nobody else leads rules elsewhere.
func (f *forwardings) move(pdr *table.Array[abi.Pdr]) error {
	moved := map[uint32]uint32{}
	for model, e := range f.byModel {
		value := e.value
		value.Source = abi.In6Of(f.source(&model))
		if value == e.value {
			continue
		}
		next, err := f.place(value)
		if err != nil {
			return err
		}
		next.known, next.model, next.hop, next.way, next.refs, next.pinned = true, model, e.hop, e.way, e.refs, e.pinned
		f.byModel[model] = next
		moved[e.index] = next.index
		f.retire(e)
	}
	for i := uint32(1); i < pdr.Len; i++ {
		out := pdr.Load(i, wordPDROut)
		leads := actionOf(pdr.Load(i, wordPDRDo)) != actionFilters // else it is the length of a run
		if to := moved[uint32(out>>32)]; to != 0 && leads {
			pdr.Store(i, wordPDROut, out&0xffffffff|uint64(to)<<32)
		}
	}
	if f.moved != nil {
		return f.moved(moved)
	}
	return nil
}
