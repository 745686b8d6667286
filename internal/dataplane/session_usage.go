package dataplane

import (
	"fmt"
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// addVolume adds to what a volume counted, as the data path does meanwhile.
func addVolume(at []uint64, word uint64) {
	now := atomic.AddUint64(&at[0], word)
	turned := now ^ (now - word)
	if turned>>(counter.VolumeByteBits-1)&1 != 0 {
		atomic.AddUint64(&at[1], 1)
	}
	if turned>>63 != 0 {
		atomic.AddUint64(&at[1], 1<<32)
	}
}

// NoSessionError says that a session is missing.
type NoSessionError struct{ ID uint64 }

func (e *NoSessionError) Error() string { return fmt.Sprintf("session %#x is missing", e.ID) }

// Usage says what each rule of a session forwarded. The rules that the last change
// took out of the session are among them, with all that they ever did; where
// there are any, the call waits until packets that met them have left.
func (s *Sessions) Usage(id uint64) (out []RuleUsage, err error) {
	err = s.retrying(func() error {
		slot := s.owners.byID.Get(id)
		if slot == 0 {
			return &NoSessionError{id}
		}
		if g := s.owners.gone[slot]; g != nil {
			if g.waiting > 0 {
				return &busyError{s.owners.pending[len(s.owners.pending)-1].due}
			}
			out = append(out, g.usage...)
		}
		for _, e := range s.state(slot).entries {
			if e.kind&entryRule != 0 {
				out = append(out, s.usageOf(e.index, e.rule))
			}
		}
		return nil
	})
	return out, err
}

// usageOf is what an entry counted.
func (s *Sessions) usageOf(i uint32, rule uint16) RuleUsage {
	return RuleUsage{Rule: rule, Volume: counter.ReadVolume(s.tables.pdr.Words(i)), Refused: counter.ReadVolume(s.tables.refused.Words(i))}
}

// SetLimits changes when a rule tells the daemon, and when it stops. One that
// was told about is told about again.
func (s *Sessions) SetLimits(id uint64, rule uint16, l RuleLimits) error {
	return s.retrying(func() error {
		slot := s.owners.byID.Get(id)
		if slot == 0 {
			return &NoSessionError{id}
		}
		index := s.owners.entryOf(slot, rule)
		if index == 0 {
			return fmt.Errorf("session %#x: rule %d is missing", id, rule)
		}
		s.owners.entries[index].notify = usageUnknown
		s.setRuleLimits(index, l)
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

// setRuleLimits writes a rule's limits where they are others.
func (s *Sessions) setRuleLimits(i uint32, l RuleLimits) (changed bool) {
	changed = s.setLimits(i, limits{l.NotifyAt, l.StopAt})
	return s.setRefusedLimit(i, l.RefusedNotifyAt) || changed
}

// wordRefusedNotify is that of an entry of refused, after its volume.
const wordRefusedNotify = 2

// setRefusedLimit: what is too far ahead is told on the way there, and then set
// again by who is told.
func (s *Sessions) setRefusedLimit(i uint32, notify uint64) (changed bool) {
	counted := counter.ReadVolume(s.tables.refused.Words(i)).Bytes
	word, near := usageWord(notify, counted)
	if !near {
		word, _ = usageWord(counted+usageAhead<<(usageUnit-1), counted)
	}
	if s.tables.refused.LoadHalf(i, wordRefusedNotify, 0) == word {
		return false
	}
	s.tables.refused.StoreHalf(i, wordRefusedNotify, 0, word)
	return true
}

// setLimits writes a rule's limits where they are not what was written last.
// What is too far ahead has to wait: the data path tells us on the way, and
// then it is looked at again.
func (s *Sessions) setLimits(i uint32, l limits) (changed bool) {
	e, pdr, far := &s.owners.entries[i], s.tables.pdr, s.owners.far
	if known, ok := far[i]; ok {
		if known == l && e.notify != usageUnknown {
			return false
		}
		delete(far, i)
	}
	counted := counter.ReadVolume(pdr.Words(i)).Bytes
	notify, near := usageWord(l.notify, counted)
	stop, nearStop := usageWord(l.stop, counted)
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

// event says whose an event is. One that only told us to look again is nobody's.
func (s *Sessions) event(r *abi.SessionEvent) (e SessionEvent, ok bool) {
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
	reached := l.notify != 0 && counter.ReadVolume(s.tables.pdr.Words(r.Pdr)).Bytes >= l.notify
	if reached {
		l.notify = 0 // it is told once
	}
	s.owners.entries[r.Pdr].notify = usageUnknown
	s.setLimits(r.Pdr, l)
	return e, reached
}
