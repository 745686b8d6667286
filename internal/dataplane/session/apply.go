package session

import (
	"errors"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// writer does single writes.
type writer struct {
	tables *tables
	owners *owners
}

// Apply writes a plan in its order, and notes who owns what then. An error of a
// key that cannot be led, which comes before packets see anything of the plan,
// takes everything back.
func (s *Sessions) Apply(p *Plan) error {
	var now uint64 // the data path's clock, for buckets that begin
	if beginsBucket(p) {
		var err error
		if now, err = table.Monotonic(); err != nil {
			return errors.Join(err, s.abandon(p, nil))
		}
	}
	var errs []error
	changed := false
	for i := range p.Writes {
		w := &p.Writes[i]
		written, err := s.writer.write(p, w, now)
		if err != nil && w.Op == Lead {
			return errors.Join(err, s.abandon(p, p.Writes[:i]))
		}
		changed = changed || written
		if err != nil {
			errs = append(errs, err)
		}
	}
	s.writer.endShares(p.quota)
	return errors.Join(errors.Join(errs...), s.account(p, changed))
}

// beginsBucket says whether a write may begin a bucket, for which it needs the clock:
// reading that takes a system call, and most plans begin none.
func beginsBucket(p *Plan) bool {
	return slices.ContainsFunc(p.Writes, func(w Write) bool {
		switch w.Op {
		case PutMeter:
			return true
		case PutRule:
			return p.rules[w.Part].Rate != 0
		case SetRate:
			return w.Value != 0
		}
		return false
	})
}

// write does one write of a plan. changed: packets are handled differently, or
// counted elsewhere.
func (s *writer) write(p *Plan, w *Write, now uint64) (changed bool, err error) {
	switch w.Op {
	case PutMeter, ChangeMeter:
		s.writeMeter(p, w, now)
		return false, nil
	case PutQuota:
		s.writeQuota(w.Index, &p.quotas, w.Index == p.takenQuota)
		return false, nil
	case PutRun:
		// No packet reaches these entries yet.
		for n := w.Part; n < int(w.Value); n++ {
			at, frame := w.Index+uint32(n-w.Part), &p.runs.frames[n]
			if *frame != (abi.FrameFilter{}) || s.tables.FrameFilter.Get(at) != *frame {
				s.tables.FrameFilter.Put(at, frame)
			}
			s.tables.Filter.Put(at, &p.runs.entries[n])
		}
		return false, nil
	case PutRule:
		s.writeRule(p, w, now)
	case ForgetPorts:
		s.tables.node.ForgetPorts(p.heads[w.Part].prefix.Addr())
		return false, nil
	case Lead:
		h := &p.heads[w.Part]
		return false, s.tables.put(h.key, h.by, h.index)
	case Unlead:
		delete(s.owners.keys, w.Index)
		return false, s.tables.del(p.hidden[w.Part])
	case Hide:
		s.tables.PDR.Store(w.Index, wordPDRDo, inactive(s.tables.PDR.Load(w.Index, wordPDRDo)))
		return false, nil
	case SetRate:
		setRate(s.tables.PDR, w.Index, wordPDRBucket, wordPDRRate, uint32(w.Value), now)
	case SetLimits:
		return s.setRuleLimits(w.Index, p.rules[w.Part].RuleLimits, p.quota), nil
	case SetOut:
		s.tables.PDR.Store(w.Index, wordPDROut, w.Value)
	case SetSource4:
		s.tables.PDR.StoreHalf(w.Index, wordPDRStop, 1, uint32(w.Value))
	case SetSource6:
		s.tables.PDR.Store(w.Index, wordPDRSource6, w.Value)
	case SetDo:
		s.setDo(w.Index, w.Value)
	case Wait:
		s.owners.periods.Wait(s.owners.periods.Next())
		return false, nil
	}
	return true, nil
}

// writeMeter makes an entry say what the session's meter is: a new one whole,
// another by the words that changed. Packets in between may see a rate with
// another's window: how large a burst may be, nothing else.
func (s *writer) writeMeter(p *Plan, w *Write, now uint64) {
	meter, e := s.tables.Meter, meterEntry(p.session.Meters[w.Part])
	if next := p.next[w.Part]; next >= 0 {
		e.Next = p.meters[next]
	}
	if w.Op == PutMeter {
		e.Bucket = newBucket(now, 0, e.Window)
		meter.Put(w.Index, &e)
		return
	}
	meter.Change(w.Index, wordMeterRate, uint64(e.Rate)|uint64(e.Next)<<32)
	meter.Change(w.Index, wordMeterUnit, uint64(e.Unit)|uint64(e.Window)<<32)
	slowDown(meter, w.Index, wordMeterBucket, onePayment(e))
}

// writeRule fills in an entry that is new, or that no packet takes for a rule.
// It goes on with the volume and the bucket that the rule has. A head says
// itself what becomes of packets, as the last word.
func (s *writer) writeRule(p *Plan, w *Write, now uint64) {
	r, i, pdr := &p.rules[w.Part], w.Index, s.tables.PDR
	var had RuleUsage
	bucket, rate := uint64(0), kilobits(r.Rate)
	if w.From != 0 {
		had = s.usageOf(w.From, r.ID)
		bucket = pdr.Load(w.From, wordPDRBucket)
	}
	v, refused := counter.VolumeOf(had.Volume), counter.VolumeOf(had.Refused)
	r.volume, r.refused = v.Word, refused.Word
	for n, word := range table.ToWords(refused) { // what is held of the entry stays
		s.tables.Refused.Store(i, n, word)
	}
	s.tables.Refused.StoreHalf(i, wordRefusedNotify, 0, 0)
	if rate != 0 && (w.From == 0 || pdr.LoadHalf(w.From, wordPDRRate, 0) == 0) {
		bucket = newBucket(now, uint32(v.Word), octetWindow(rate))
	}
	pdr.Store(i, 0, v.Word)
	pdr.Store(i, 1, uint64(v.ByteHalves)|uint64(v.PacketHalves)<<32)
	pdr.Store(i, wordPDROut, r.out)
	pdr.Store(i, wordPDRBucket, bucket)
	pdr.StoreHalf(i, wordPDRRate, 0, rate)
	slowDown(pdr, i, wordPDRBucket, onePayment(abi.Meter{Rate: rate}))
	s.owners.entries[i].notify = 0
	pdr.StoreHalf(i, wordPDRRate, 1, 0)
	pdr.StoreHalf(i, wordPDRStop, 0, 0)
	s.setRuleLimits(i, r.RuleLimits, p.quota)
	if p.headOf(r) == nil {
		s.setDo(i, r.do)
	}
}

// abandon takes back what a plan has written before a key could not be led.
func (s *Sessions) abandon(p *Plan, written []Write) error {
	var errs []error
	for _, w := range written {
		if w.Op == Lead && !p.heads[w.Part].had {
			errs = append(errs, s.tables.del(p.heads[w.Part].key))
		}
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			delete(s.owners.far, r.at)
		}
	}
	p.giveBack(s.later)
	return errors.Join(append(errs, s.forwardings.releaseAll(p.want))...)
}

// account notes who owns what after a plan, and what packets may still see of
// the old state.
func (s *Sessions) account(p *Plan, changed bool) error {
	slot := p.old.slot
	if g := s.owners.gone[slot]; g != nil && changed {
		g.usage = nil
	}
	s.owners.record(p)
	for _, r := range p.releases {
		switch r.kind {
		case releaseGone:
			s.owners.departedOf(slot).waiting++
		case releaseFold:
			to := p.ruleOf(r.rule)
			r.volume, r.refused = to.volume, to.refused
		}
		s.later(r)
	}
	return s.forwardings.releaseAll(p.old.forwardings)
}
