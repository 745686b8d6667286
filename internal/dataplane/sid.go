package dataplane

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/srv6"
)

// sid is a local SID that was put since Open.
type sid struct {
	model srv6.LocalSID
	owner string // "", the policy whose binding SID it is, or forSessions
	index uint32
	adj   []AdjacencyKey
}

// PutSID adds a local SID, or changes it. The policy that it names must be
// there.
func (d *DataPlane) PutSID(l srv6.LocalSID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.putSID("", l)
}

// forSessions is the owner of SIDs of sessions, which no policy's name can be.
const forSessions = "(sessions)"

// PutSessionSID adds an End.DT46 SID for UEs: what is inside of its packets
// meets the rules of their sessions.
func (d *DataPlane) PutSessionSID(p netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.putSID(forSessions, srv6.LocalSID{SID: p, Behavior: srv6.EndDT46})
}

// DeleteSessionSID removes it. One that is not there is not an error.
func (d *DataPlane) DeleteSessionSID(p netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sids[p.Masked()]; s != nil && s.owner == forSessions {
		return d.deleteSID(s)
	}
	return nil
}

// DeleteSID removes a local SID. One that is not there is not an error.
func (d *DataPlane) DeleteSID(p netip.Prefix) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sids[p.Masked()]
	if s == nil {
		return nil
	}
	if s.owner != "" {
		return fmt.Errorf("SID %s is there%s: change that", p, ofOwner(s.owner))
	}
	return d.deleteSID(s)
}

