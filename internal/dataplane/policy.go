package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// user is what refers to a policy or a tunnel.
type user struct {
	kind userKind
	key  string
}

type userKind string

const (
	userSID      userKind = "sid"
	userSteering userKind = "steering"
	userGTP4D    userKind = "h_m_gtp4_d"
	userTunnel   userKind = "tunnel"
	userSession  userKind = "session"
)

// users counts references: while an owner changes, it holds its new state and
// its former.
type users map[user]int

func (u *users) use(who user) {
	if *u == nil {
		*u = users{}
	}
	(*u)[who]++
}

func (u *users) unuse(who user) {
	if (*u)[who]--; (*u)[who] <= 0 {
		delete(*u, who)
	}
}

// any names one user, for messages.
func (u users) any() string {
	names := make([]string, 0, len(u))
	for who := range u {
		names = append(names, string(who.kind)+" "+who.key)
	}
	return slices.Min(names)
}

// policy is an SR policy that was put since Open.
type policy struct {
	users
	model srpolicy.Policy
	index uint32
	lists []uint32 // indices of segment_list, as the model's
	adj   []AdjacencyKey
	// source is the outer one, if oneSegment refers to it.
	source    abi.In6
	hasSource bool
}

// behavior is how the policy encapsulates.
func (p *policy) behavior() srv6.Behavior { return policyBehavior(p.model) }

func policyBehavior(p srpolicy.Policy) srv6.Behavior {
	if p.Behavior == srv6.BehaviorNone {
		return srv6.HEncapsRed
	}
	return p.Behavior
}

func (p *policy) layer2() bool {
	return p.behavior() == srv6.HEncapsL2 || p.behavior() == srv6.HEncapsL2Red
}

// PutPolicy adds an SR policy, or changes it: packets see its segment lists
// whole, old or new. With a BindingSID it is a local SID too.
func (d *DataPlane) PutPolicy(m srpolicy.Policy) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.policies[m.Name]; old != nil && reflect.DeepEqual(old.model, m) {
		return nil
	}
	if err := d.putPolicy(m); err != nil {
		return fmt.Errorf("policy %s: %w", m.Name, err)
	}
	return nil
}

func checkPolicy(m srpolicy.Policy) error {
	switch policyBehavior(m) {
	case srv6.HEncaps, srv6.HEncapsRed:
	case srv6.HEncapsL2, srv6.HEncapsL2Red:
		if m.BindingSID.IsValid() {
			return errors.New("binding_sid: a policy for Ethernet frames has none: set behavior to H.Encaps or H.Encaps.Red")
		}
	default:
		return fmt.Errorf("behavior %d: want one of H.Encaps", m.Behavior)
	}
	if m.Name == "" || len(m.Name) > table.NameLength {
		return fmt.Errorf("name: want 1 to %d bytes", table.NameLength)
	}
	if n := len(m.SegmentLists); n > srpolicy.MaxSegmentLists {
		return fmt.Errorf("segment_lists: %d: at most %d", n, srpolicy.MaxSegmentLists)
	}
	for i, l := range m.SegmentLists {
		if n := len(l.Segments); n < 1 || n > srpolicy.MaxSegments {
			return fmt.Errorf("segment_lists[%d]: %d segments: want 1 to %d", i, n, srpolicy.MaxSegments)
		}
		for _, s := range l.Segments {
			if !s.Is6() {
				return fmt.Errorf("segment_lists[%d]: segment %s: want an IPv6 address", i, s)
			}
		}
	}
	return nil
}

func (d *DataPlane) putPolicy(m srpolicy.Policy) error {
	if err := checkPolicy(m); err != nil {
		return err
	}
	old := d.policies[m.Name]
	next := &policy{model: m, users: users{}}
	if old != nil {
		next.users = old.users
		if old.layer2() != next.layer2() && len(old.users) > 0 {
			return fmt.Errorf("behavior: %s uses it: a policy in use stays one for packets or one for frames", old.any())
		}
	}
	if m.BindingSID.IsValid() {
		if s := d.sids[netip.PrefixFrom(m.BindingSID, 128)]; s != nil && s.owner != m.Name {
			return fmt.Errorf("binding_sid %s: there is a local SID%s", m.BindingSID, ofOwner(s.owner))
		}
	}
	var err error
	if next.index, err = d.policyAt(m.Name); err != nil {
		return err
	}
	return d.replacePolicy(old, next)
}

