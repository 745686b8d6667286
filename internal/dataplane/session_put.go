package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// PutSession makes the data path hold a session, whatever it held of it before:
// all of it, or, where that cannot be, nothing new (*FullError, ErrTaken). The
// same again changes nothing. Packets that come meanwhile are handled by one
// rule as it was or as it will be; volumes go on for rules whose ID stays. What
// changes one session comes one after another.
func (d *DataPlane) PutSession(s Session) error {
	turning := false
	err := d.retrying(func() (err error) {
		turning, err = d.putSession(&s, false)
		return err
	})
	if err == nil && turning {
		err = d.retrying(func() error {
			_, err := d.putSession(&s, true)
			return err
		})
		var full *table.FullError
		if errors.As(err, &full) {
			err = nil // packets are handled alike, by one lookup more
		}
	}
	if err != nil {
		return fmt.Errorf("session %#x: %w", s.ID, err)
	}
	return nil
}

// putSession says whether the session's sources are to be turned, by putting it
// once more.
func (d *DataPlane) putSession(s *Session, again bool) (turning bool, err error) {
	if err := d.checkSession(s); err != nil {
		return false, err
	}
	d.adoptSession(s)
	p := &d.sessions.plan
	p.reset(s)
	p.slot, p.again = d.sessions.byID.Get(s.ID), again
	if n := d.sessions.byID.Len(); p.slot == 0 && n >= int(d.limits.Sessions) {
		return false, &table.FullError{Table: "sessions", Max: d.limits.Sessions, Limit: "sessions"}
	}
	err = d.planSession()
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		return false, errors.Join(err, d.dropPlan())
	}
	return p.turning, d.commit()
}

// planSession finds room for everything.
func (d *DataPlane) planSession() error {
	s := d.sessions
	p := &s.plan
	d.readHad()
	p.sortRules()
	if err := d.groupRules(); err != nil {
		return err
	}
	if err := d.planHeads(); err != nil {
		return err
	}
	p.chooseStraight()
	for i := range p.rules {
		p.rules[i].had = d.ruleEntry(p.rules[i].ID)
	}
	if err := d.planForwardings(); err != nil {
		return err
	}
	if err := p.chainMeters(p.session); err != nil {
		return err
	}
	d.findMeters()
	if err := d.planMeters(p.session); err != nil {
		return err
	}
	if err := d.findMoves(); err != nil {
		return err
	}
	for i := range p.rules {
		if err := d.placeRule(&p.rules[i]); err != nil {
			return err
		}
	}
	if err := p.planFilters(); err != nil {
		return err
	}
	if err := d.placeRuns(); err != nil {
		return err
	}
	return p.readClock()
}

// readHad finds what the session has now.
func (d *DataPlane) readHad() {
	s, p := d.sessions, &d.sessions.plan
	if p.slot == 0 {
		return
	}
	s.entriesOf(p.slot, func(i uint32, b *pdrBook) {
		p.had = append(p.had, i)
		if b.kind&entryRule != 0 && actionOf(d.pdr.Load(i, wordPDRDo)) == actionForward {
			p.ended = append(p.ended, uint32(d.pdr.Load(i, wordPDROut)>>32))
		}
	})
	p.hadMeters = append(p.hadMeters, s.meters[p.slot]...)
}

// chooseStraight prefers, of the heads that may be a rule themselves, one that
// is there already.
func (p *plan) chooseStraight() {
	for i := range p.heads {
		h := &p.heads[i]
		if !h.had || !p.isStraight(h) {
			continue
		}
		if r := &p.rules[p.members[h.first]]; !p.heads[r.head].had {
			r.head = i
		}
	}
}

// ruleEntry is where a rule of the session is; 0: nowhere.
func (d *DataPlane) ruleEntry(id uint16) uint32 {
	for _, i := range d.sessions.plan.had {
		if b := &d.sessions.entries[i]; b.kind&entryRule != 0 && b.rule == id {
			return i
		}
	}
	return 0
}

func (d *DataPlane) planForwardings() error {
	p := &d.sessions.plan
	for i := range p.rules {
		r := &p.rules[i]
		if !r.Action.forwards() {
			continue
		}
		index, err := d.acquireForwarding(r.Forward)
		if err != nil {
			return fmt.Errorf("rule %d: %w", r.ID, err)
		}
		r.forwarding = index
		p.acquired = append(p.acquired, index)
	}
	return nil
}

