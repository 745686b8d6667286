package sid

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/mobile"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/srv6"
)

// sid is a local SID that was put since Open.
type sid struct {
	model srv6.LocalSID
	owner string // "", the policy whose binding SID it is, or forSessions
	index uint32
	adj   []adjacency.Key
}

// Table is the tables local_sid, sid_by_prefix and sid_counter.
type Table struct {
	mu       *sync.Mutex
	settings *settings.Book
	hops     *adjacency.Table
	policies *policy.Table
	mobiles  *mobile.Table

	Tables
	indexes *table.Indexes // of entries that ByPrefix leads to: (ranges, 2*ranges]
	ranges  uint32         // locators lead to [1, ranges]

	sids   map[netip.Prefix]*sid
	inside map[uint32]int // see CountInside
}

// Tables are the tables as packets see them.
type Tables struct {
	Entries  *table.Array[abi.LocalSid]      `map:"local_sid"`
	ByPrefix *table.Hash[abi.SidKey, uint32] `map:"sid_by_prefix" limit:"sids"`
	Counters *ebpf.Map                       `map:"sid_counter"`
}

// New takes the tables and marks what an earlier daemon put. mu is the data path's
// lock.
func New(mu *sync.Mutex, tables Tables, grace *table.Grace, book *settings.Book, hops *adjacency.Table, policies *policy.Table, mobiles *mobile.Table) *Table {
	t := &Table{Tables: tables, mu: mu, settings: book, hops: hops, policies: policies, mobiles: mobiles, sids: map[netip.Prefix]*sid{}}
	t.ranges = t.Entries.Len / 2
	t.indexes = table.NewIndexes(grace, abi.MapLocalSid, "sids", t.ranges+1, t.Entries.Len)
	taken := map[uint32]bool{}
	for _, index := range t.ByPrefix.All() {
		taken[index] = true
	}
	t.indexes.Restore(taken)
	t.CountInside()
	return t
}

// Mobiles are the entries of mobile that local SIDs refer to.
func (t *Table) Mobiles() map[uint32]bool {
	out := map[uint32]bool{}
	for _, index := range t.ByPrefix.All() {
		out[t.Entries.Get(index).Mobile] = true
	}
	for index := range t.byIndex() {
		out[t.Entries.Get(index).Mobile] = true
	}
	delete(out, 0)
	return out
}

// byIndex are the SIDs in the locators' ranges.
func (t *Table) byIndex() map[uint32]netip.Prefix {
	out := map[uint32]netip.Prefix{}
	for _, l := range t.settings.Get().Locator {
		if !l.Enabled() {
			continue
		}
		for index := l.Base; index < l.Base+l.Size(); index++ {
			if uint8(t.Entries.Load(index, 0)) != 0 { // behavior
				out[index] = l.PrefixOf(index)
			}
		}
	}
	return out
}

// Leave moves the SIDs of a locator that is about to go to where they are found
// by prefix. Their former entries go with the range (Clear). The caller holds the
// lock.
func (t *Table) Leave(l abi.Locator) error {
	for index := l.Base; index < l.Base+l.Size(); index++ {
		if t.Entries.Get(index).Behavior == 0 {
			continue
		}
		if err := t.move(l.PrefixOf(index), index); err != nil {
			return err
		}
	}
	return nil
}

// Clear empties the range of a locator that no packet looks at.
func (t *Table) Clear(l abi.Locator) {
	for index := l.Base; index < l.Base+l.Size(); index++ {
		t.Entries.Store(index, 0, 0)
	}
}

// move gives a SID an entry that is found by prefix.
func (t *Table) move(p netip.Prefix, from uint32) error {
	to, err := t.newIndex()
	if err != nil {
		return err
	}
	if err := counter.Copy(t.Counters, from, to); err != nil {
		return err
	}
	if s := t.sids[p]; s != nil {
		s.index = to
	}
	_, err = t.write(p, to, t.Entries.Get(from))
	return err
}

// Sweep removes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (t *Table) Sweep() error {
	var errs []error
	for k, index := range t.ByPrefix.All() {
		if t.sids[abi.SIDPrefix(k)] == nil {
			errs = append(errs, t.unpublish(abi.SIDPrefix(k), index))
		}
	}
	for index, p := range t.byIndex() {
		if s := t.sids[p]; s == nil || s.index != index {
			errs = append(errs, t.unpublish(p, index))
		}
	}
	t.ByPrefix.Settle()
	return errors.Join(errs...)
}

// Usage says how full local_sid is.
func (t *Table) Usage() table.Usage {
	sids := t.indexes.Usage()
	sids.Max += int(t.ranges)
	for _, s := range t.sids {
		if s.index <= t.ranges {
			sids.Used++
		}
	}
	return sids
}

