package dataplane

import (
	"errors"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// recoverSessions finds out which entries an earlier daemon had in use, so that
// none is overwritten before PutSession or Sweep say whose it is.
func (d *DataPlane) recoverSessions() {
	d.sessions = nil
	l := d.limits
	if l.Sessions == 0 {
		return
	}
	slots, _, free := l.pdrRanges()
	s := &sessions{
		slots: slots, entries: make([]pdrBook, d.pdr.Len), list: make([]sessionBook, 1),
		keys: map[uint32]headKey{}, meters: map[uint32][]uint32{},
		far: map[uint32]limits{}, gone: map[uint32]*departed{}, resting: map[uint32]uint64{}, removals: map[uint32]removal{},
		teids: newTEIDs(slots), runs: newRuns(d.filter.Len - firstFilter),
		forwardings: map[Forwarding]*forwardingBook{}, byForwarding: map[uint32]*forwardingBook{},
		recovered: map[abi.Forwarding]*forwardingBook{}, periods: table.NewPeriods(), recovering: true,
		pdrFree:        newIndexStack(abi.MapPdr, pendingPDR, free, d.pdr.Len),
		meterFree:      newIndexStack(abi.MapMeter, pendingMeter, 1, d.meter.Len),
		forwardingFree: newIndexStack(abi.MapForwarding, pendingForwarding, firstForwarding, d.forwarding.Len),
	}
	d.sessions = s
	s.teids.restoreGenerations(func(slot uint32) uint8 { return generationOf(d.pdr.Load(slot, wordPDRDo)) })
	d.recoverEntries()
	d.storeSettings(func(e *abi.Settings) { e.PdrSlots = slots })
	d.readSessionPools()
}

// recoverEntries marks what the entries of pdr refer to.
func (d *DataPlane) recoverEntries() {
	s := d.sessions
	used := map[uint32]bool{} // entries that are led to and say nothing yet
	for _, index := range d.pdrByTEID.All() {
		used[index] = true
	}
	for _, index := range d.pdrByUE.All() {
		used[index] = true
	}
	for t := range d.steeredRules() {
		used[t] = true
	}
	meters := map[uint32]bool{}
	for i := uint32(1); i < d.pdr.Len; i++ {
		do := d.pdr.Load(i, wordPDRDo)
		switch {
		case actionOf(do) == actionFilters:
			d.recoverRun(moreOf(do))
		case actionOf(do) == actionForward:
			d.recoverForwarding(uint32(d.pdr.Load(i, wordPDROut) >> 32))
		}
		if actionOf(do) != actionFilters && flagsOf(do)&flagMeters != 0 {
			for m := moreOf(do); m != 0 && m < d.meter.Len && !meters[m]; m = d.meter.LoadHalf(m, wordMeterRate, 1) {
				meters[m] = true
			}
		}
	}
	s.runs.settle()
	s.pdrFree.restore(func(i uint32) bool { return used[i] || isActive(d.pdr.Load(i, wordPDRDo)) })
	s.meterFree.restore(func(i uint32) bool { return meters[i] })
	s.forwardingFree.restore(func(i uint32) bool { return s.byForwarding[i] != nil })
}

// steeredRules are the entries that target_by_dst leads to.
func (d *DataPlane) steeredRules() map[uint32]bool {
	out := map[uint32]bool{}
	add := func(t abi.Target) {
		if t.Kind == uint32(abi.TargetKindTARGET_PDR) {
			out[t.Index] = true
		}
	}
	for _, t := range d.target4.All() {
		add(t)
	}
	for _, t := range d.target6.All() {
		add(t)
	}
	return out
}

func (d *DataPlane) recoverRun(at uint32) {
	if at < firstFilter || at >= d.filter.Len {
		return
	}
	n := len(d.runAt(at, nil))
	if block := at - firstFilter; block%(1<<runOrder(n)) == 0 {
		d.sessions.runs.restore(block, n)
	}
}

func (d *DataPlane) recoverForwarding(index uint32) {
	s := d.sessions
	if index < firstForwarding || index >= d.forwarding.Len || s.byForwarding[index] != nil {
		return
	}
	f := &forwardingBook{index: index, value: d.forwarding.Get(index)}
	s.byForwarding[index] = f
	s.recovered[f.value] = f
}

// adoptSession makes entries of an earlier daemon those of a session that is put for
// the first time since: what its TEIDs and addresses lead to.
func (d *DataPlane) adoptSession(m *Session) {
	s := d.sessions
	if !s.recovering || s.byID.Get(m.ID) != 0 {
		return
	}
	slot := uint32(0)
	for i := range m.Rules {
		r := &m.Rules[i]
		if r.TEID != 0 {
			slot = d.adoptHead(m, r, headKey{teid: r.TEID}, slot)
			continue
		}
		if r.Ethernet {
			slot = d.adoptHead(m, r, headKey{link: r.Link, session: m.ID}, slot)
			continue
		}
		for _, to := range r.Destinations {
			slot = d.adoptHead(m, r, headKey{prefix: to.Masked()}, slot)
		}
	}
}

// adoptHead returns the session's slot, 0 while it has none.
func (d *DataPlane) adoptHead(m *Session, r *Rule, k headKey, slot uint32) uint32 {
	s := d.sessions
	where, index, had := d.findHead(k)
	if !had || index == 0 || index >= d.pdr.Len || s.entries[index].session != 0 && s.entries[index].session != slot {
		return slot
	}
	if slot == 0 {
		slot = s.newSlot(m.ID)
	}
	s.link(slot, index, entryHead, 0)
	if where != byIndex {
		s.keys[index] = k
	}
	do := d.pdr.Load(index, wordPDRDo)
	switch actionOf(do) {
	case 0:
	case actionFilters:
		for _, f := range d.runAt(moreOf(do), nil) {
			if f.Pdr != 0 && f.Pdr < d.pdr.Len {
				d.adoptRule(slot, f.Pdr, f.RuleID())
			}
		}
	default: // the only rule there, or now the last of several
		if len(r.Filters) == 0 && r.QFIs == 0 {
			d.adoptRule(slot, index, r.ID)
		}
	}
	return slot
}

// adoptRule makes an entry that of a rule. Where a daemon died while it moved the
// rule there are two of them: the one that counted more is further on.
func (d *DataPlane) adoptRule(slot, index uint32, id uint16) {
	s := d.sessions
	b := &s.entries[index]
	if b.session != 0 && b.session != slot || b.session == slot && b.kind&entryRule != 0 {
		return
	}
	other := uint32(0)
	s.entriesOf(slot, func(i uint32, b *pdrBook) {
		if b.kind&entryRule != 0 && b.rule == id {
			other = i
		}
	})
	s.link(slot, index, 0, 0)
	if other != 0 {
		if counter.ReadVolume(d.pdr.Words(index)).Packets < counter.ReadVolume(d.pdr.Words(other)).Packets {
			return
		}
		s.entries[other].kind &^= entryRule
		d.countForwarding(other, -1)
	}
	s.link(slot, index, entryRule, id)
	b.notify = d.pdr.LoadHalf(index, wordPDRRate, 1)
	d.countForwarding(index, 1)
}

// countForwarding counts the reference that an adopted entry has.
func (d *DataPlane) countForwarding(index uint32, n int) {
	if actionOf(d.pdr.Load(index, wordPDRDo)) != actionForward {
		return
	}
	if f := d.sessions.byForwarding[uint32(d.pdr.Load(index, wordPDROut)>>32)]; f != nil {
		f.refs += n
	}
}

// sweepSessions removes what no session has been put for.
func (d *DataPlane) sweepSessions() error {
	s := d.sessions
	if s == nil || !s.recovering {
		return nil
	}
	s.recovering = false
	s.periods.Wait(s.periods.Next())
	d.settle() // so that what nobody has is either free or left over
	var errs []error
	for teid, index := range d.pdrByTEID.All() {
		if s.entries[index].session == 0 {
			errs = append(errs, d.pdrByTEID.Delete(teid))
		}
	}
	for ue, index := range d.pdrByUE.All() {
		if s.entries[index].session == 0 {
			errs = append(errs, d.pdrByUE.Delete(ue))
		}
	}
	d.countUEs()
	free := s.pdrFree.unused()
	for i := uint32(1); i < d.pdr.Len; i++ {
		if s.entries[i].session == 0 {
			d.sweepEntry(i, free)
		}
	}
	d.sweepRuns()
	d.sweepMeters()
	for value, f := range s.recovered {
		if f.refs == 0 {
			delete(s.recovered, value)
			d.retireForwarding(f)
		}
	}
	return errors.Join(errs...)
}

// sweepEntry clears an entry that is no session's.
func (d *DataPlane) sweepEntry(i uint32, free map[uint32]bool) {
	s := d.sessions
	do := d.pdr.Load(i, wordPDRDo)
	if isActive(do) {
		d.pdr.Store(i, wordPDRDo, inactive(do))
	}
	switch {
	case i >= s.pdrFree.first:
		if i < s.pdrFree.next && !free[i] {
			d.later(pending{kind: pendingPDR, index: i})
		}
	case isActive(do):
		d.rest(i)
	}
}

// sweepRuns gives back the runs that no session's head leads to.
func (d *DataPlane) sweepRuns() {
	s := d.sessions
	used := map[uint32]bool{}
	for i := range s.entries {
		if do := d.pdr.Load(uint32(i), wordPDRDo); s.entries[i].session != 0 && actionOf(do) == actionFilters {
			used[moreOf(do)] = true
		}
	}
	for at := range s.runs.count {
		if s.runs.inUse(at) && !used[at+firstFilter] {
			d.later(pending{kind: pendingRun, index: at + firstFilter})
		}
	}
}

func (d *DataPlane) sweepMeters() {
	s := d.sessions
	used := s.meterFree.unused()
	for _, all := range s.meters {
		for _, index := range all {
			used[index] = true
		}
	}
	for i := s.meterFree.first; i < s.meterFree.next; i++ {
		if !used[i] {
			d.later(pending{kind: pendingMeter, index: i})
		}
	}
}