// findMeters finds the meters of a session that an earlier daemon put, by the
// chains that its rules have.
func (d *DataPlane) findMeters() {
	p := &d.sessions.plan
	if !d.sessions.recovering || len(p.hadMeters) > 0 {
		return
	}
	for range p.session.Meters {
		p.hadMeters = append(p.hadMeters, 0)
	}
	for i := range p.rules {
		r := &p.rules[i]
		if r.had == 0 || flagsOf(d.pdr.Load(r.had, wordPDRDo))&flagMeters == 0 {
			continue
		}
		index := moreOf(d.pdr.Load(r.had, wordPDRDo))
		for _, place := range r.chain {
			if index == 0 || index >= d.meter.Len {
				break
			}
			p.hadMeters[place] = index
			index = d.meter.LoadHalf(index, wordMeterRate, 1)
		}
	}
}

// readClock is for buckets that begin.
func (p *plan) readClock() (err error) {
	wanted := len(p.session.Meters) > 0
	for i := range p.rules {
		wanted = wanted || p.rules[i].Rate != 0
	}
	if wanted {
		p.now, err = monotonic()
	}
	return err
}

// placeRule chooses a rule's entry. It stays where it is if it can change there.
// What is led to by other rules' TEID or address, or no more, is no place for
// it.
func (d *DataPlane) placeRule(r *plannedRule) error {
	p := &d.sessions.plan
	r.out, r.do = p.words(r)
	straight, behind := uint32(0), r.had != 0 && d.sessions.entries[r.had].kind&entryHead == 0
	if r.head >= 0 {
		straight = p.heads[r.head].index
	}
	switch {
	case r.had == 0:
		if straight != 0 && d.mayBeRule(straight, r) {
			r.at = straight
			return d.rested(straight)
		}
	case r.had == straight:
		fits, err := d.changes(r)
		if fits || err != nil {
			r.at = r.had
			return err
		}
	case straight != 0:
		if behind && d.says(r.had, r) {
			r.at = r.had
			return nil
		}
		if d.mayBeRule(straight, r) {
			r.at = straight
			return d.rested(straight)
		}
	}
	if behind {
		fits, err := d.changes(r)
		if fits || err != nil {
			r.at = r.had
			return err
		}
	}
	var err error
	r.at, err = d.takePDR()
	return err
}

// mayBeRule says whether a head is no other rule's entry.
func (d *DataPlane) mayBeRule(index uint32, r *plannedRule) bool {
	b := &d.sessions.entries[index]
	return b.kind&entryRule == 0 || b.rule == r.ID
}

// says says whether an entry behind filters is the rule already.
func (d *DataPlane) says(index uint32, r *plannedRule) bool {
	return d.pdr.Load(index, wordPDRDo) == r.do &&
		(!r.Action.forwards() || d.pdr.Load(index, wordPDROut) == r.out)
}

// changes says whether a rule's entry can become what it shall be where it is:
// if one word changes of those that packets act by, they see it old or new. What
// they do not look at as long as the entry says what it does may be written
// before, when no packet is left that saw it say something else (retryError).
// Nothing may change where what leads there changes too.
func (d *DataPlane) changes(r *plannedRule) (fits bool, err error) {
	do, h := d.sessions.plan.doAt(r, r.had)
	was := d.pdr.Load(r.had, wordPDRDo)
	changed, before := 0, false
	if was != do {
		changed++
	}
	if r.Action.forwards() && d.pdr.Load(r.had, wordPDROut) != r.out {
		if actionOf(was) == actionForward {
			changed++
		} else {
			before = true
		}
	}
	if h != nil {
		_, unused := d.sourcesChange(h)
		before = before || unused
	}
	if changed > 1 || changed == 1 && r.moves {
		return false, nil
	}
	if before {
		return true, d.rested(r.had)
	}
	return true, nil
}

