package session

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Plan is how the tables come to hold a session: all writes, in the order in
// which packets may see them, and what is given back afterwards.
type Plan struct {
	tables  *tables // that packets see now; a plan only reads them
	owners  *owners
	session *Session
	old     state
	want    []uint32      // entries of forwarding that its rules refer to
	rules   []plannedRule // in the order in which packets are asked
	heads   []head
	meters  []uint32 // entries of the session's meters
	quota   uint32   // the entry of its quotas, which says quotas then; 0: it has none
	quotas  abi.Quota
	next    []int   // the meter behind each meter of a chain; noMeter: none
	runs    filters // that heads lead to

	Writes   []Write
	hidden   []key // that Unlead deletes
	releases []release
	members  []int // of heads: their rules

	// What the plan takes of the tables' free entries.
	takenPDRs, takenRuns, takenMeters []uint32
	takenQuota                        uint32
}

// Write is one step of a plan. Which fields it has depends on Op.
type Write struct {
	Op    Op
	Index uint32 // the entry that is written, or that a key leads to
	From  uint32 // PutRule: the entry where the rule has been; 0: nowhere
	Part  int    // which meter, head, rule or hidden key of the plan
	Value uint64 // SetOut, SetRate, SetSource4, SetSource6, SetDo: the new word
}

// Op says what a write does.
type Op uint8

// The ops, in the order in which a plan uses them. No packet sees the effect of
// those up to ForgetPorts.
const (
	PutMeter    Op = iota // fill in a meter that no rule has yet
	ChangeMeter           // rate, window and next of a meter; its bucket stays
	PutQuota              // fill in the session's quotas, or change limits of those that it has
	PutRun                // fill in a run of filters
	PutRule               // fill in a rule's entry; its counters and bucket come along
	ForgetPorts           // of NAT44, of a UE whose address another session had
	Lead                  // lead a key to a head that leads nowhere yet
	Unlead                // take a key away from packets
	Hide                  // take a head that is found by index away from packets
	SetOut                // TEID and forwarding of a rule
	SetRate
	SetLimits
	SetSource4 // that a head's packets have; whose a UE's head is
	SetSource6
	SetDo // what becomes of packets
	Wait  // until no packet sees what was before
)

// state is what the tables hold of a session.
type state struct {
	slot    uint32 // 0: the session is not there yet
	entries []entry
	meters  []uint32
	quota   uint32
	// forwardings are those that its rules refer to: entries.
	forwardings []uint32
}

// entry is an entry of pdr that a session has.
type entry struct {
	index uint32
	rule  uint16
	kind  uint8
}

// Kinds of entries; an entry may be all of them.
const (
	entryHead    = 1 // a key leads to it
	entryRule    = 2 // the rule is here
	entryForward = 4 // with a reference to the forwarding that it names
)

// findRule is the entry of a rule; 0: it has none.
func (s *state) findRule(id uint16) uint32 {
	if i := slices.IndexFunc(s.entries, func(e entry) bool { return e.kind&entryRule != 0 && e.rule == id }); i >= 0 {
		return s.entries[i].index
	}
	return 0
}

// at is the entry of an index; the zero value where the session does not have it.
func (s *state) at(index uint32) entry {
	if i := slices.IndexFunc(s.entries, func(e entry) bool { return e.index == index }); i >= 0 {
		return s.entries[i]
	}
	return entry{}
}

// wanted is what the tables shall hold of a session, with what it refers to.
type wanted struct {
	*Session
	forwardings []uint32 // entries, one for each rule; 0: the rule does not forward
	link        uint32   // the number of the session's link
}

// plannedRule is a rule and where it goes.
type plannedRule struct {
	*Rule
	chain      []int  // its meters
	forwarding uint32 // the entry, if it forwards
	had        uint32 // the entry where it is now; 0: none
	at         uint32 // the entry where it will be
	head       int    // the head that may be the rule itself; none: -1
	moves      bool   // another run will lead to it
	out        uint64 // wordPDROut
	do         uint64 // wordPDRDo, without what belongs to a head

	// What was counted at `had` when PutRule copied it.
	volume, refused uint64
}

