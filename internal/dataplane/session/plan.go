package session

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Plan is how the tables come to hold a session: all writes, in the order in
// which packets may see them, and what is given back afterwards.
type Plan struct {
	session *Session
	old     state
	want    []uint32      // entries of forwarding that its rules refer to
	rules   []plannedRule // in the order in which packets are asked
	heads   []head
	meters  []uint32 // entries of the session's meters
	next    []int    // the meter behind each meter of a chain; noMeter: none
	runs    filters  // that heads lead to

	Writes   []Write
	hidden   []key // that Unlead deletes
	releases []release
	reserved reservation

	members []int // of heads: their rules
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
// those up to PutRule.
const (
	PutMeter    Op = iota // fill in a meter that no rule has yet
	ChangeMeter           // rate, window and next of a meter; its bucket stays
	PutRun                // fill in a run of filters
	PutRule               // fill in a rule's entry; its counters and bucket come along
	Lead                  // lead a key to a head that leads nowhere yet
	Unlead                // take a key away from packets
	Hide                  // take a head that is found by index away from packets
	SetOut                // TEID and forwarding of a rule
	SetRate
	SetLimits
	SetSource4 // that a head's packets have
	SetSource6
	SetDo // what becomes of packets
	Wait  // until no packet sees what was before
)

// state is what the tables hold of a session.
type state struct {
	slot    uint32 // 0: the session is not there yet
	entries []entry
	meters  []uint32
	// forwardings are those that its rules refer to: entries.
	forwardings []uint32
}

// entry is an entry of pdr that a session has.
type entry struct {
	index uint32
	rule  uint16
	kind  uint8
}

// Kinds of entries; an entry may be both.
const (
	entryHead = 1 // a key leads to it
	entryRule = 2 // the rule is here
)

// findRule is the entry of a rule; 0: it has none.
func (s *state) findRule(id uint16) uint32 {
	for _, e := range s.entries {
		if e.kind&entryRule != 0 && e.rule == id {
			return e.index
		}
	}
	return 0
}

// isBehind says whether an entry is a rule that only filters lead to.
func (s *state) isBehind(index uint32) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.index == index && e.kind&entryHead == 0 })
}

// isOther says whether an entry is another rule than the one of that ID.
func (s *state) isOther(index uint32, id uint16) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool {
		return e.index == index && e.kind&entryRule != 0 && e.rule != id
	})
}

// wanted is what the tables shall hold of a session, with what it refers to.
type wanted struct {
	*Session
	forwardings []uint32 // entries, one for each rule; 0: the rule does not forward
	link        uint32   // the number of the session's link
}