// sourcesChange says whether a head's sources become others: `used` if packets
// look at them now, `unused` if they will. A packet is of one family and looks
// at one of them.
func (d *DataPlane) sourcesChange(h *plannedHead) (used, unused bool) {
	flags := flagsOf(d.pdr.Load(h.index, wordPDRDo))
	check := func(flag uint8, differs bool) {
		if h.flags&flag == 0 || !differs {
			return
		}
		if flags&flag != 0 {
			used = true
		} else {
			unused = true
		}
	}
	check(flagSource4, d.pdr.LoadHalf(h.index, wordPDRStop, 1) != h.source4)
	check(flagSource6, d.pdr.Load(h.index, wordPDRSource6) != h.source6)
	return used, unused
}

// placeRuns finds room for the runs that are not there yet, and makes up what
// the heads say.
func (d *DataPlane) placeRuns() error {
	p := &d.sessions.plan
	for i := range p.heads {
		h := &p.heads[i]
		if h.from == h.to {
			h.do, _ = p.doAt(&p.rules[p.members[h.first]], h.index)
			continue
		}
		was := d.pdr.Load(h.index, wordPDRDo)
		if h.had && actionOf(was) == actionFilters && d.sameRun(moreOf(was), p.filters[h.from:h.to], p.frames[h.from:h.to]) {
			h.runAt = moreOf(was)
		} else {
			at, err := d.takeRun(h.to - h.from)
			if err != nil {
				return err
			}
			h.runAt = at
			p.freshRuns = append(p.freshRuns, at)
		}
		h.do = doWord(h.runAt, actionFilters, h.flags, h.qfi, h.generation())
		if _, unused := d.sourcesChange(h); unused && h.had {
			if err := d.rested(h.index); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameRun says whether a run is at an entry.
func (d *DataPlane) sameRun(at uint32, run []abi.Filter, frames []abi.FrameFilter) bool {
	if int(at)+len(run) > int(d.filter.Len) {
		return false
	}
	for i := range run {
		if d.filter.Get(at+uint32(i)) != run[i] || run[i].FlowLabel&filterFrame != 0 && d.frameFilter.Get(at+uint32(i)) != frames[i] {
			return false
		}
	}
	return true
}

// dropPlan gives back what a plan took that does not come true.
func (d *DataPlane) dropPlan() error {
	s := d.sessions
	p := &s.plan
	var errs []error
	for _, index := range p.acquired {
		errs = append(errs, d.releaseForwarding(index))
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			delete(s.far, r.at)
		}
	}
	for _, index := range p.freshPDRs {
		if p.led {
			d.later(pending{kind: pendingPDR, index: index})
		} else {
			s.pdrFree.give(index)
		}
	}
	for _, at := range p.freshRuns {
		s.runs.release(at - firstFilter)
	}
	for _, index := range p.freshMeters {
		s.meterFree.give(index)
	}
	return errors.Join(errs...)
}

// begin writes what no packet reaches. What may still fail is done there too:
// TEIDs and addresses that are not indices lead to entries that lead nowhere
// until commit, so that a packet to one of these, which had no session before,
// finds for a moment that it has no rule.
func (d *DataPlane) begin() error {
	p := &d.sessions.plan
	p.led = true
	d.writeMeters()
	for i := range p.heads {
		if h := &p.heads[i]; h.from != h.to && slices.Contains(p.freshRuns, h.runAt) {
			d.writeRun(h.runAt, p.filters[h.from:h.to], p.frames[h.from:h.to])
		}
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			d.writeRule(r)
		}
	}
	return d.leadTo(p.heads)
}

// writeHeads lets packets be handled as the session says now: first by heads
// that are rules, to which runs may lead, last by those that were.
func (d *DataPlane) writeHeads() (changed bool) {
	p := &d.sessions.plan
	turn := func(h *plannedHead) int {
		switch {
		case h.from == h.to:
			return 0
		case actionOf(d.pdr.Load(h.index, wordPDRDo)) == actionFilters || !h.had:
			return 1
		}
		return 2
	}
	for now := range 3 {
		for i := range p.heads {
			if h := &p.heads[i]; turn(h) == now {
				changed = d.writeHead(h) || changed
			}
		}
	}
	return changed
}

// commit makes the plan true: the words that are there already, then the end of
// what is not wanted any more.
func (d *DataPlane) commit() error {
	s := d.sessions
	p := &s.plan
	if p.slot == 0 {
		p.slot = s.newSlot(p.session.ID)
	}
	// Heads that are not wanted go before the rules change that they lead to.
	err := d.dropHeads(0)
	changed := false
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			changed = true
		} else {
			changed = d.changeRule(r) || changed
		}
	}
	changed = d.writeHeads() || changed
	return errors.Join(err, d.dropHeads(entryRule), d.account(changed))
}