// head is an entry that a key leads to. It is the rule itself where that is the
// only one there and has no filters; otherwise it leads to a run of them.
type head struct {
	key
	by           lookupKind
	index        uint32
	had          bool // the key leads here already
	first, count int  // of members
	local        bool // each rule's sources are a part of its filters
	flags        uint8
	generation   uint8
	qfi          uint8 // PDR_FRAMES, where rules are of an Ethernet session
	source4      uint32
	source6      uint64
	asks         bool // for sources, before packets pass filters by; 0: for none
	run          filterRun
	out          uint64 // wordPDROut of what leads to the run: who needs no filter
	do           uint64 // wordPDRDo

	// turns: packets look at sources now that become others, so that these are
	// a part of the filters first, and then, after Wait, of the head.
	turns     bool
	turnedRun filterRun
	turnedDo  uint64
}

// filterRun is a run of filters: [from, to) of the plan's, which begin at an entry. A
// head that is its rule has none.
type filterRun struct {
	at       uint32
	from, to int
	fresh    bool // it is not there yet
}

// Planner plans, one session after the other. It keeps nothing but memory.
type Planner struct{ plan Plan }

// Plan plans what leads from the old state to the wanted one, and reserves free
// entries for it. On an error nothing is reserved: *table.FullError, target.ErrTaken, or
// *busyError where an entry is free only after a grace period. The plan is
// valid until the next one.
func (pl *Planner) Plan(old state, want wanted, o *owners, t *tables) (*Plan, error) {
	p := &pl.plan // whose memory is used again
	p.tables, p.owners, p.session, p.old, p.want = t, o, want.Session, old, want.forwardings
	p.rules, p.heads, p.members, p.meters, p.next = p.rules[:0], p.heads[:0], p.members[:0], p.meters[:0], p.next[:0]
	p.runs.cut(0)
	p.Writes, p.hidden, p.releases = p.Writes[:0], p.hidden[:0], p.releases[:0]
	p.takenPDRs, p.takenRuns, p.takenMeters, p.takenQuota = p.takenPDRs[:0], p.takenRuns[:0], p.takenMeters[:0], 0
	if err := p.place(want.link); err != nil {
		p.giveBack(nil)
		return nil, err
	}
	p.appendWrites()
	p.appendReleases()
	return p, nil
}

// place finds an entry for everything that the session has.
func (p *Plan) place(link uint32) error {
	p.sortRules()
	p.findHeads()
	if err := p.groupRules(); err != nil {
		return err
	}
	if err := p.placeHeads(); err != nil {
		return err
	}
	p.joinLink(link)
	p.joinUE()
	p.chooseHeads()
	if err := p.chainMeters(); err != nil {
		return err
	}
	if p.owners.recovering && len(p.old.meters) == 0 {
		p.findMeters()
	}
	if err := p.placeMeters(); err != nil {
		return err
	}
	if err := p.findMoves(); err != nil {
		return err
	}
	for i := range p.rules {
		r, err := &p.rules[i], error(nil)
		r.setWords(p.meters)
		if r.at, err = p.placeRule(r); err != nil {
			return err
		}
	}
	if err := p.placeQuota(); err != nil {
		return err
	}
	return p.placeRuns()
}

// sortRules takes the rules of the session in the order in which packets are
// asked, with the entries that they have now.
func (p *Plan) sortRules() {
	p.rules = slices.Grow(p.rules, len(p.session.Rules))[:len(p.session.Rules)]
	for i := range p.rules {
		r, rule := &p.rules[i], &p.session.Rules[i]
		had := p.old.findRule(rule.ID)
		*r = plannedRule{Rule: rule, chain: r.chain[:0], forwarding: p.want[i], head: -1, had: had, at: had}
	}
	slices.SortFunc(p.rules, func(a, b plannedRule) int {
		return cmp.Or(cmp.Compare(a.Precedence, b.Precedence), cmp.Compare(a.ID, b.ID))
	})
}

// add appends a write.
func (p *Plan) add(w Write) { p.Writes = append(p.Writes, w) }

// set appends the write of a word that is another one now.
func (p *Plan) set(op Op, index uint32, now, value uint64) {
	if now != value {
		p.add(Write{Op: op, Index: index, Value: value})
	}
}