func (d *DataPlane) replacePolicy(old, next *policy) error {
	for _, l := range next.model.SegmentLists {
		next.adj = append(next.adj, AdjacencyKey{NextHop: l.Segments[0]})
	}
	former, err := d.programPolicy(next)
	if err != nil {
		if old == nil {
			err = errors.Join(err, d.forgetPolicy(next.model.Name, next.index))
		}
		return err
	}
	d.takeSource(next)
	d.policies[next.model.Name] = next
	err = errors.Join(d.bindPolicy(old, next), d.policyChanged(next))
	for _, index := range former {
		d.listIndex.Retire(index)
	}
	if old != nil {
		err = errors.Join(err, d.dropPolicy(old))
	}
	return err
}

// policyAt finds or chooses the index of a policy, which it keeps.
func (d *DataPlane) policyAt(name string) (uint32, error) {
	if index, ok := d.policyNames[name]; ok {
		return index, d.names.Put(table.NamePolicy, index, name)
	}
	index, err := d.policyIndex.Alloc()
	if err != nil {
		return 0, err
	}
	d.policyNames[name] = index
	return index, d.names.Put(table.NamePolicy, index, name)
}

// programPolicy writes the lists that are new, then switches to them. It
// returns the former ones, which packets may still meet.
func (d *DataPlane) programPolicy(p *policy) (former []uint32, err error) {
	now := d.srPolicy.Get(p.index)
	idle := map[uint32]abi.SegmentList{} // now in use, and not yet again
	for _, l := range now.List[:now.Count] {
		var content abi.SegmentList
		if err := d.maps[abi.MapSegmentList].Lookup(l.List, &content); err != nil {
			return nil, fmt.Errorf("read table segment_list: %w", err)
		}
		idle[l.List] = content
	}
	var fresh []uint32
	acquired := 0
	defer func() {
		if err == nil {
			return
		}
		for _, index := range fresh {
			d.listIndex.Retire(index)
		}
		err = orRelease(d, err, p.adj[:acquired])
	}()
	entry := abi.SrPolicy{Count: uint32(len(p.model.SegmentLists)), Behavior: uint32(p.behavior())}
	thresholds := p.model.Thresholds()
	for i, l := range p.model.SegmentLists {
		content := d.listEntry(p, l)
		if content.Adjacency, err = d.acquire(p.adj[i]); err != nil {
			return nil, err
		}
		acquired++
		index, ok := takeList(idle, content)
		if !ok {
			if index, err = d.newList(content); err != nil {
				return nil, err
			}
			fresh = append(fresh, index)
		}
		p.lists = append(p.lists, index)
		entry.List[i] = abi.WeightedList{Threshold: thresholds[i], List: index}
	}
	d.writePolicy(p.index, entry)
	return slices.Collect(maps.Keys(idle)), nil
}

func (d *DataPlane) listEntry(p *policy, l srpolicy.SegmentList) abi.SegmentList {
	e := abi.SegmentList{Count: uint8(len(l.Segments)), Source: abi.In6Of(d.policySource(p.model))}
	for n, s := range l.Segments {
		e.Segment[len(l.Segments)-1-n] = abi.In6Of(s)
	}
	return e
}

func (d *DataPlane) policySource(m srpolicy.Policy) netip.Addr {
	if m.Source.IsValid() {
		return m.Source
	}
	return d.want.Source
}

// takeList finds a segment list, and with it its counter, among those that the
// policy has.
func takeList(idle map[uint32]abi.SegmentList, content abi.SegmentList) (uint32, bool) {
	found, ok := uint32(0), false
	for index, c := range idle {
		if c == content && (!ok || index < found) {
			found, ok = index, true
		}
	}
	delete(idle, found)
	return found, ok
}

func (d *DataPlane) newList(content abi.SegmentList) (uint32, error) {
	index, err := d.listIndex.Alloc()
	if err != nil {
		return 0, err
	}
	if err := d.maps[abi.MapSegmentList].Put(index, &content); err != nil {
		d.listIndex.Retire(index)
		return 0, fmt.Errorf("write table segment_list: %w", err)
	}
	return index, counter.Zero(d.maps[abi.MapListCounter], index)
}

// writePolicy changes sr_policy[index]. The first word holds the number of
// lists, each further one a list. At every moment the last list that counts
// takes all hashes, and every list that counts is old or new.
func (d *DataPlane) writePolicy(index uint32, next abi.SrPolicy) {
	now := d.srPolicy.Get(index)
	from, to := table.ToWords(now), table.ToWords(next)
	store := func(word int) {
		if from[word] != to[word] {
			d.srPolicy.Store(index, word, to[word])
		}
	}
	if next.Count <= now.Count { // the new last one first, then fewer
		for word := int(next.Count); word >= 1; word-- {
			store(word)
		}
		store(0)
		for word := int(next.Count) + 1; word < len(to); word++ {
			store(word)
		}
		return
	}
	for word := int(now.Count) + 1; word < len(to); word++ {
		store(word)
	}
	store(0)
	for word := int(now.Count); word >= 1; word-- {
		store(word)
	}
}