// dropHeads takes away the heads that are not wanted any more: those that are
// rules (kind), to which runs may lead until these are others, or the rest.
func (d *DataPlane) dropHeads(kind uint8) error {
	p := &d.sessions.plan
	var errs []error
	for _, i := range p.had {
		if k := d.sessions.entries[i].kind; k&entryHead != 0 && k&entryRule == kind && !p.isHead(i) {
			errs = append(errs, d.dropHead(i))
		}
	}
	return errors.Join(errs...)
}

// changeRule changes a rule where it is; writeHead does the rest where it is a
// head.
func (d *DataPlane) changeRule(r *plannedRule) (changed bool) {
	i := r.at
	do, h := d.sessions.plan.doAt(r, i)
	was := d.pdr.Load(i, wordPDRDo)
	if r.Action.forwards() && d.pdr.Load(i, wordPDROut) != r.out {
		d.pdr.Store(i, wordPDROut, r.out)
		changed = true
	}
	if rate := kilobits(r.Rate); d.pdr.LoadHalf(i, wordPDRRate, 0) != rate {
		if d.pdr.LoadHalf(i, wordPDRRate, 0) == 0 {
			used := uint32(d.pdr.Load(i, 0))
			d.pdr.Store(i, wordPDRBucket, newBucket(d.sessions.plan.now, used, octetWindow(rate)))
		}
		d.pdr.StoreHalf(i, wordPDRRate, 0, rate)
		slowDown(d.pdr, i, wordPDRBucket, onePayment(abi.Meter{Rate: rate}))
		changed = true
	}
	changed = d.setRuleLimits(i, r.RuleLimits) || changed
	if h == nil && was != do {
		d.pdr.Store(i, wordPDRDo, do)
		d.rest(i)
		changed = true
	}
	return changed
}

// writeRule fills in an entry that is new, or that no packet takes for a rule.
// It goes on with the volume and the bucket that the rule has.
func (d *DataPlane) writeRule(r *plannedRule) {
	i := r.at
	var had RuleUsage
	bucket, rate := uint64(0), kilobits(r.Rate)
	if r.had != 0 {
		had = d.usageOf(r.had, r.ID)
		bucket = d.pdr.Load(r.had, wordPDRBucket)
	}
	v, refused := counter.VolumeOf(had.Volume), counter.VolumeOf(had.Refused)
	r.word, r.refused = v.Word, refused.Word
	d.refused.Put(i, &abi.Refused{Volume: refused})
	if rate != 0 && (r.had == 0 || d.pdr.LoadHalf(r.had, wordPDRRate, 0) == 0) {
		bucket = newBucket(d.sessions.plan.now, uint32(v.Word), octetWindow(rate))
	}
	d.pdr.Store(i, 0, v.Word)
	d.pdr.Store(i, 1, uint64(v.ByteHalves)|uint64(v.PacketHalves)<<32)
	d.pdr.Store(i, wordPDROut, r.out)
	d.pdr.Store(i, wordPDRBucket, bucket)
	d.pdr.StoreHalf(i, wordPDRRate, 0, rate)
	slowDown(d.pdr, i, wordPDRBucket, onePayment(abi.Meter{Rate: rate}))
	d.sessions.entries[i].notify = 0
	d.pdr.StoreHalf(i, wordPDRRate, 1, 0)
	d.pdr.StoreHalf(i, wordPDRStop, 0, 0)
	d.setRuleLimits(i, r.RuleLimits)
	if do, h := d.sessions.plan.doAt(r, i); h == nil {
		d.pdr.Store(i, wordPDRDo, do)
	}
}