// IndexOf is the entry of a SID that was put; 0: none.
func (t *Table) IndexOf(p netip.Prefix) uint32 {
	if s := t.sids[p.Masked()]; s != nil {
		return s.index
	}
	return 0
}

// PrefixAt is the SID at an index of local_sid; the zero Prefix: none.
func (t *Table) PrefixAt(index uint32) netip.Prefix {
	return table.KeyOf(t.sids, func(s *sid) bool { return index != 0 && s.index == index })
}

// Each calls f for each SID that was put since Open. The caller holds the lock.
func (t *Table) Each(f func(srv6.LocalSID)) {
	for _, s := range t.sids {
		f(s.model)
	}
}

// CheckBinding refuses a binding SID that is not the policy's.
func (t *Table) CheckBinding(policy string, a netip.Addr) error {
	if s := t.sids[netip.PrefixFrom(a, 128)]; s != nil && s.owner != policy {
		return fmt.Errorf("binding_sid %s: there is a local SID%s", a, ofOwner(s.owner))
	}
	return nil
}

// PutBinding adds the binding SID of a policy, or changes it.
func (t *Table) PutBinding(policy string, a netip.Addr, behavior srv6.Behavior) error {
	return t.put(policy, srv6.LocalSID{SID: netip.PrefixFrom(a, 128), Behavior: behavior, Policy: policy})
}

// DeleteBinding removes the binding SID of a policy, if it is there.
func (t *Table) DeleteBinding(policy string, a netip.Addr) error {
	if s := t.sids[netip.PrefixFrom(a, 128)]; s != nil && s.owner == policy {
		return t.delete(s)
	}
	return nil
}

// Put adds a local SID, or changes it. The policy that it names must be
// there.
func (t *Table) Put(l srv6.LocalSID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put("", l)
}

// wordSlice is the word of an entry that has its slice.
const wordSlice = 2

// forSessions is the owner of SIDs of sessions, which no policy's name can be.
const forSessions = "(sessions)"

// PutForSessions adds an End.DT46 SID for UEs: what is inside of its packets
// meets the rules of the sessions of a slice, which SetSlice says. One that an earlier
// daemon left keeps its slice.
func (t *Table) PutForSessions(p netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(forSessions, srv6.LocalSID{SID: p, Behavior: srv6.EndDT46})
}

// OfVPN is SLICE_VPN (bpf/def/ue.h).
const OfVPN = 1 << 15