// bindPolicy keeps the binding SID's local SID.
func (d *DataPlane) bindPolicy(old, next *policy) error {
	name := next.model.Name
	if next.model.BindingSID.IsValid() {
		behavior := srv6.EndB6EncapsRed
		if next.behavior() == srv6.HEncaps {
			behavior = srv6.EndB6Encaps
		}
		err := d.putSID(name, srv6.LocalSID{SID: netip.PrefixFrom(next.model.BindingSID, 128), Behavior: behavior, Policy: name})
		if err != nil {
			return fmt.Errorf("binding_sid: %w", err)
		}
	}
	if old != nil && old.model.BindingSID.IsValid() && old.model.BindingSID != next.model.BindingSID {
		return d.unbindPolicy(old)
	}
	return nil
}

func (d *DataPlane) unbindPolicy(p *policy) error {
	s := d.sids[netip.PrefixFrom(p.model.BindingSID, 128)]
	if s == nil || s.owner != p.model.Name {
		return nil
	}
	return d.deleteSID(s)
}

// policyChanged tells those whose entries hold a part of the policy.
func (d *DataPlane) policyChanged(p *policy) error {
	for who := range p.users {
		if err := d.replaceSteering(who); err != nil {
			return err
		}
	}
	return nil
}

// replaceSteering places steering by prefix anew, after what it goes to
// changed.
func (d *DataPlane) replaceSteering(who user) error {
	s := d.steerings[who.key]
	if who.kind != userSteering || s == nil || s.model.Interface != "" {
		return nil
	}
	return d.placeSteering(s)
}

// oneSegment is the tunnel entry for a policy that pushes no more than one
// segment, which needs no SRH: all that is pushed is in the entry.
func (d *DataPlane) oneSegment(p *policy) (abi.Tunnel, bool) {
	if !p.hasSource {
		return abi.Tunnel{}, false
	}
	return abi.Tunnel{
		Action: uint8(abi.TunnelActionTUNNEL_SRV6),
		Remote: abi.In6Of(p.model.SegmentLists[0].Segments[0]),
		Source: d.sources[p.source].index, Adjacency: d.adjacencies[p.adj[0]].index,
		Index: p.lists[0],
	}, true
}

// takeSource refers to the policy's outer source, if oneSegment needs it and
// the table has room.
func (d *DataPlane) takeSource(p *policy) {
	lists := p.model.SegmentLists
	if p.behavior() != srv6.HEncapsRed || len(lists) != 1 || len(lists[0].Segments) != 1 {
		return
	}
	p.source = abi.In6Of(d.policySource(p.model))
	index, err := d.acquireSource(p.source)
	p.hasSource = err == nil && index != 0
}

// dropPolicy ends the references of a policy's former state.
func (d *DataPlane) dropPolicy(p *policy) error {
	if p.hasSource {
		d.releaseSource(p.source)
	}
	return d.release(p.adj...)
}

// DeletePolicy removes a policy that nothing refers to. One that is not there
// is not an error.
func (d *DataPlane) DeletePolicy(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.policies[name]
	if p == nil {
		return nil
	}
	if err := d.Sessions.reap(); err != nil {
		return err
	}
	binding := user{userSID, netip.PrefixFrom(p.model.BindingSID, 128).String()}
	for who := range p.users {
		if who != binding || !p.model.BindingSID.IsValid() {
			return fmt.Errorf("policy %s: %s %s uses it: delete that first", name, who.kind, who.key)
		}
	}
	if p.model.BindingSID.IsValid() {
		if err := d.unbindPolicy(p); err != nil {
			return err
		}
	}
	delete(d.policies, name)
	if err := d.forgetPolicy(name, p.index); err != nil {
		return err
	}
	return d.dropPolicy(p)
}

// forgetPolicy gives back a policy's entry and its lists'.
func (d *DataPlane) forgetPolicy(name string, index uint32) error {
	now := d.srPolicy.Get(index)
	d.srPolicy.Store(index, 0, 0)
	for _, l := range now.List[:now.Count] {
		d.listIndex.Retire(l.List)
	}
	d.policyIndex.Retire(index)
	delete(d.policyNames, name)
	return d.names.Delete(table.NamePolicy, index)
}

// ListCounters counts what each segment list of a policy carried, in the
// order of the policy. It is nil if there is no such policy.
func (d *DataPlane) ListCounters(name string) ([]counter.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.policies[name]
	if p == nil {
		return nil, nil
	}
	out := make([]counter.Counter, len(p.lists))
	for i, index := range p.lists {
		var err error
		if out[i], err = counter.Read(d.maps[abi.MapListCounter], index); err != nil {
			return nil, err
		}
	}
	return out, nil
}