// appendWrites appends the writes of a plan whose every entry is known. What no
// packet reaches comes first; then keys, the only writes that can fail, lead to
// heads that lead nowhere yet; then each rule and head changes by one word.
func (p *Plan) appendWrites() {
	p.appendStraight(false)
	for i, index := range p.meters {
		op := ChangeMeter
		if slices.Contains(p.takenMeters, index) {
			op = PutMeter
		}
		p.add(Write{Op: op, Index: index, Part: i})
	}
	if p.quota != 0 {
		p.add(Write{Op: PutQuota, Index: p.quota})
	}
	for i := range p.heads {
		for _, r := range []*filterRun{&p.heads[i].run, &p.heads[i].turnedRun} {
			if r.fresh {
				p.add(Write{Op: PutRun, Index: r.at, Part: r.from, Value: uint64(r.to)})
			}
		}
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			p.add(Write{Op: PutRule, Index: r.at, From: r.had, Part: i})
		}
	}
	for i := range p.heads {
		if h := &p.heads[i]; h.by == byIndex && !h.had && h.isUE() && h.prefix.Addr().Is4() {
			p.add(Write{Op: ForgetPorts, Index: h.index, Part: i})
		}
	}
	for i := range p.heads { // while an earlier daemon's are there also those that are led already, for Sweep
		if h := &p.heads[i]; h.by != byIndex && (!h.had || p.owners.recovering) {
			p.add(Write{Op: Lead, Index: h.index, Part: i})
		}
	}
	// Heads that are not wanted go before the rules change that they lead to;
	// those that are rules, to which runs may lead, after these runs.
	p.appendHidden(0)
	pdr := p.tables.PDR
	for i := range p.rules {
		r := &p.rules[i]
		if r.at != r.had {
			continue
		}
		if r.Action.forwards() {
			p.set(SetOut, r.at, pdr.Load(r.at, wordPDROut), r.out)
		}
		p.set(SetRate, r.at, uint64(pdr.LoadHalf(r.at, wordPDRRate, 0)), uint64(kilobits(r.Rate)))
		p.add(Write{Op: SetLimits, Index: r.at, Part: i})
		if p.headOf(r) == nil { // else its head says what becomes of packets
			p.set(SetDo, r.at, pdr.Load(r.at, wordPDRDo), r.do)
		}
	}
	p.appendHeads()
	p.appendHidden(entryRule)
	p.appendTurn()
	p.appendStraight(true)
}

// appendHidden appends the writes that hide the heads that the session no longer
// has: those that are rules if kind is entryRule, otherwise the others.
func (p *Plan) appendHidden(kind uint8) {
	for _, e := range p.old.entries {
		if e.kind&entryHead == 0 || e.kind&entryRule != kind || p.headAt(e.index) != nil {
			continue
		}
		if k, led := p.owners.keys[e.index]; led {
			p.hidden = append(p.hidden, k)
			p.add(Write{Op: Unlead, Index: e.index, Part: len(p.hidden) - 1})
		} else {
			p.add(Write{Op: Hide, Index: e.index})
		}
	}
}

// appendHeads lets packets be handled as the session says now: first by heads
// that are rules, to which runs may lead, last by those that were.
func (p *Plan) appendHeads() {
	for now := range 3 {
		for i := range p.heads {
			h, turn := &p.heads[i], 2
			was := p.tables.loadDo(h.index)
			if h.run.from == h.run.to { // it is its rule
				turn = 0
			} else if actionOf(was) == actionFilters || !h.had {
				turn = 1
			}
			if turn != now {
				continue
			}
			// A packet looks at sources only where the last word says so.
			p.appendSources(h, h.flags)
			if !h.had && turn != 0 {
				p.add(Write{Op: SetOut, Index: h.index, Value: h.out})
			}
			p.set(SetDo, h.index, was, h.do)
		}
	}
}

// appendTurn is the second phase of heads whose sources turn: nobody looks at
// the old ones any more.
func (p *Plan) appendTurn() {
	waited := false
	for i := range p.heads {
		h := &p.heads[i]
		if !h.turns {
			continue
		}
		if !waited {
			waited = true
			p.add(Write{Op: Wait})
		}
		p.appendSources(h, flagsOf(h.turnedDo))
		p.add(Write{Op: SetDo, Index: h.index, Value: h.turnedDo})
	}
}

// appendSources changes those sources of a head that its flags name, or what one that leads
// to a UE says there of whose it is.
func (p *Plan) appendSources(h *head, flags uint8) {
	pdr := p.tables.PDR
	if h.isUE() {
		flags |= flagSource6
		if h.source6 != 0 {
			flags |= flagSource4
		}
	}
	if h.asks {
		flags |= flagSource4 | flagSource6
	}
	if flags&flagSource4 != 0 {
		p.set(SetSource4, h.index, uint64(pdr.LoadHalf(h.index, wordPDRStop, 1)), uint64(h.source4))
	}
	if flags&flagSource6 != 0 {
		p.set(SetSource6, h.index, pdr.Load(h.index, wordPDRSource6), h.source6)
	}
}

