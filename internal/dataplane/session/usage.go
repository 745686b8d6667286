package session

import (
	"fmt"
	"maps"

	"github.com/culvert-net/culvert/internal/dataplane/table"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// MissingError says that a session is missing.
type MissingError struct{ ID uint64 }

func (e *MissingError) Error() string { return fmt.Sprintf("session %#x is missing", e.ID) }

// Usage says what each rule of a session forwarded. The rules that the last change
// took out of the session are among them, with all that they ever did; where
// there are any, the call waits until packets that met them have left.
func (s *Sessions) Usage(id uint64) (out []RuleUsage, err error) {
	err = s.retrying(func() error {
		slot := s.owners.byID.Get(id)
		if slot == 0 {
			return &MissingError{id}
		}
		if g := s.owners.gone[slot]; g != nil {
			if g.waiting > 0 {
				return &busyError{s.owners.pending[len(s.owners.pending)-1].due}
			}
			out = append(out, g.usage...)
		}
		for _, e := range s.state(slot).entries {
			if e.kind&entryRule != 0 {
				out = append(out, s.writer.usageOf(e.index, e.rule))
			}
		}
		return nil
	})
	return out, err
}

// usageOf is what an entry counted.
func (s *writer) usageOf(i uint32, rule uint16) RuleUsage {
	return RuleUsage{Rule: rule, Volume: counter.ReadVolume(s.tables.PDR.Words(i)), Refused: counter.ReadVolume(s.tables.Refused.Words(i))}
}

// SetLimits changes when the daemon gets an event about a rule, and when the rule
// stops. A limit that had its event gets another one.
func (s *Sessions) SetLimits(id uint64, rule uint16, l RuleLimits) error {
	return s.retrying(func() error {
		slot := s.owners.byID.Get(id)
		if slot == 0 {
			return &MissingError{id}
		}
		index := s.owners.entryOf(slot, rule)
		if index == 0 {
			return fmt.Errorf("session %#x: rule %d is missing", id, rule)
		}
		s.owners.entries[index].notify = usageUnknown
		s.writer.setRuleLimits(index, l, s.owners.quotas[slot])
		s.writer.endShares(s.owners.quotas[slot])
		return nil
	})
}

// Words of limits (USAGE_AHEAD and USAGE_TOLD in bpf/def/tables.h): octets / 256
// modulo 2^32; 0 is never.
const (
	usageUnit    = 8 // bits
	usageAhead   = 1 << 30
	usageTold    = 0xffffffff
	usageUnknown = usageTold // of owner.notify: write it again
)

// usageWord is a limit as the data path compares it, where it is not too far
// ahead of what was counted.
func usageWord(octets, counted uint64) (word uint32, near bool) {
	if octets == 0 {
		return 0, true
	}
	at, now := octets>>usageUnit, counted>>usageUnit
	if octets&(1<<usageUnit-1) != 0 {
		at++
	}
	if at > now+usageAhead {
		return 0, false
	}
	switch word = uint32(max(at, now)); word {
	case 0, usageTold: // which mean something else
		return 1, true
	}
	return word, true
}

// Words of an entry of refused, after its volume.
const (
	wordRefusedNotify = 2 // notify, held
	wordRefusedQuota  = 3
)

// setRuleLimits writes a rule's limits where they are others. A limit of the
// refused volume that is too far ahead gets an event on the way there, after which
// the daemon sets it again. quota is the entry of the session's quotas.
func (s *writer) setRuleLimits(i uint32, l RuleLimits, quota uint32) (changed bool) {
	if !l.Shares {
		quota = 0
	}
	if quota == 0 { // first, for a packet of another rule may end the share
		s.setQuota(i, 0)
	}
	changed = s.setLimits(i, limits{l.NotifyAt, l.StopAt, quota != 0})
	s.setQuota(i, quota)
	counted := counter.ReadVolume(s.tables.Refused.Words(i)).Bytes
	word, near := usageWord(l.RefusedNotifyAt, counted)
	if !near {
		word, _ = usageWord(counted+usageAhead<<(usageUnit-1), counted)
	}
	if s.tables.Refused.LoadHalf(i, wordRefusedNotify, 0) == word {
		return changed
	}
	s.tables.Refused.StoreHalf(i, wordRefusedNotify, 0, word)
	return true
}

// setLimits writes a rule's limits where they are not what was written last.
// A limit that is too far ahead has to wait: the data path sends an event on the
// way, and then Event writes the limit again.
func (s *writer) setLimits(i uint32, l limits) (changed bool) {
	e, pdr, far := &s.owners.entries[i], s.tables.PDR, s.owners.far
	if known, ok := far[i]; ok {
		if known == l && e.notify != usageUnknown {
			return false
		}
		delete(far, i)
	}
	counted := counter.ReadVolume(pdr.Words(i)).Bytes
	notify, near := usageWord(l.notify, counted)
	stop, nearStop := shareWord(l.stop, counted), true
	if !l.shares {
		stop, nearStop = usageWord(l.stop, counted)
	}
	if !near || !nearStop {
		far[i] = l
		if notify == 0 {
			notify, _ = usageWord(counted+usageAhead<<(usageUnit-1), counted)
		}
	}
	if stop == pdr.LoadHalf(i, wordPDRStop, 0) && notify == e.notify {
		return false
	}
	// stop comes first: a packet that met the old one would end notify.
	pdr.StoreHalf(i, wordPDRStop, 0, stop)
	pdr.StoreHalf(i, wordPDRRate, 1, notify)
	e.notify = notify
	return true
}

// Event says whose an event is that the data path wrote. One that only
// made us write a limit again is nobody's.
func (s *Sessions) Event(r *abi.SessionEvent) (e Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() != nil {
		return e, false
	}
	if e.Session, e.Rule = s.owners.ruleAt(r.Pdr); e.Session == 0 && e.Rule == 0 {
		return e, false
	}
	switch abi.SessionEventKind(r.Kind) {
	case abi.SessionEventKindSESSION_STOP:
		e.Kind = EventStop
		return e, true
	case abi.SessionEventKindSESSION_REFUSED:
		return e, true
	}
	l, far := s.owners.far[r.Pdr]
	if !far {
		return e, true
	}
	reached := l.notify != 0 && counter.ReadVolume(s.tables.PDR.Words(r.Pdr)).Bytes >= l.notify
	if reached {
		l.notify = 0 // there is one event
	}
	s.owners.entries[r.Pdr].notify = usageUnknown
	s.writer.setLimits(r.Pdr, l)
	return e, reached
}

// TableUsage says how full the tables of sessions are. Of pdr, entries that
// TEIDs and UE pools lead to are there for each session.
func (s *Sessions) TableUsage(out map[string]table.Usage) {
	o := s.owners
	set := func(name string, used int, most uint32) { out[name] = table.Usage{Used: used, Max: int(most)} }
	for _, x := range []*indexStack{&o.pdrFree, &o.meterFree, &o.quotaFree, &s.forwardings.free} {
		set(x.table, x.used(), x.end-x.first)
	}
	set("sessions", o.byID.Len(), o.most)
	set(abi.MapFilter, int(o.runs.used), o.runs.count)
	set(abi.MapPdrByTeid, s.tables.TEIDs.Len(), keysOfSession*o.most)
	set(abi.MapPdrByUe, s.tables.UEs.Len(), keysOfSession*o.most)
}

// Leftovers counts what is kept beside the tables, by kind: nothing where there
// are no sessions, all is settled and Reap has been called.
func (s *Sessions) Leftovers() map[string]int {
	o := s.owners
	out := map[string]int{"keys": len(o.keys), "meters": len(o.meters), "quotas": len(o.quotas), "far": len(o.far), "gone": len(o.gone),
		"resting": len(o.resting), "pending": len(o.pending), "forwardings": len(s.forwardings.byIndex),
		"slots": len(o.list) - 1 - len(o.empty)}
	maps.DeleteFunc(out, func(_ string, n int) bool { return n == 0 })
	return out
}

// DownlinkTEID is where a session's UE is reached through this node; 0: by its
// address, or not at all.
func (s *Sessions) DownlinkTEID(id uint64) (teid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() != nil {
		return 0
	}
	for _, e := range s.state(s.owners.byID.Get(id)).entries {
		do := s.tables.loadDo(e.index)
		if e.kind&entryHead == 0 || !isActive(do) || flagsOf(do)&flagDownlink == 0 {
			continue
		}
		k, keyed := s.owners.keys[e.index]
		switch {
		case keyed && k.teid != 0:
			teid = k.teid
		case !keyed && e.index < s.owners.slots:
			teid = placeIn(e.index, do).teid(s.owners.slots)
		default:
			return 0
		}
	}
	return teid
}