// SetSlice says whose sessions receive at a SID for UEs: from other UPFs, or vpn: from the
// data network. One that is not there is not an error: its packets meet nobody.
func (t *Table) SetSlice(p netip.Prefix, slice uint16, vpn bool) {
	if vpn {
		slice |= OfVPN
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sids[p.Masked()]; s != nil && s.owner == forSessions {
		e := t.Entries.Get(s.index)
		e.Slice = slice
		t.Entries.Store(s.index, wordSlice, table.ToWords(e)[wordSlice])
	}
}

// DeleteForSessions removes it. One that is not there is not an error.
func (t *Table) DeleteForSessions(p netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sids[p.Masked()]; s != nil && s.owner == forSessions {
		return t.delete(s)
	}
	return nil
}

// Delete removes a local SID. One that is not there is not an error.
func (t *Table) Delete(p netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sids[p.Masked()]
	if s == nil {
		return nil
	}
	if s.owner != "" {
		return fmt.Errorf("SID %s is there%s: change that", p, ofOwner(s.owner))
	}
	return t.delete(s)
}

func (t *Table) put(owner string, l srv6.LocalSID) error {
	l.SID = l.SID.Masked()
	if !l.SID.IsValid() || !l.SID.Addr().Is6() || l.SID.Addr().Is4In6() {
		return fmt.Errorf("sid %s: want an IPv6 prefix", l.SID)
	}
	old := t.sids[l.SID]
	if old != nil && old.owner != owner {
		return fmt.Errorf("sid %s: there is one already%s", l.SID, ofOwner(old.owner))
	}
	if old != nil && reflect.DeepEqual(old.model, l) {
		return nil
	}
	if err := t.program(owner, l, old); err != nil {
		return fmt.Errorf("sid %s: %w", l.SID, err)
	}
	return nil
}

func ofOwner(owner string) string {
	switch owner {
	case "":
		return ""
	case forSessions:
		return ", for sessions"
	}
	return ", the binding SID of policy " + owner
}

func (t *Table) program(owner string, l srv6.LocalSID, old *sid) error {
	entry, mob, err := t.entryOf(l)
	if err != nil {
		return err
	}
	adj := Hop(l)
	if entry.Adjacency, err = t.hops.Acquire(adj); err != nil {
		return err
	}
	if mob != nil {
		mob.Adjacency, entry.Adjacency = entry.Adjacency, 0
	}
	keys := []adjacency.Key{adj}
	index, there := t.ByPrefix.Lookup(abi.SIDKey(l.SID))
	if !there {
		index, there = t.settings.SIDByLocator(l.SID)
	}
	if !there || index <= t.ranges && t.inside[index] != 0 {
		if index, err = t.newIndex(); err != nil {
			return t.hops.OrRelease(err, keys)
		}
	}
	before := t.Entries.Get(index)
	if owner == forSessions {
		entry.Flags |= uint8(abi.SidFlagsSID_SESSIONS)
		if before.Flags&entry.Flags != 0 && before.Behavior == entry.Behavior {
			entry.Slice = before.Slice
		}
	}
	if entry.Mobile, err = t.mobiles.Put(before.Mobile, mob); err != nil {
		return t.hops.OrRelease(err, keys)
	}
	if before.Behavior == 0 {
		if err := counter.Zero(t.Counters, index); err != nil {
			return t.hops.OrRelease(err, keys)
		}
	}
	if index, err = t.write(l.SID, index, entry); err != nil {
		return t.hops.OrRelease(err, keys)
	}
	if before.Mobile != entry.Mobile {
		t.mobiles.Retire(before.Mobile)
	}
	t.sids[l.SID] = &sid{model: l, owner: owner, index: index, adj: keys}
	if l.Policy != "" {
		t.policies.Get(l.Policy).Use(ref.User{Kind: ref.SID, Key: l.SID.String()})
	}
	if old != nil {
		return t.release(old)
	}
	return nil
}

// release ends the references of a SID's former state.
func (t *Table) release(s *sid) error {
	if s.model.Policy != "" {
		t.policies.Get(s.model.Policy).Unuse(ref.User{Kind: ref.SID, Key: s.model.SID.String()})
	}
	return t.hops.Release(s.adj...)
}

// Hop is the next hop that a SID's packets leave by, if it is known
// before they come. Without a next hop what End.DX4 or End.DX6 takes out is for
// a host of a link, which the main table names.
func Hop(l srv6.LocalSID) adjacency.Key {
	switch l.Behavior {
	case srv6.EndDX4, srv6.EndDX6:
		if l.NextHop.IsValid() {
			return adjacency.Key{NextHop: l.NextHop, Interface: l.Interface}
		}
		return adjacency.Key{}
	case srv6.EndX, srv6.EndDX2:
		return adjacency.Key{NextHop: l.NextHop, Interface: l.Interface}
	case srv6.EndMAP:
		return adjacency.Key{NextHop: l.Map}
	default:
		return adjacency.Key{}
	}
}

// entryOf is the entry of a SID, less the indices of adjacency and mobile.
func (t *Table) entryOf(l srv6.LocalSID) (e abi.LocalSid, mob *abi.Mobile, err error) {
	e = abi.LocalSid{
		Behavior: uint8(l.Behavior), Length: uint8(l.SID.Bits()),
		Table: abi.KernelTable(l.Table), BlockLength: l.BlockLength,
	}
	if l.Tenant != 0 {
		e.Table, e.Flags = abi.TenantTable(l.Tenant), uint8(abi.SidFlagsSID_TENANT)
	}
	for _, f := range l.Flavors {
		e.Flavors |= uint8(f)
	}
	if l.AllowUpperLayer {
		e.Flags |= uint8(abi.SidFlagsSID_ALLOW_UPPER_LAYER)
	}
	if l.IgnoreTag {
		e.Flags |= uint8(abi.SidFlagsSID_IGNORE_TAG)
	}
	if l.Policy != "" {
		p := t.policies.Get(l.Policy)
		if p == nil {
			return e, nil, fmt.Errorf("policy %q: there is none of that name", l.Policy)
		}
		e.Policy = p.Index()
	}
	switch l.Behavior {
	case srv6.EndMAP, srv6.EndLimit, srv6.EndMGTP6D, srv6.EndMGTP6DDi, srv6.EndMGTP6E, srv6.EndMGTP4E:
		mob, err = mobileOf(l, e.Policy)
	case srv6.End, srv6.EndX, srv6.EndT, srv6.EndDX2, srv6.EndDX4, srv6.EndDX6, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46,
		srv6.EndB6Encaps, srv6.EndB6EncapsRed:
	default:
		err = fmt.Errorf("behavior %d: not that of a local SID", l.Behavior)
	}
	return e, mob, err
}

func mobileOf(l srv6.LocalSID, policy uint32) (*abi.Mobile, error) {
	unit := uint64(max(l.RateUnit, 1)) * 1000
	if unit > math.MaxUint32 {
		return nil, fmt.Errorf("rate_unit %d kbit/s: at most %d", l.RateUnit, math.MaxUint32/1000)
	}
	m := &abi.Mobile{
		Source: abi.In6Of(l.Source), Target: abi.In6Of(l.Map), Policy: policy,
		SourceLength: l.SourcePrefixLength, ArgsOffset: l.ArgsOffset,
		PduType: uint8(l.PDUType), Container: uint8(l.PDUSessionContainer),
		GroupBits: l.GroupBits, RateBits: l.RateBits,
	}
	if l.Behavior == srv6.EndLimit {
		m.RateUnit = uint32(unit)
	}
	return m, nil
}

// newIndex is an entry that only the trie leads to, empty.
func (t *Table) newIndex() (uint32, error) {
	index, err := t.indexes.Alloc()
	if err == nil {
		t.Entries.Store(index, 0, 0)
	}
	return index, err
}

// CountInside notes how many SIDs are found by prefix inside of one that a
// locator leads to. There the trie has to decide, as the data path looks at
// the locators first, and the longest prefix is to win.
func (t *Table) CountInside() {
	t.inside = map[uint32]int{}
	for k := range t.ByPrefix.All() {
		if index, ok := t.settings.SIDAround(abi.SIDPrefix(k)); ok {
			t.inside[index]++
		}
	}
}

// publish makes the data path find an index that no locator leads to.
func (t *Table) publish(p netip.Prefix, index uint32) error {
	if index <= t.ranges {
		return nil
	}
	_, there := t.ByPrefix.Lookup(abi.SIDKey(p))
	if err := t.ByPrefix.Put(abi.SIDKey(p), index); err != nil {
		return err
	}
	t.settings.Change(func(s *abi.Settings) { s.SidsByPrefix = uint32(t.ByPrefix.Len()) })
	outer, ok := t.settings.SIDAround(p)
	if !ok || there {
		return nil
	}
	t.inside[outer]++
	if t.Entries.Get(outer).Behavior == 0 {
		return nil
	}
	if err := t.move(t.byIndex()[outer], outer); err != nil {
		return err
	}
	t.Entries.Store(outer, 0, 0)
	return nil
}

// write makes a SID say what next says, so that every packet sees all of
// the old or all of the new entry. If more than one word changes, that is at
// another index, which is returned.
func (t *Table) write(p netip.Prefix, index uint32, next abi.LocalSid) (uint32, error) {
	now := t.Entries.Get(index)
	from, to := table.ToWords(now), table.ToWords(next)
	changed := 0
	for i := range to {
		if from[i] != to[i] {
			changed++
		}
	}
	former := uint32(0)
	if changed > 1 && now.Behavior != 0 {
		former = index
		var err error
		if index, err = t.newIndex(); err != nil {
			return 0, err
		}
		if err := counter.Copy(t.Counters, former, index); err != nil {
			return 0, err
		}
	}
	for i := len(to) - 1; i >= 0; i-- { // the first word says what the SID does
		if v := to[i]; t.Entries.Load(index, i) != v {
			t.Entries.Store(index, i, v)
		}
	}
	if err := t.publish(p, index); err != nil {
		return 0, err
	}
	switch {
	case former > t.ranges:
		t.indexes.Retire(former)
	case former != 0:
		t.Entries.Store(former, 0, 0) // from here on the trie decides
	}
	if now.Behavior == 0 {
		t.settings.ForgetLookups() // of routes to it
	}
	return index, nil
}

func (t *Table) delete(s *sid) error {
	delete(t.sids, s.model.SID)
	if err := t.unpublish(s.model.SID, s.index); err != nil {
		return err
	}
	return t.release(s)
}

// unpublish takes a SID away from the data path and gives back what it had.
func (t *Table) unpublish(p netip.Prefix, index uint32) error {
	_, there := t.ByPrefix.Lookup(abi.SIDKey(p))
	if err := t.ByPrefix.Delete(abi.SIDKey(p)); err != nil {
		return err
	}
	if outer, ok := t.settings.SIDAround(p); ok && there {
		t.inside[outer]--
	}
	t.settings.Change(func(s *abi.Settings) { s.SidsByPrefix = uint32(t.ByPrefix.Len()) })
	entry := t.Entries.Get(index)
	t.Entries.Store(index, 0, 0)
	t.settings.ForgetLookups()
	t.mobiles.Retire(entry.Mobile)
	if index > t.ranges {
		t.indexes.Retire(index)
	}
	return nil
}

// Counter counts what a local SID processed and forwarded. Of a SID that
// is not there it is zero.
func (t *Table) Counter(p netip.Prefix) (counter.Counter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sids[p.Masked()]
	if s == nil {
		return counter.Counter{}, nil
	}
	return counter.Read(t.Counters, s.index)
}
