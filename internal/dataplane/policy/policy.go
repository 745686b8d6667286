package policy

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Policy is an SR policy that was written since Open.
type Policy struct {
	ref.Users
	model srpolicy.Policy
	index uint32
	lists []uint32 // indices of segment_list, as the model's
	adj   []adjacency.Key
	// source is the outer one, if OneSegment refers to it.
	source    abi.In6
	hasSource bool
}

// Index is the policy's entry of sr_policy.
func (p *Policy) Index() uint32 { return p.index }

// Lists are the indices of its segment lists, in their order, those that protect it last.
func (p *Policy) Lists() []uint32 { return p.lists }

// behavior is how the policy encapsulates.
func (p *Policy) behavior() srv6.Behavior { return behaviorOf(p.model) }

func behaviorOf(p srpolicy.Policy) srv6.Behavior { return cmp.Or(p.Behavior, srv6.HEncapsRed) }

// Layer2 says whether the policy carries Ethernet frames, not packets.
func (p *Policy) Layer2() bool {
	return p.behavior() == srv6.HEncapsL2 || p.behavior() == srv6.HEncapsL2Red
}

// Table is the tables sr_policy, segment_list and list_counter.
type Table struct {
	mu       *sync.Mutex
	settings *settings.Book
	hops     *adjacency.Table
	sources  *adjacency.Sources
	names    *table.Names

	Tables
	indexes, listIndexes *table.Indexes

	policies map[string]*Policy
	indexOf  map[string]uint32 // by name, those of an earlier daemon too
	past     past

	// Who opens the data path sets these:
	SIDs    Binder               // binding SIDs
	Changed func(ref.User) error // writes a user again that holds a part of the policy
	Reap    func() error         // ends references that sessions no longer need
}

// Binder keeps binding SIDs.
type Binder interface {
	// CheckBinding refuses a SID that is something else.
	CheckBinding(policy string, sid netip.Addr) error
	PutBinding(policy string, sid netip.Addr, behavior srv6.Behavior) error
	DeleteBinding(policy string, sid netip.Addr) error
}

// Tables are the tables as packets see them.
type Tables struct {
	Entries *table.Array[abi.SrPolicy] `map:"sr_policy"`
	Lists   *ebpf.Map                  `map:"segment_list"`
	ByList  *ebpf.Map                  `map:"list_counter"`
}

// New takes the tables, and from names what an earlier daemon put. mu is the data
// path's lock.
func New(mu *sync.Mutex, tables Tables, names *table.Names, grace *table.Grace, book *settings.Book, hops *adjacency.Table, sources *adjacency.Sources) *Table {
	t := &Table{
		Tables: tables, mu: mu, settings: book, hops: hops, sources: sources, names: names,
		indexes:     table.NewIndexes(grace, abi.MapSrPolicy, "policies", 1, tables.Entries.Len),
		listIndexes: table.NewIndexes(grace, abi.MapSegmentList, "segment_lists", 1, tables.Lists.MaxEntries()),
		policies:    map[string]*Policy{}, indexOf: map[string]uint32{}, past: past{sums: map[string]map[route]counter.Counter{}, retired: map[uint32]owner{}},
	}
	policies, lists := map[uint32]bool{}, map[uint32]bool{}
	for index, name := range names.All(table.NamePolicy) {
		policies[index] = true
		t.indexOf[name] = index
		for list := range listsOf(t.Entries.Get(index)) {
			lists[list] = true
		}
	}
	t.indexes.Restore(policies)
	t.listIndexes.Restore(lists)
	return t
}

// listsOf are the indices of an entry's segment lists, also of those that packets do not take
// now. An entry that is in no use may hold what it had.
func listsOf(p abi.SrPolicy) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, l := range p.List {
			if p.Count != 0 && l.List != 0 && !yield(l.List) {
				return
			}
		}
	}
}

// Get is a policy that was put since Open, or nil.
func (t *Table) Get(name string) *Policy { return t.policies[name] }

// SourceChanged writes policies again that have the node's source. The caller
// holds the lock.
func (t *Table) SourceChanged() error {
	for _, p := range t.policies {
		if p.model.Source.IsValid() {
			continue
		}
		if err := t.PutLocked(p.model); err != nil {
			return err
		}
	}
	return nil
}