// writeHead lets packets be handled as the session says now, by one word:
// sources that are written here are those that no packet looks at yet.
func (d *DataPlane) writeHead(h *plannedHead) (changed bool) {
	i := h.index
	if h.flags&flagSource4 != 0 && d.pdr.LoadHalf(i, wordPDRStop, 1) != h.source4 {
		d.pdr.StoreHalf(i, wordPDRStop, 1, h.source4)
		changed = true
	}
	if h.flags&flagSource6 != 0 && d.pdr.Load(i, wordPDRSource6) != h.source6 {
		d.pdr.Store(i, wordPDRSource6, h.source6)
		changed = true
	}
	if !h.had && h.from != h.to {
		d.pdr.Store(i, wordPDROut, anyLength<<32)
	}
	was := d.pdr.Load(i, wordPDRDo)
	if was == h.do {
		return changed
	}
	d.pdr.Store(i, wordPDRDo, h.do)
	if h.had {
		d.rest(i)
	}
	if actionOf(was) == actionFilters && moreOf(was) != h.runAt {
		d.later(pending{kind: pendingRun, index: moreOf(was)})
	}
	return true
}

// account puts what was done into the books, and ends what is left of what was
// before.
func (d *DataPlane) account(changed bool) error {
	s := d.sessions
	p := &s.plan
	if g := s.gone[p.slot]; g != nil && changed && !p.again {
		g.usage = nil
	}
	var errs []error
	for _, i := range p.had {
		d.leaveEntry(i)
	}
	s.list[p.slot].first = 0
	for i := range p.heads {
		h := &p.heads[i]
		s.link(p.slot, h.index, entryHead, 0)
		if h.where != byIndex && !h.had {
			s.keys[h.index] = h.headKey
		}
	}
	for i := range p.rules {
		s.link(p.slot, p.rules[i].at, entryRule, p.rules[i].ID)
	}
	d.accountMeters()
	for _, index := range p.ended {
		errs = append(errs, d.releaseForwarding(index))
	}
	return errors.Join(errs...)
}

func (p *plan) isHead(index uint32) bool {
	return slices.ContainsFunc(p.heads, func(h plannedHead) bool { return h.index == index })
}

// dropHead takes a head away, and the run that it has.
func (d *DataPlane) dropHead(i uint32) error {
	was := d.pdr.Load(i, wordPDRDo)
	err := d.hideHead(i)
	if actionOf(was) == actionFilters {
		d.later(pending{kind: pendingRun, index: moreOf(was)})
	}
	return err
}

// leaveEntry takes an entry out of the session's list. What it counted belongs
// to where its rule is now, or is the last that its rule did.
func (d *DataPlane) leaveEntry(i uint32) {
	s := d.sessions
	p := &s.plan
	b := &s.entries[i]
	stays := p.isHead(i)
	if b.kind&entryRule != 0 {
		n := slices.IndexFunc(p.rules, func(r plannedRule) bool { return r.ID == b.rule })
		switch {
		case n < 0:
			s.departedOf(p.slot).waiting++
			d.later(pending{kind: pendingGone, index: i, to: p.slot, rule: b.rule})
		case p.rules[n].at == i:
			stays = true
		default:
			d.later(pending{kind: pendingFold, index: i, to: p.rules[n].at, word: p.rules[n].word, refused: p.rules[n].refused})
		}
		if n < 0 || p.rules[n].at != i {
			delete(s.far, i)
		}
	}
	b.session = 0
	if !stays {
		d.retireEntry(i)
	}
}

// retireEntry gives an entry back, once packets have left it.
func (d *DataPlane) retireEntry(i uint32) {
	d.sessions.entries[i] = pdrBook{}
	if i >= d.sessions.pdrFree.first {
		d.later(pending{kind: pendingPDR, index: i})
	} else {
		d.rest(i)
	}
}

// accountMeters keeps the session's meters in mind, and gives back those that
// it has no more.
func (d *DataPlane) accountMeters() {
	s := d.sessions
	p := &s.plan
	for _, index := range p.hadMeters {
		if index != 0 && !slices.Contains(p.meters, index) {
			d.later(pending{kind: pendingMeter, index: index})
		}
	}
	if len(p.meters) == 0 {
		if len(p.hadMeters) > 0 {
			delete(s.meters, p.slot)
		}
		return
	}
	if !slices.Equal(p.meters, p.hadMeters) {
		s.meters[p.slot] = slices.Clone(p.meters)
	}
}