// view is what a plan may know of the tables: what packets see now.
type view interface {
	loadPDR(index uint32, word int) uint64
	loadMeter(index uint32, word int) uint64
	loadFilter(index uint32) (f abi.Filter, frame abi.FrameFilter, ok bool)
	// find is lookups.find, count lookups.count, steered node.steered.
	find(key) (by lookupKind, index uint32, led bool)
	count(lookupKind) int
	meters() uint32 // the length of the table
	steered(key) bool
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
	qfi          uint8 // PDR_FRAMES, where rules are of an Ethernet session
	source4      uint32
	source6      uint64
	run          filterRun
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

func (r filterRun) isNone() bool { return r.from == r.to }

// Planner plans, one session after the other. It keeps nothing but memory.
type Planner struct{ plan Plan }

// Plan plans what leads from the old state to the wanted one, and reserves free
// entries for it. On an error nothing is reserved: *table.FullError, target.ErrTaken, or
// *busyError where an entry is free only after a grace period. The plan is
// valid until the next one.
func (pl *Planner) Plan(old state, want wanted, o *owners, v view) (*Plan, error) {
	p := &pl.plan
	p.reset(old, want, o)
	err := p.place(want, o, v)
	if err != nil {
		p.reserved.undo(nil)
		return nil, err
	}
	p.Writes = appendWrites(p.Writes, p, o.recovering, v)
	p.releases = appendReleases(p.releases, p, o, v)
	return p, nil
}

// reset empties a plan. Its memory is used again.
func (p *Plan) reset(old state, want wanted, o *owners) {
	*p = Plan{
		session: want.Session, old: old, want: want.forwardings, rules: p.rules[:0], heads: p.heads[:0], meters: p.meters[:0], next: p.next[:0],
		runs:   filters{p.runs.entries[:0], p.runs.frames[:0]},
		Writes: p.Writes[:0], hidden: p.hidden[:0], releases: p.releases[:0], members: p.members[:0],
		reserved: reservation{o, p.reserved.pdrs[:0], p.reserved.runs[:0], p.reserved.meters[:0]},
	}
}

// place finds an entry for everything that the session has.
func (p *Plan) place(want wanted, o *owners, v view) (err error) {
	p.rules = sortRules(p.rules, want, &p.old)
	p.heads = findHeads(p.heads, p.rules, want.ID)
	if p.members, err = groupRules(p.members, p.heads, p.rules); err != nil {
		return err
	}
	if err = placeHeads(p.heads, p.old.slot, v, &p.reserved); err != nil {
		return err
	}
	joinLink(p.heads, want.link, want.ID)
	turnSources(p.heads, v)
	chooseHeads(p.rules, p.heads, p.members)
	if p.next, err = chainMeters(p.next, p.rules, len(want.Meters)); err != nil {
		return err
	}
	if o.recovering && len(p.old.meters) == 0 {
		p.old.meters = findMeters(p.old.meters, p.rules, len(want.Meters), v)
	}
	if p.meters, err = placeMeters(p.meters, want.Meters, p.old.meters, v, &p.reserved); err != nil {
		return err
	}
	if err = findMoves(p.rules, p.heads, p.members, v, &p.runs); err != nil {
		return err
	}
	for i := range p.rules {
		r := &p.rules[i]
		r.out, r.do = ruleWords(r, p.meters)
		if r.at, err = placeRule(r, headOf(r, p.heads), &p.old, v, &p.reserved); err != nil {
			return err
		}
	}
	return placeRuns(p.heads, p.members, p.rules, v, &p.runs, &p.reserved)
}

// sortRules appends the rules of a session in the order in which packets are
// asked, with the entries that they have now.
func sortRules(rules []plannedRule, want wanted, old *state) []plannedRule {
	for i := range want.Rules {
		if len(rules) < cap(rules) {
			rules = rules[:len(rules)+1]
		} else {
			rules = append(rules, plannedRule{})
		}
		r := &rules[len(rules)-1]
		*r = plannedRule{Rule: &want.Rules[i], chain: r.chain[:0], forwarding: want.forwardings[i], head: -1,
			had: old.findRule(want.Rules[i].ID)}
	}
	slices.SortFunc(rules, func(a, b plannedRule) int {
		return cmp.Or(cmp.Compare(a.Precedence, b.Precedence), cmp.Compare(a.ID, b.ID))
	})
	return rules
}

// appendWrites appends the writes of a plan whose every entry is known. What no
// packet reaches comes first; then keys, the only writes that can fail, lead to
// heads that lead nowhere yet; then each rule and head changes by one word.
func appendWrites(w []Write, p *Plan, recovering bool, v view) []Write {
	for i, index := range p.meters {
		op := ChangeMeter
		if slices.Contains(p.reserved.meters, index) {
			op = PutMeter
		}
		w = append(w, Write{Op: op, Index: index, Part: i})
	}
	for i := range p.heads {
		for _, r := range []*filterRun{&p.heads[i].run, &p.heads[i].turnedRun} {
			if r.fresh {
				w = append(w, Write{Op: PutRun, Index: r.at, Part: r.from, Value: uint64(r.to)})
			}
		}
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.at != r.had {
			w = append(w, Write{Op: PutRule, Index: r.at, From: r.had, Part: i})
		}
	}
	for i := range p.heads { // while an earlier daemon's are there also those that are led already, for Sweep
		if h := &p.heads[i]; h.by != byIndex && (!h.had || recovering) {
			w = append(w, Write{Op: Lead, Index: h.index, Part: i})
		}
	}
	// Heads that are not wanted go before the rules change that they lead to;
	// those that are rules, to which runs may lead, after these runs.
	w = appendHidden(w, p, 0)
	for i := range p.rules {
		if r := &p.rules[i]; r.at == r.had {
			w = appendRule(w, r, i, headOf(r, p.heads), v)
		}
	}
	w = appendHeads(w, p.heads, v)
	w = appendHidden(w, p, entryRule)
	return appendTurn(w, p.heads, v)
}

// appendHidden appends the writes that hide the heads that the session no longer
// has: those that are rules if kind is entryRule, otherwise the others.
func appendHidden(w []Write, p *Plan, kind uint8) []Write {
	for _, e := range p.old.entries {
		if e.kind&entryHead == 0 || e.kind&entryRule != kind || p.isHead(e.index) {
			continue
		}
		k, led := p.reserved.owners.keys[e.index]
		if !led {
			w = append(w, Write{Op: Hide, Index: e.index})
			continue
		}
		p.hidden = append(p.hidden, k)
		w = append(w, Write{Op: Unlead, Index: e.index, Part: len(p.hidden) - 1})
	}
	return w
}

// appendRule changes a rule where it is. Its head says what becomes of packets,
// if it is one.
func appendRule(w []Write, r *plannedRule, part int, h *head, v view) []Write {
	if r.Action.forwards() && v.loadPDR(r.at, wordPDROut) != r.out {
		w = append(w, Write{Op: SetOut, Index: r.at, Value: r.out})
	}
	if rate := kilobits(r.Rate); uint32(v.loadPDR(r.at, wordPDRRate)) != rate {
		w = append(w, Write{Op: SetRate, Index: r.at, Value: uint64(rate)})
	}
	w = append(w, Write{Op: SetLimits, Index: r.at, Part: part})
	if (h == nil || h.index != r.at) && v.loadPDR(r.at, wordPDRDo) != r.do {
		w = append(w, Write{Op: SetDo, Index: r.at, Value: r.do})
	}
	return w
}

// appendHeads lets packets be handled as the session says now: first by heads
// that are rules, to which runs may lead, last by those that were.
func appendHeads(w []Write, heads []head, v view) []Write {
	turn := func(h *head) int {
		switch {
		case h.run.isNone():
			return 0
		case actionOf(v.loadPDR(h.index, wordPDRDo)) == actionFilters || !h.had:
			return 1
		}
		return 2
	}
	for now := range 3 {
		for i := range heads {
			h := &heads[i]
			if turn(h) != now {
				continue
			}
			// A packet looks at sources only where the last word says so.
			w = appendSources(w, h, h.flags, v)
			if !h.had && !h.run.isNone() {
				w = append(w, Write{Op: SetOut, Index: h.index, Value: anyLength << 32})
			}
			if v.loadPDR(h.index, wordPDRDo) != h.do {
				w = append(w, Write{Op: SetDo, Index: h.index, Value: h.do})
			}
		}
	}
	return w
}

// appendTurn is the second phase of heads whose sources turn: nobody looks at
// the old ones any more.
func appendTurn(w []Write, heads []head, v view) []Write {
	waited := false
	for i := range heads {
		h := &heads[i]
		if !h.turns {
			continue
		}
		if !waited {
			w, waited = append(w, Write{Op: Wait}), true
		}
		w = appendSources(w, h, flagsOf(h.turnedDo), v)
		w = append(w, Write{Op: SetDo, Index: h.index, Value: h.turnedDo})
	}
	return w
}

// appendSources changes those sources of a head that its flags name.
func appendSources(w []Write, h *head, flags uint8, v view) []Write {
	if flags&flagSource4 != 0 && uint32(v.loadPDR(h.index, wordPDRStop)>>32) != h.source4 {
		w = append(w, Write{Op: SetSource4, Index: h.index, Value: uint64(h.source4)})
	}
	if flags&flagSource6 != 0 && v.loadPDR(h.index, wordPDRSource6) != h.source6 {
		w = append(w, Write{Op: SetSource6, Index: h.index, Value: h.source6})
	}
	return w
}

func (p *Plan) isHead(index uint32) bool {
	return slices.ContainsFunc(p.heads, func(h head) bool { return h.index == index })
}

// appendReleases appends what packets may still see of the old state.
func appendReleases(list []release, p *Plan, o *owners, v view) []release {
	for _, e := range p.old.entries {
		was := v.loadPDR(e.index, wordPDRDo)
		if e.kind&entryHead != 0 && actionOf(was) == actionFilters && !leadsToRun(p.heads, e.index, moreOf(was)) {
			list = append(list, release{kind: releaseRun, index: moreOf(was)})
		}
		list = releasesOf(list, e, p, o.pdrFree.first, v)
	}
	for i := range p.heads {
		h := &p.heads[i]
		if h.had && (h.turns || v.loadPDR(h.index, wordPDRDo) != h.do) {
			list = append(list, release{kind: releaseRest, index: h.index})
		}
		if h.turns && h.turnedRun.at != h.run.at {
			list = append(list, release{kind: releaseRun, index: h.run.at})
		}
	}
	for _, index := range p.old.meters {
		if index != 0 && !slices.Contains(p.meters, index) {
			list = append(list, release{kind: releaseMeter, index: index})
		}
	}
	return list
}

// leadsToRun says whether the first phase of a plan has an entry lead to a run.
func leadsToRun(heads []head, index, at uint32) bool {
	return slices.ContainsFunc(heads, func(h head) bool { return h.index == index && h.run.at == at })
}

// releasesOf are those of an entry of the old state. What it counted belongs to
// where its rule is now, or is the last that its rule did.
func releasesOf(list []release, e entry, p *Plan, firstFree uint32, v view) []release {
	stays := p.isHead(e.index)
	if e.kind&entryRule != 0 {
		n := slices.IndexFunc(p.rules, func(r plannedRule) bool { return r.ID == e.rule })
		switch {
		case n < 0:
			list = append(list, release{kind: releaseGone, index: e.index, to: p.old.slot, rule: e.rule})
		case p.rules[n].at != e.index:
			list = append(list, release{kind: releaseFold, index: e.index, to: p.rules[n].at, rule: e.rule})
		default:
			if !stays && v.loadPDR(e.index, wordPDRDo) != p.rules[n].do {
				list = append(list, release{kind: releaseRest, index: e.index})
			}
			stays = true
		}
	}
	switch {
	case stays:
	case e.index >= firstFree:
		list = append(list, release{kind: releasePDR, index: e.index})
	default:
		list = append(list, release{kind: releaseRest, index: e.index})
	}
	return list
}