// PathChanged writes policies again that have a list with this path, whose next hop is another
// one now. The caller holds the lock.
func (t *Table) PathChanged(path adjacency.Path) error {
	var errs []error
	for _, p := range t.policies {
		if slices.ContainsFunc(p.model.Lists(), func(l srpolicy.SegmentList) bool { return adjacency.PathOf(l.Segments...) == path }) {
			errs = append(errs, t.PutLocked(p.model))
		}
	}
	return errors.Join(errs...)
}

// Paths calls f for the segments of each list, with the outer source. The caller holds the lock.
func (t *Table) Paths(f func(policy string, source netip.Addr, segments []netip.Addr)) {
	for name, p := range t.policies {
		for _, l := range p.model.Lists() {
			f(name, t.sourceOf(p.model), l.Segments)
		}
	}
}

// Sweep removes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (t *Table) Sweep() error {
	var errs []error
	for name, index := range t.indexOf {
		if t.policies[name] == nil {
			errs = append(errs, t.forget(name, index))
		}
	}
	return errors.Join(errs...)
}

// Usage says of policies and of segment lists how many there are, and how many
// there can be.
func (t *Table) Usage() (policies, lists table.Usage) {
	return t.indexes.Usage(), t.listIndexes.Usage()
}

// NameAt names the policy at an index of sr_policy; empty: none.
func (t *Table) NameAt(index uint32) string {
	return table.KeyOf(t.policies, func(p *Policy) bool { return index != 0 && p.index == index })
}

// ListAt names the policy that has an index of segment_list, and says which of its
// lists that is; -1: none.
func (t *Table) ListAt(index uint32) (name string, list int) {
	for name, p := range t.policies {
		if i := slices.Index(p.lists, index); i >= 0 && index != 0 {
			return name, i
		}
	}
	return "", -1
}

// Put adds an SR policy, or changes it: packets see its segment lists
// whole, old or new. With a BindingSID it is a local SID too.
func (t *Table) Put(m srpolicy.Policy) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.policies[m.Name]; old != nil && reflect.DeepEqual(old.model, m) {
		return nil
	}
	if err := t.PutLocked(m); err != nil {
		return fmt.Errorf("policy %s: %w", m.Name, err)
	}
	return nil
}