// headAt is the head that is an entry; nil: none.
func (p *Plan) headAt(index uint32) *head {
	for i := range p.heads {
		if p.heads[i].index == index {
			return &p.heads[i]
		}
	}
	return nil
}

// headOf is the head that a rule is itself; nil: none.
func (p *Plan) headOf(r *plannedRule) *head {
	if r.head >= 0 && p.heads[r.head].index == r.at {
		return &p.heads[r.head]
	}
	return nil
}

// ruleOf is the rule of an ID; nil: none.
func (p *Plan) ruleOf(id uint16) *plannedRule {
	for i := range p.rules {
		if p.rules[i].ID == id {
			return &p.rules[i]
		}
	}
	return nil
}

// appendReleases appends what packets may still see of the old state.
func (p *Plan) appendReleases() {
	for _, e := range p.old.entries {
		was, h := p.tables.loadDo(e.index), p.headAt(e.index)
		if e.kind&entryHead != 0 && actionOf(was) == actionFilters && (h == nil || h.run.at != moreOf(was)) {
			p.release(release{kind: releaseRun, index: moreOf(was)})
		}
		p.releaseEntry(e, was, h != nil)
	}
	for i := range p.heads {
		h := &p.heads[i]
		if h.had && (h.turns || p.tables.loadDo(h.index) != h.do) {
			p.release(release{kind: releaseRest, index: h.index})
		}
		if h.turns && h.turnedRun.at != h.run.at {
			p.release(release{kind: releaseRun, index: h.run.at})
		}
	}
	if p.old.quota != 0 && p.old.quota != p.quota {
		p.release(release{kind: releaseQuota, index: p.old.quota})
	}
	for _, index := range p.old.meters {
		if index != 0 && !slices.Contains(p.meters, index) {
			p.release(release{kind: releaseMeter, index: index})
		}
	}
}

func (p *Plan) release(r release) { p.releases = append(p.releases, r) }

// releaseEntry gives up an entry of the old state, unless it stays. What it
// counted belongs to where its rule is now, or is the last that its rule did.
func (p *Plan) releaseEntry(e entry, was uint64, stays bool) {
	if e.kind&entryRule != 0 {
		r := p.ruleOf(e.rule)
		switch {
		case r == nil:
			p.release(release{kind: releaseGone, index: e.index, to: p.old.slot, rule: e.rule})
		case r.at != e.index:
			p.release(release{kind: releaseFold, index: e.index, to: r.at, rule: e.rule})
		default:
			if !stays && was != r.do {
				p.release(release{kind: releaseRest, index: e.index})
			}
			stays = true
		}
	}
	if !stays {
		p.release(p.owners.releaseOf(e.index))
	}
}

// takePDR takes an entry that no key leads to by index.
func (p *Plan) takePDR() (uint32, error) {
	index, err := p.owners.take(&p.owners.pdrFree)
	if err == nil {
		p.takenPDRs = append(p.takenPDRs, index)
	}
	return index, err
}

// takeRun takes entries for a run of filters.
func (p *Plan) takeRun(run *filterRun) error {
	o := p.owners
	at, ok := o.runs.alloc(run.to - run.from)
	if !ok {
		return o.fullOrBusy(releaseRun, &table.FullError{Table: abi.MapFilter, Max: o.runs.count, Limit: "filters"})
	}
	run.at, run.fresh = at+firstFilter, true
	p.takenRuns = append(p.takenRuns, at)
	return nil
}

// giveBack gives back what the plan took. Where packets may have met the heads
// that it took entries for, these come back after a grace period, by later.
func (p *Plan) giveBack(later func(release)) {
	o := p.owners
	for _, index := range p.takenPDRs {
		delete(o.far, index)
		switch {
		case later != nil:
			later(o.releaseOf(index))
		case o.pdrFree.has(index):
			o.pdrFree.give(index)
		}
	}
	for _, at := range p.takenRuns {
		o.runs.release(at)
	}
	for _, index := range p.takenMeters {
		o.meterFree.give(index)
	}
	if p.takenQuota != 0 {
		o.quotaFree.give(p.takenQuota)
	}
}
