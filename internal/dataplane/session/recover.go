package session

import (
	"errors"
	"slices"

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

// recoverEntries marks what the entries of pdr refer to.
func (s *recovery) recoverEntries() {
	s.loseInHand()
	pdr, meter := s.tables.PDR, s.tables.Meter
	used := map[uint32]bool{} // entries that are led to and say nothing yet
	for _, index := range s.tables.TEIDs.All() {
		used[index] = true
	}
	for _, index := range s.tables.UEs.All() {
		used[index] = true
	}
	for _, to := range s.tables.node.Targets().All() {
		if to.Kind == uint32(abi.TargetKindTARGET_PDR) {
			used[to.Index] = true
		}
	}
	meters := map[uint32]bool{}
	for i := uint32(1); i < pdr.Len; i++ {
		do := pdr.Load(i, wordPDRDo)
		switch {
		case actionOf(do) == actionFilters:
			at := moreOf(do) // where a run begins
			if at < firstFilter || at >= s.tables.Filter.Len {
				continue
			}
			n := len(s.tables.runAt(at))
			if block := at - firstFilter; block%(1<<runOrder(n)) == 0 {
				s.owners.runs.restore(block, n)
			}
		case slices.Contains([]uint8{actionForward, actionBuffer, actionFull}, actionOf(do)): // those that may forward again
			f, index := s.forwardings, uint32(pdr.Load(i, wordPDROut)>>32)
			if index >= firstForwarding && index < f.array.Len && f.byIndex[index] == nil {
				e := &forwardingEntry{index: index, value: f.array.Get(index)}
				f.byIndex[index], f.recovered[e.value] = e, e
			}
		}
		if actionOf(do) != actionFilters && flagsOf(do)&flagMeters != 0 {
			for m := moreOf(do); m != 0 && m < meter.Len && !meters[m]; m = meter.LoadHalf(m, wordMeterRate, 1) {
				meters[m] = true
			}
		}
	}
	s.owners.runs.settle()
	s.owners.pdrFree.restore(func(i uint32) bool { return used[i] || isActive(pdr.Load(i, wordPDRDo)) })
	s.owners.meterFree.restore(func(i uint32) bool { return meters[i] })
	s.forwardings.free.restore(func(i uint32) bool { return s.forwardings.byIndex[i] != nil })
}

// runAt reads the run that begins at an entry, as far as it reaches.
func (t *tables) runAt(first uint32) (out []abi.Filter) {
	for i := first; i < min(first+maxRun, t.Filter.Len); i++ {
		out = append(out, t.Filter.Get(i))
		if takesAll(&out[len(out)-1]) {
			break
		}
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
	s.settle() // so that what nobody has is either free or left over
	var errs []error
	// An entry may be a rule's now, and no longer what its key leads to.
	for teid, index := range s.tables.TEIDs.All() {
		if k, led := o.keys[index]; !led || k.teid != teid {
			errs = append(errs, s.tables.TEIDs.Delete(teid))
		}
	}
	for ue, index := range s.tables.UEs.All() {
		if k, led := o.keys[index]; !led || k.inUEs() != ue {
			errs = append(errs, s.tables.UEs.Delete(ue))
		}
	}
	s.tables.node.SetUEs(uint32(min(s.tables.UEs.Len(), 1)))
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
		case i >= o.pdrFree.first:
			if i < o.pdrFree.next && !free[i] {
				s.later(release{kind: releasePDR, index: i})
			}
		case isActive(do):
			s.later(release{kind: releaseRest, index: i})
		}
	}
	s.recovery.sweepRuns()
	s.recovery.sweepMeters()
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
	used := map[uint32]bool{}
	for i := range s.owners.entries {
		if do := s.tables.PDR.Load(uint32(i), wordPDRDo); s.owners.entries[i].session != 0 && actionOf(do) == actionFilters {
			used[moreOf(do)] = true
		}
	}
	for at := range s.owners.runs.count {
		if state := s.owners.runs.state[at]; state != 0 && state&runFree == 0 && !used[at+firstFilter] {
			s.later(release{kind: releaseRun, index: at + firstFilter})
		}
	}
}

// sweepMeters gives back the meters that no session has.
func (s *recovery) sweepMeters() {
	free := &s.owners.meterFree
	used := free.unused()
	for _, all := range s.owners.meters {
		for _, index := range all {
			used[index] = true
		}
	}
	for i := free.first; i < free.next; i++ {
		if !used[i] {
			s.later(release{kind: releaseMeter, index: i})
		}
	}
}