func check(m srpolicy.Policy) error {
	switch behaviorOf(m) {
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
	lists := m.Lists()
	if n := len(lists); n > srpolicy.MaxSegmentLists {
		return fmt.Errorf("segment_lists: %d: at most %d", n, srpolicy.MaxSegmentLists)
	}
	for i, l := range lists {
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

// PutLocked is Put for a caller that holds the lock, also where the model is the
// same and what it takes from the settings is not.
func (t *Table) PutLocked(m srpolicy.Policy) error {
	if err := check(m); err != nil {
		return err
	}
	old := t.policies[m.Name]
	next := &Policy{model: m, Users: ref.Users{}}
	if old != nil {
		next.Users = old.Users
		if old.Layer2() != next.Layer2() && len(old.Users) > 0 {
			return fmt.Errorf("behavior: %s uses it: a policy in use stays one for packets or one for frames", old.Any())
		}
	}
	if m.BindingSID.IsValid() {
		if err := t.SIDs.CheckBinding(m.Name, m.BindingSID); err != nil {
			return err
		}
	}
	var err error
	if next.index, err = t.place(m.Name); err != nil {
		return err
	}
	next.adj = t.hopsOf(m)
	former, err := t.program(next)
	if err != nil {
		if old == nil {
			err = errors.Join(err, t.forget(next.model.Name, next.index))
		}
		return err
	}
	// The outer source is referred to if OneSegment needs it and its table has room.
	if lists := m.Lists(); next.behavior() == srv6.HEncapsRed && len(lists) == 1 && len(lists[0].Segments) == 1 {
		next.source = abi.In6Of(t.sourceOf(m))
		source, full := t.sources.Acquire(next.source)
		next.hasSource = full == nil && source != 0
	}
	t.policies[next.model.Name] = next
	err = t.bind(old, next)
	for who := range next.Users {
		err = errors.Join(err, t.Changed(who))
	}
	for _, index := range former {
		if old != nil {
			t.past.retire(index, owner{m.Name, routeOf(old.model.Lists()[slices.Index(old.lists, index)])})
		}
		t.listIndexes.Retire(index)
	}
	if old != nil {
		err = errors.Join(err, t.drop(old))
	}
	return err
}

// hopsOf are Hops with what is known about the paths.
func (t *Table) hopsOf(m srpolicy.Policy) (keys []adjacency.Key) {
	for _, l := range m.Lists() {
		keys = append(keys, t.hops.Toward(l.Segments...))
	}
	return keys
}

// Hops are the next hops that a policy refers to, one for each segment list.
func Hops(m srpolicy.Policy) (keys []adjacency.Key) {
	for _, l := range m.Lists() {
		keys = append(keys, adjacency.Key{NextHop: l.Segments[0]})
	}
	return keys
}

// place finds or chooses the index of a policy, which it keeps.
func (t *Table) place(name string) (uint32, error) {
	index, ok := t.indexOf[name]
	if !ok {
		var err error
		if index, err = t.indexes.Alloc(); err != nil {
			return 0, err
		}
		t.indexOf[name] = index
	}
	return index, t.names.Put(table.NamePolicy, index, name)
}

// program writes the lists that are new, then switches to them. It
// returns the former ones, which packets may still meet.
func (t *Table) program(p *Policy) (former []uint32, err error) {
	idle := map[uint32]abi.SegmentList{} // now in use, and not yet again
	for list := range listsOf(t.Entries.Get(p.index)) {
		var content abi.SegmentList
		if err := t.Lists.Lookup(list, &content); err != nil {
			return nil, fmt.Errorf("read table segment_list: %w", err)
		}
		idle[list] = content
	}
	var fresh []uint32
	acquired := 0
	defer func() {
		if err == nil {
			return
		}
		for _, index := range fresh {
			t.listIndexes.Retire(index)
		}
		err = t.hops.OrRelease(err, p.adj[:acquired])
	}()
	entry := abi.SrPolicy{Behavior: uint16(p.behavior())}
	use(&entry, p.model)
	thresholds := p.model.Thresholds()
	for i, l := range p.model.Lists() {
		content := abi.SegmentList{Count: uint8(len(l.Segments)), Source: abi.In6Of(t.sourceOf(p.model))}
		for n, s := range l.Segments {
			content.Segment[len(l.Segments)-1-n] = abi.In6Of(s)
		}
		if content.Adjacency, err = t.hops.Acquire(p.adj[i]); err != nil {
			return nil, err
		}
		acquired++
		index, ok := takeList(idle, content)
		if !ok {
			if index, err = t.listIndexes.Alloc(); err != nil {
				return nil, err
			}
			fresh = append(fresh, index)
			if err := t.Lists.Put(index, &content); err != nil {
				return nil, fmt.Errorf("write table segment_list: %w", err)
			}
			if err := t.past.reuse(t.ByList, index); err != nil {
				return nil, err
			}
		}
		p.lists = append(p.lists, index)
		entry.List[i] = abi.WeightedList{Threshold: thresholds[i], List: index}
	}
	t.write(p.index, entry)
	return slices.Collect(maps.Keys(idle)), nil
}

// Turn takes segment lists out of all policies that have them, or back, by one store in each: that
// has packets take the lists that protect a policy, or its own again, too. was and now say why
// packets do not take a list, for a reason that the caller knows; empty: they do. What is down
// for another reason stays so.
func (t *Table) Turn(was, now func(segments []netip.Addr) string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.policies {
		lists := p.model.Lists()
		down, up := make([]string, len(lists)), true
		for i, l := range lists {
			if down[i] = p.model.DownAt(i); down[i] == was(l.Segments) {
				down[i] = now(l.Segments)
			}
			up = up && down[i] == ""
		}
		if up {
			down = nil
		}
		if slices.Equal(down, p.model.Down) {
			continue
		}
		p.model.Down = down
		entry := t.Entries.Get(p.index)
		use(&entry, p.model)
		t.write(p.index, entry)
	}
}

// use has packets take the lists that a policy has in use, without those that are down or slow.
func use(entry *abi.SrPolicy, m srpolicy.Policy) {
	first, end := m.InUse()
	entry.First, entry.Count, entry.Down = uint8(first), uint32(end), 0
	for _, i := range m.Out(first, end) {
		entry.Down |= 1 << i
	}
}

func (t *Table) sourceOf(m srpolicy.Policy) netip.Addr {
	return cmp.Or(m.Source, t.settings.Want.Source)
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

// write changes sr_policy[index]. The first word says which lists are in use, each further one
// holds a list. At every moment the last list in use takes all hashes, and every list in use is
// old or new.
func (t *Table) write(index uint32, next abi.SrPolicy) {
	now := t.Entries.Get(index)
	from, to := table.ToWords(now), table.ToWords(next)
	store := func(word int) {
		if from[word] != to[word] {
			t.Entries.Store(index, word, to[word])
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

// bind keeps the binding SID's local SID.
func (t *Table) bind(old, next *Policy) error {
	name := next.model.Name
	if next.model.BindingSID.IsValid() {
		behavior := srv6.EndB6EncapsRed
		if next.behavior() == srv6.HEncaps {
			behavior = srv6.EndB6Encaps
		}
		err := t.SIDs.PutBinding(name, next.model.BindingSID, behavior)
		if err != nil {
			return fmt.Errorf("binding_sid: %w", err)
		}
	}
	if old != nil && old.model.BindingSID.IsValid() && old.model.BindingSID != next.model.BindingSID {
		return t.SIDs.DeleteBinding(name, old.model.BindingSID)
	}
	return nil
}

// OneSegment is the tunnel entry for a policy that pushes no more than one
// segment, which needs no SRH: all that is pushed is in the entry.
func (t *Table) OneSegment(p *Policy) (abi.Tunnel, bool) {
	if !p.hasSource {
		return abi.Tunnel{}, false
	}
	return abi.Tunnel{
		Action: uint8(abi.TunnelActionTUNNEL_SRV6),
		Remote: abi.In6Of(p.model.SegmentLists[0].Segments[0]),
		Source: t.sources.IndexOf(p.source), Adjacency: t.hops.IndexOf(p.adj[0]),
		Index: p.lists[0],
	}, true
}

// drop ends the references of a policy's former state.
func (t *Table) drop(p *Policy) error {
	if p.hasSource {
		t.sources.Release(p.source)
	}
	return t.hops.Release(p.adj...)
}

// Delete removes a policy that nothing refers to. One that is not there
// is not an error.
func (t *Table) Delete(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.policies[name]
	if p == nil {
		return nil
	}
	if err := t.Reap(); err != nil {
		return err
	}
	binding := ref.User{Kind: ref.SID, Key: netip.PrefixFrom(p.model.BindingSID, 128).String()}
	for who := range p.Users {
		if who != binding || !p.model.BindingSID.IsValid() {
			return fmt.Errorf("policy %s: %s %s uses it: delete that first", name, who.Kind, who.Key)
		}
	}
	if p.model.BindingSID.IsValid() {
		if err := t.SIDs.DeleteBinding(name, p.model.BindingSID); err != nil {
			return err
		}
	}
	delete(t.policies, name)
	t.past.forget(name)
	if err := t.forget(name, p.index); err != nil {
		return err
	}
	return t.drop(p)
}

// forget gives back a policy's entry and its lists'.
func (t *Table) forget(name string, index uint32) error {
	now := t.Entries.Get(index)
	t.Entries.Store(index, 0, 0)
	for list := range listsOf(now) {
		t.listIndexes.Retire(list)
	}
	t.indexes.Retire(index)
	delete(t.indexOf, name)
	return t.names.Delete(table.NamePolicy, index)
}

// Counters counts what each segment list of a policy carried, in the order of the policy, those
// that protect it last, and what all did that it has or had: neither falls while the policy is
// there. They are nil and zero if there is no such policy.
func (t *Table) Counters(name string) (lists []counter.Counter, all counter.Counter, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.policies[name]
	if p == nil {
		return nil, all, nil
	}
	before, err := t.past.of(t.ByList, name)
	if err != nil {
		return nil, all, err
	}
	lists = make([]counter.Counter, len(p.lists))
	for i, index := range p.lists {
		if lists[i], err = counter.Read(t.ByList, index); err != nil {
			return nil, all, err
		}
		r := routeOf(p.model.Lists()[i])
		lists[i].Add(before[r])
		delete(before, r) // of two equal lists the first has it
		all.Add(lists[i])
	}
	for _, c := range before {
		all.Add(c)
	}
	return lists, all, nil
}
