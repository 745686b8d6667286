package session

import (
	"errors"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// recovery finds out what an earlier daemon left, and whose it is.
type recovery struct {
	tables      *tables
	owners      *owners
	forwardings *forwardings
	later       func(release)
}

// marks says which entries of a table are in use: a bit for each.
type marks []uint64

func newMarks(entries uint32) marks { return make(marks, entries/64+1) }

// set marks an entry; one that the table does not have is not an error.
func (m marks) set(i uint32) {
	if i/64 < uint32(len(m)) {
		m[i/64] |= 1 << (i % 64)
	}
}

func (m marks) has(i uint32) bool { return m[i/64]>>(i%64)&1 != 0 }

// recoverEntries marks what the entries of pdr refer to.
func (s *recovery) recoverEntries() {
	s.loseInHand()
	pdr := s.tables.PDR
	used, meters, quotas := newMarks(pdr.Len), newMarks(s.tables.Meter.Len), newMarks(s.tables.Quota.Len)
	s.markLed(used)
	for i := uint32(1); i < pdr.Len; i++ {
		do := pdr.Load(i, wordPDRDo)
		switch actionOf(do) {
		case actionFilters:
			s.recoverRun(moreOf(do))
			continue
		case actionForward, actionBuffer, actionFull: // those that may forward again
			s.recoverForwarding(uint32(pdr.Load(i, wordPDROut) >> 32))
		}
		if isActive(do) {
			quotas.set(s.tables.Refused.LoadHalf(i, wordRefusedQuota, 0))
		}
		if flagsOf(do)&flagMeters != 0 {
			s.markMeters(meters, moreOf(do))
		}
	}
	s.owners.runs.settle()
	s.owners.pdrFree.restore(func(i uint32) bool { return used.has(i) || isActive(pdr.Load(i, wordPDRDo)) })
	s.owners.meterFree.restore(meters.has)
	s.owners.quotaFree.restore(quotas.has)
	s.forwardings.free.restore(func(i uint32) bool { return s.forwardings.byIndex[i] != nil })
}

// markLed marks entries that are led to, and may say nothing yet.
func (s *recovery) markLed(used marks) {
	for _, index := range s.tables.TEIDs.All() {
		used.set(index)
	}
	for _, index := range s.tables.UEs.All() {
		used.set(index)
	}
	for _, to := range s.tables.node.Targets().All() {
		if to.Kind == uint32(abi.TargetKindTARGET_PDR) {
			used.set(to.Index)
		}
	}
}

// recoverRun marks the run of filters that begins at an entry.
func (s *recovery) recoverRun(at uint32) {
	if at < firstFilter || at >= s.tables.Filter.Len {
		return
	}
	n := s.tables.lengthOfRun(at)
	if block := at - firstFilter; block%(1<<runOrder(n)) == 0 {
		s.owners.runs.restore(block, n)
	}
}

// recoverForwarding finds what an entry that is in use says.
func (s *recovery) recoverForwarding(index uint32) {
	f := s.forwardings
	if index >= firstForwarding && index < f.array.Len && f.byIndex[index] == nil {
		e := &forwardingEntry{index: index, value: f.array.Get(index)}
		f.byIndex[index], f.recovered[e.value] = e, e
	}
}

// markMeters marks a rule's meters, which follow from one another.
func (s *recovery) markMeters(used marks, first uint32) {
	meter := s.tables.Meter
	for m := first; m != 0 && m < meter.Len && !used.has(m); m = meter.LoadHalf(m, wordMeterRate, 1) {
		used.set(m)
	}
}

// lengthOfRun counts the filters of the run that begins at an entry, as far as it reaches.
func (t *tables) lengthOfRun(first uint32) int {
	for i := first; i < min(first+maxRun, t.Filter.Len); i++ {
		if f := t.Filter.Get(i); takesAll(&f) {
			return int(i-first) + 1
		}
	}
	return int(min(first+maxRun, t.Filter.Len) - first)
}

// runAt reads the run that begins at an entry.
func (t *tables) runAt(first uint32) (out []abi.Filter) {
	n := t.lengthOfRun(first)
	for i := first; i < first+uint32(n); i++ {
		out = append(out, t.Filter.Get(i))
	}
	return out
}

// adopt makes entries of an earlier daemon those of a session that is put for the
// first time since: what its keys lead to.
func (s *recovery) adopt(session *Session) {
	if !s.owners.recovering || s.owners.byID.Get(session.ID) != 0 {
		return
	}
	slot := uint32(0)
	for i := range session.Rules {
		for _, k := range appendKeys(nil, &session.Rules[i], session.ID) {
			slot = s.adoptHead(session.ID, &session.Rules[i], k, slot)
		}
	}
}

// adoptHead returns the session's slot, 0 while it has none.
func (s *recovery) adoptHead(session uint64, r *Rule, k key, slot uint32) uint32 {
	o := s.owners
	by, index, led := s.tables.find(&k)
	if !led || index == 0 || index >= s.tables.PDR.Len || o.entries[index].session != 0 && o.entries[index].session != slot {
		return slot
	}
	if slot == 0 {
		slot = o.newSlot(session)
	}
	o.link(slot, index, entryHead, 0)
	if by != byIndex {
		o.keys[index] = k
	}
	do := s.tables.PDR.Load(index, wordPDRDo)
	switch actionOf(do) {
	case 0:
	case actionFilters:
		for _, f := range s.tables.runAt(moreOf(do)) {
			if f.Pdr != 0 && f.Pdr < s.tables.PDR.Len {
				s.adoptRule(slot, f.Pdr, f.RuleID())
			}
		}
	default: // the only rule there, or now the last of several
		if len(r.Filters) == 0 && (r.QFIs == 0 || !k.asksQFI()) {
			s.adoptRule(slot, index, r.ID)
		}
	}
	return slot
}

// adoptRule makes an entry that of a rule. Where a daemon died while it moved the
// rule there are two of them: the one that counted more is further on.
func (s *recovery) adoptRule(slot, index uint32, id uint16) {
	o, pdr := s.owners, s.tables.PDR
	e := &o.entries[index]
	if e.session != 0 && e.session != slot || e.session == slot && e.kind&entryRule != 0 {
		return
	}
	other := o.entryOf(slot, id)
	o.link(slot, index, 0, 0)
	if other != 0 {
		if counter.ReadVolume(pdr.Words(index)).Packets < counter.ReadVolume(pdr.Words(other)).Packets {
			return
		}
		if f := s.forwardingOf(other); f != nil {
			f.refs--
		}
		o.entries[other].kind &^= entryRule | entryForward
	}
	o.link(slot, index, entryRule, id)
	e.notify = pdr.LoadHalf(index, wordPDRRate, 1)
	if quota := s.tables.Refused.LoadHalf(index, wordRefusedQuota, 0); quota != 0 && quota < s.tables.Quota.Len {
		o.quotas[slot] = quota
	}
	if f := s.forwardingOf(index); f != nil {
		e.kind |= entryForward
		f.refs++
	}
}

// forwardingOf is the entry that an adopted rule refers to; nil: none.
func (s *recovery) forwardingOf(index uint32) *forwardingEntry {
	if actionOf(s.tables.loadDo(index)) != actionForward {
		return nil
	}
	return s.forwardings.byIndex[uint32(s.tables.PDR.Load(index, wordPDROut)>>32)]
}

// Sweep removes what no session has been put for.
func (s *Sessions) Sweep() error {
	o := s.owners
	if !o.recovering {
		return nil
	}
	o.recovering, s.forwardings.recovering = false, false
	o.periods.Wait(o.periods.Next())
	s.owners.settle(s.settleOne) // so that what nobody has is either free or left over
	var errs []error
	// An entry may be a rule's now, and no longer what its key leads to.
	for teid, index := range s.tables.TEIDs.All() {
		if k, led := o.keys[index]; !led || k.teid != teid {
			errs = append(errs, s.tables.TEIDs.Delete(teid))
		}
	}
	for ue, index := range s.tables.UEs.All() {
		if k, led := o.keys[index]; !led || k.inUEs() != ue {
			errs = append(errs, s.tables.delUE(ue))
		}
	}
	s.tables.setUEs()
	free := o.pdrFree.unused()
	for i := uint32(1); i < s.tables.PDR.Len; i++ {
		if o.entries[i].session != 0 {
			continue
		}
		do := s.tables.PDR.Load(i, wordPDRDo)
		if isActive(do) {
			s.tables.PDR.Store(i, wordPDRDo, inactive(do))
		}
		switch {
		case o.pdrFree.has(i):
			if i < o.pdrFree.next && !free.has(i) {
				s.later(release{kind: releasePDR, index: i})
			}
		case isActive(do):
			s.later(release{kind: releaseRest, index: i})
		}
	}
	s.recovery.sweepRuns()
	s.recovery.sweepMeters()
	s.recovery.sweepQuotas()
	for value, e := range s.forwardings.recovered {
		if e.refs == 0 {
			delete(s.forwardings.recovered, value)
			s.forwardings.retire(e)
		}
	}
	s.tables.TEIDs.Settle()
	s.tables.UEs.Settle()
	return errors.Join(errs...)
}

// sweepRuns gives back the runs that no session's head leads to.
func (s *recovery) sweepRuns() {
	used := newMarks(s.tables.Filter.Len)
	for i := range s.owners.entries {
		if do := s.tables.PDR.Load(uint32(i), wordPDRDo); s.owners.entries[i].session != 0 && actionOf(do) == actionFilters {
			used.set(moreOf(do))
		}
	}
	for at := range s.owners.runs.count {
		if state := s.owners.runs.state[at]; state != 0 && state&runFree == 0 && !used.has(at+firstFilter) {
			s.later(release{kind: releaseRun, index: at + firstFilter})
		}
	}
}

// sweepMeters gives back the meters that no session has.
func (s *recovery) sweepMeters() {
	used := s.owners.meterFree.unused()
	for _, all := range s.owners.meters {
		for _, index := range all {
			used.set(index)
		}
	}
	s.sweepUnused(&s.owners.meterFree, used)
}

// sweepQuotas gives back the quotas that no session has.
func (s *recovery) sweepQuotas() {
	used := s.owners.quotaFree.unused()
	for _, index := range s.owners.quotas {
		used.set(index)
	}
	s.sweepUnused(&s.owners.quotaFree, used)
}

// sweepUnused gives back what is neither free nor used.
func (s *recovery) sweepUnused(free *indexStack, used marks) {
	for i := free.first; i < free.next; i++ {
		if !used.has(i) {
			s.later(release{kind: free.back, index: i})
		}
	}
}