func (d *DataPlane) putSID(owner string, l srv6.LocalSID) error {
	l.SID = l.SID.Masked()
	if !l.SID.IsValid() || !l.SID.Addr().Is6() || l.SID.Addr().Is4In6() {
		return fmt.Errorf("sid %s: want an IPv6 prefix", l.SID)
	}
	old := d.sids[l.SID]
	if old != nil && old.owner != owner {
		return fmt.Errorf("sid %s: there is one already%s", l.SID, ofOwner(old.owner))
	}
	if old != nil && reflect.DeepEqual(old.model, l) {
		return nil
	}
	if err := d.programSID(owner, l, old); err != nil {
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

func (d *DataPlane) programSID(owner string, l srv6.LocalSID, old *sid) error {
	entry, mob, err := d.sidEntry(l)
	if err != nil {
		return err
	}
	if owner == forSessions {
		entry.Flags |= uint8(abi.SidFlagsSID_SESSIONS)
	}
	adj := adjacencyOfSID(l)
	if entry.Adjacency, err = d.acquire(adj); err != nil {
		return err
	}
	if mob != nil {
		mob.Adjacency, entry.Adjacency = entry.Adjacency, 0
	}
	keys := []AdjacencyKey{adj}
	index, err := d.placeSID(l.SID)
	if err != nil {
		return orRelease(d, err, keys)
	}
	before := d.localSID.Get(index)
	if entry.Mobile, err = d.putMobile(before.Mobile, mob); err != nil {
		return orRelease(d, err, keys)
	}
	if before.Behavior == 0 {
		if err := counter.Zero(d.maps[abi.MapSidCounter], index); err != nil {
			return orRelease(d, err, keys)
		}
	}
	if index, err = d.writeSID(l.SID, index, entry); err != nil {
		return orRelease(d, err, keys)
	}
	if before.Mobile != entry.Mobile {
		d.mobileIndex.Retire(before.Mobile)
	}
	d.sids[l.SID] = &sid{model: l, owner: owner, index: index, adj: keys}
	if l.Policy != "" {
		d.policies[l.Policy].use(user{userSID, l.SID.String()})
	}
	if old != nil {
		return d.releaseSID(old)
	}
	return nil
}

// releaseSID ends the references of a SID's former state.
func (d *DataPlane) releaseSID(s *sid) error {
	if s.model.Policy != "" {
		d.policies[s.model.Policy].unuse(user{userSID, s.model.SID.String()})
	}
	return d.release(s.adj...)
}

// adjacencyOfSID is the next hop that a SID's packets leave by, if it is known
// before they come.
func adjacencyOfSID(l srv6.LocalSID) AdjacencyKey {
	switch l.Behavior {
	case srv6.EndX, srv6.EndDX2, srv6.EndDX4, srv6.EndDX6:
		return AdjacencyKey{NextHop: l.NextHop, Interface: l.Interface}
	case srv6.EndMAP:
		return AdjacencyKey{NextHop: l.Map}
	default:
		return AdjacencyKey{}
	}
}

// sidEntry is what the data path is told, less the indices of adjacency and
// mobile.
func (d *DataPlane) sidEntry(l srv6.LocalSID) (e abi.LocalSid, mob *abi.Mobile, err error) {
	e = abi.LocalSid{
		Behavior: uint8(l.Behavior), Length: uint8(l.SID.Bits()),
		Table: abi.KernelTable(l.Table), BlockLength: l.BlockLength,
	}
	for _, f := range l.Flavors {
		e.Flavors |= uint8(f)
	}
	if l.AllowUpperLayer {
		e.Flags |= uint8(abi.SidFlagsSID_ALLOW_UPPER_LAYER)
	}
	if l.Policy != "" {
		p := d.policies[l.Policy]
		if p == nil {
			return e, nil, fmt.Errorf("policy %q: there is none of that name", l.Policy)
		}
		e.Policy = p.index
	}
	switch l.Behavior {
	case srv6.EndDX4, srv6.EndDX6:
		if !l.NextHop.IsValid() {
			e.Flags |= uint8(abi.SidFlagsSID_DIRECT)
		}
	case srv6.EndMAP, srv6.EndLimit, srv6.EndMGTP6D, srv6.EndMGTP6DDi, srv6.EndMGTP6E, srv6.EndMGTP4E:
		mob, err = mobileOfSID(l, e.Policy)
	case srv6.End, srv6.EndX, srv6.EndT, srv6.EndDX2, srv6.EndDT4, srv6.EndDT6, srv6.EndDT46,
		srv6.EndB6Encaps, srv6.EndB6EncapsRed:
	default:
		err = fmt.Errorf("behavior %d: not that of a local SID", l.Behavior)
	}
	return e, mob, err
}

func mobileOfSID(l srv6.LocalSID, policy uint32) (*abi.Mobile, error) {
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

// putMobile makes an entry of mobile that holds m, and is index if that one
// does. What packets can reach is never written: a change is a new entry.
func (d *DataPlane) putMobile(index uint32, m *abi.Mobile) (uint32, error) {
	if m == nil {
		return 0, nil
	}
	table := d.maps[abi.MapMobile]
	if index != 0 {
		var now abi.Mobile
		if err := table.Lookup(index, &now); err != nil {
			return 0, fmt.Errorf("read table mobile: %w", err)
		}
		if now == *m {
			return index, nil
		}
	}
	fresh, err := d.mobileIndex.Alloc()
	if err != nil {
		return 0, err
	}
	if err := table.Put(fresh, m); err != nil {
		return 0, fmt.Errorf("write table mobile: %w", err)
	}
	return fresh, nil
}

// placeSID finds or chooses the index of a SID.
func (d *DataPlane) placeSID(p netip.Prefix) (uint32, error) {
	if index, ok := d.sidTable.Lookup(abi.SIDKey(p)); ok {
		return index, nil
	}
	if index, ok := d.sidByLocator(p); ok && d.inside[index] == 0 {
		return index, nil
	}
	return d.newSIDIndex()
}

// newSIDIndex is an entry that only the trie leads to, empty.
func (d *DataPlane) newSIDIndex() (uint32, error) {
	index, err := d.sidIndex.Alloc()
	if err == nil {
		d.localSID.Store(index, 0, 0)
	}
	return index, err
}

// countInside notes how many SIDs are found by prefix inside of one that a
// locator leads to. There the trie has to decide, as the data path looks at
// the locators first, and the longest prefix is to win.
func (d *DataPlane) countInside() {
	d.inside = map[uint32]int{}
	for k := range d.sidTable.All() {
		if index, ok := d.around(abi.SIDPrefix(k)); ok {
			d.inside[index]++
		}
	}
}

// around is the index that a locator leads to for a SID longer than its
// LOC:FUNC.
func (d *DataPlane) around(p netip.Prefix) (uint32, bool) {
	s := d.settings.Get(0)
	hi, _ := abi.Halves(p.Addr())
	for _, l := range s.Locator[:s.Locators] {
		if l.Enabled() && hi&l.Mask == l.Hi && p.Bits() > 64-int(l.Shift) {
			return l.Base + uint32(hi>>l.Shift)&l.FunctionMask, true
		}
	}
	return 0, false
}

// sidByLocator is the index of a SID that has a locator's length of function.
func (d *DataPlane) sidByLocator(p netip.Prefix) (uint32, bool) {
	s := d.settings.Get(0)
	hi, _ := abi.Halves(p.Addr())
	for _, l := range s.Locator[:s.Locators] {
		if l.Enabled() && hi&l.Mask == l.Hi && p.Bits() == 64-int(l.Shift) {
			return l.Base + uint32(hi>>l.Shift)&l.FunctionMask, true
		}
	}
	return 0, false
}

// publishSID makes the data path find an index that no locator leads to.
func (d *DataPlane) publishSID(p netip.Prefix, index uint32) error {
	if index <= d.limits.SIDs {
		return nil
	}
	_, there := d.sidTable.Lookup(abi.SIDKey(p))
	if err := d.sidTable.Put(abi.SIDKey(p), index); err != nil {
		return err
	}
	d.storeSettings(func(s *abi.Settings) { s.SidsByPrefix = uint32(d.sidTable.Len()) })
	outer, ok := d.around(p)
	if !ok || there {
		return nil
	}
	d.inside[outer]++
	if d.localSID.Get(outer).Behavior == 0 {
		return nil
	}
	if err := d.moveSID(d.sidsByIndex()[outer], outer); err != nil {
		return err
	}
	d.localSID.Store(outer, 0, 0)
	return nil
}

// writeSID makes a SID say what next says, so that every packet sees all of
// the old or all of the new entry. If more than one word changes, that is at
// another index, which is returned.
func (d *DataPlane) writeSID(p netip.Prefix, index uint32, next abi.LocalSid) (uint32, error) {
	now := d.localSID.Get(index)
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
		if index, err = d.newSIDIndex(); err != nil {
			return 0, err
		}
		if err := counter.Copy(d.maps[abi.MapSidCounter], former, index); err != nil {
			return 0, err
		}
	}
	for i := len(to) - 1; i >= 0; i-- { // the first word says what the SID does
		if v := to[i]; d.localSID.Load(index, i) != v {
			d.localSID.Store(index, i, v)
		}
	}
	if err := d.publishSID(p, index); err != nil {
		return 0, err
	}
	switch {
	case former > d.limits.SIDs:
		d.sidIndex.Retire(former)
	case former != 0:
		d.localSID.Store(former, 0, 0) // from here on the trie decides
	}
	return index, nil
}

func (d *DataPlane) deleteSID(s *sid) error {
	delete(d.sids, s.model.SID)
	if err := d.unpublishSID(s.model.SID, s.index); err != nil {
		return err
	}
	return d.releaseSID(s)
}

// unpublishSID takes a SID away from the data path and gives back what it had.
func (d *DataPlane) unpublishSID(p netip.Prefix, index uint32) error {
	_, there := d.sidTable.Lookup(abi.SIDKey(p))
	if err := d.sidTable.Delete(abi.SIDKey(p)); err != nil {
		return err
	}
	if outer, ok := d.around(p); ok && there {
		d.inside[outer]--
	}
	d.storeSettings(func(s *abi.Settings) { s.SidsByPrefix = uint32(d.sidTable.Len()) })
	entry := d.localSID.Get(index)
	d.localSID.Store(index, 0, 0)
	d.mobileIndex.Retire(entry.Mobile)
	if index > d.limits.SIDs {
		d.sidIndex.Retire(index)
	}
	return nil
}

// SIDCounter counts what a local SID processed and forwarded. Of a SID that
// is not there it is zero.
func (d *DataPlane) SIDCounter(p netip.Prefix) (counter.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sids[p.Masked()]
	if s == nil {
		return counter.Counter{}, nil
	}
	return counter.Read(d.maps[abi.MapSidCounter], s.index)
}
