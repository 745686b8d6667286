package dataplane

import (
	"context"
	"errors"
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

// NoSessionError says that there is no session of that ID.
type NoSessionError struct{ ID uint64 }

func (e *NoSessionError) Error() string { return fmt.Sprintf("session %#x: there is none", e.ID) }

// SessionUsage says what each rule forwarded. The rules that the last change
// took out of the session are among them, with all that they ever did; where
// there are any, the call waits until packets that met them have left.
func (d *DataPlane) SessionUsage(id uint64) (out []RuleUsage, err error) {
	err = d.retrying(func() error {
		s := d.sessions
		slot := s.byID.Get(id)
		if slot == 0 {
			return &NoSessionError{id}
		}
		if g := s.gone[slot]; g != nil {
			if g.waiting > 0 {
				return retryError{s.pending[len(s.pending)-1].due}
			}
			out = append(out, g.usage...)
		}
		s.entriesOf(slot, func(i uint32, b *pdrBook) {
			if b.kind&entryRule != 0 {
				out = append(out, d.usageOf(i, b.rule))
			}
		})
		return nil
	})
	return out, err
}

// usageOf is what an entry counted.
func (d *DataPlane) usageOf(i uint32, rule uint16) RuleUsage {
	return RuleUsage{Rule: rule, Volume: counter.ReadVolume(d.pdr.Words(i)), Refused: counter.ReadVolume(d.refused.Words(i))}
}

// SetRuleLimits changes when a rule tells the daemon, and when it stops. One
// that was told about is told about again.
func (d *DataPlane) SetRuleLimits(id uint64, rule uint16, l RuleLimits) error {
	return d.retrying(func() error {
		s := d.sessions
		slot, found := s.byID.Get(id), uint32(0)
		if slot == 0 {
			return &NoSessionError{id}
		}
		s.entriesOf(slot, func(i uint32, b *pdrBook) {
			if b.kind&entryRule != 0 && b.rule == rule {
				found = i
			}
		})
		if found == 0 {
			return fmt.Errorf("session %#x: rule %d: there is none", id, rule)
		}
		s.entries[found].notify = usageUnknown
		d.setRuleLimits(found, l)
		return nil
	})
}

// Words of limits (USAGE_AHEAD and USAGE_TOLD in bpf/def/tables.h): octets / 256
// modulo 2^32; 0 is never.
const (
	usageUnit    = 8 // bits
	usageAhead   = 1 << 30
	usageTold    = 0xffffffff
	usageUnknown = usageTold // in the books: write it again
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
func (d *DataPlane) setRuleLimits(i uint32, l RuleLimits) (changed bool) {
	changed = d.setLimits(i, limits{l.NotifyAt, l.StopAt})
	return d.setRefusedLimit(i, l.RefusedNotifyAt) || changed
}

// wordRefusedNotify is that of an entry of refused, after its volume.
const wordRefusedNotify = 2

// setRefusedLimit: what is too far ahead is told on the way there, and then set
// again by who is told.
func (d *DataPlane) setRefusedLimit(i uint32, notify uint64) (changed bool) {
	counted := counter.ReadVolume(d.refused.Words(i)).Bytes
	word, near := usageWord(notify, counted)
	if !near {
		word, _ = usageWord(counted+usageAhead<<(usageUnit-1), counted)
	}
	if d.refused.LoadHalf(i, wordRefusedNotify, 0) == word {
		return false
	}
	d.refused.StoreHalf(i, wordRefusedNotify, 0, word)
	return true
}

// setLimits writes a rule's limits where they are not what was written last.
// What is too far ahead has to wait: the data path tells us on the way, and
// then it is looked at again.
func (d *DataPlane) setLimits(i uint32, l limits) (changed bool) {
	s := d.sessions
	b := &s.entries[i]
	if known, ok := s.far[i]; ok {
		if known == l && b.notify != usageUnknown {
			return false
		}
		delete(s.far, i)
	}
	counted := counter.ReadVolume(d.pdr.Words(i)).Bytes
	notify, near := usageWord(l.notify, counted)
	stop, nearStop := usageWord(l.stop, counted)
	if !near || !nearStop {
		s.far[i] = l
		if notify == 0 {
			notify, _ = usageWord(counted+usageAhead<<(usageUnit-1), counted)
		}
	}
	if stop == d.pdr.LoadHalf(i, wordPDRStop, 0) && notify == b.notify {
		return false
	}
	// stop comes first: a packet that met the old one would end notify.
	d.pdr.StoreHalf(i, wordPDRStop, 0, stop)
	d.pdr.StoreHalf(i, wordPDRRate, 1, notify)
	b.notify = notify
	return true
}

// SessionEvents calls f for each event of a rule, until ctx ends. There is one
// reader at a time. An event may come again, or about limits that have changed
// since: SessionUsage says what is true.
func (d *DataPlane) SessionEvents(ctx context.Context, f func(SessionEvent)) error {
	return readRing(ctx, d, abi.MapSessionEvents, func(r *abi.SessionEvent) {
		if e, ok := d.sessionEvent(r); ok {
			f(e)
		}
	})
}

// sessionEvent says whose an event is. One that only told us to look again is
// nobody's.
func (d *DataPlane) sessionEvent(r *abi.SessionEvent) (e SessionEvent, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Session, e.Rule = d.ruleAt(r.Pdr); e.Session == 0 && e.Rule == 0 || d.maps == nil {
		return e, false
	}
	switch abi.SessionEventKind(r.Kind) {
	case abi.SessionEventKindSESSION_STOP:
		e.Kind = EventStop
		return e, true
	case abi.SessionEventKindSESSION_REFUSED:
		return e, true
	}
	s := d.sessions
	l, far := s.far[r.Pdr]
	if !far {
		return e, true
	}
	reached := l.notify != 0 && counter.ReadVolume(d.pdr.Words(r.Pdr)).Bytes >= l.notify
	if reached {
		l.notify = 0 // it is told once
	}
	s.entries[r.Pdr].notify = usageUnknown
	d.setLimits(r.Pdr, l)
	return e, reached
}

// DeleteSession is RemoveSession for who waits.
func (d *DataPlane) DeleteSession(id uint64) (usage []RuleUsage, err error) {
	done := make(chan struct{})
	if refused := d.RemoveSession(id, func(u []RuleUsage, e error) {
		usage, err = u, e
		close(done)
	}); refused != nil {
		return nil, refused
	}
	<-done
	return usage, err
}

// RemoveSession takes a session away from packets, and calls done, once, with what
// each of its rules forwarded up to the last packet: when that has left, of all
// that were removed meanwhile one after the other. On an error it is not called. A
// session that is not there is not an error.
func (d *DataPlane) RemoveSession(id uint64, done func([]RuleUsage, error)) error {
	found, err := d.removeSession(id, done)
	if !found && err == nil {
		done(nil, nil)
	}
	return err
}

// DropSession removes a session whose usage nobody wants.
func (d *DataPlane) DropSession(id uint64) error {
	_, err := d.removeSession(id, nil)
	return err
}

// removeSession takes a session away from packets. done may be nil.
func (d *DataPlane) removeSession(id uint64, done func([]RuleUsage, error)) (found bool, err error) {
	err = d.retrying(func() error {
		s := d.sessions
		slot := s.byID.Get(id)
		if slot == 0 {
			return nil
		}
		found = true
		s.byID.Delete(id)
		p := &s.plan
		p.reset(&Session{ID: id})
		p.slot = slot
		d.readHad()
		s.departedOf(slot)
		err := errors.Join(d.dropHeads(0), d.dropHeads(entryRule), d.account(false))
		if done != nil && err == nil {
			s.removals[slot] = removal{done: done}
		}
		d.later(pending{kind: pendingSlot, index: slot})
		return err
	})
	return found, err
}
