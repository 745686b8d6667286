package session

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/migrate"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// Moved says where entries of sessions are whose limits changed. The zero value: where they were.
type Moved struct {
	pdr, filter, meter, quota, forwarding migrate.Moves
	teids                                 map[uint32]bool // former entries whose TEID is no longer an index
}

// resizing gives what sessions have new indices, in tables of another size.
type resizing struct {
	*Moved
	set      migrate.Set
	was, now settings.Limits
	do       []uint64 // words of pdr, by former index
	out      []uint32 // their forwardings
	led      []bool   // entries that a key other than an index leads to
	hashed   [2]int   // keys in pdr_by_teid, pdr_by_ue
	goesOn   []bool   // filters that another one of their run follows
	next     []uint32 // of meters
	bases    map[uint32]uint32
}

// Resize has the sessions of a set keep what they do, and have counted, where limits.sessions or
// limits.filters changed (*migrate.LimitError).
func Resize(set migrate.Set, now settings.Limits) (*Moved, error) {
	keys, _ := set.Sizes(abi.MapPdrByTeid)
	filters, _ := set.Sizes(abi.MapFilter)
	r := &resizing{Moved: &Moved{teids: map[uint32]bool{}}, set: set, now: now, bases: map[uint32]uint32{}}
	r.was.Sessions, r.was.Filters = keys/keysOfSession, filters-firstFilter
	if set[abi.MapPdr] == nil || r.was.Sessions == now.Sessions && r.was.Filters == now.Filters {
		return &Moved{}, nil
	}
	for _, step := range []func() error{r.read, r.readKeys, r.movePools, r.movePDRs, r.moveFilters, r.moveMeters, r.moveQuotas, r.moveForwardings} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	set.Move(r.pdr, abi.MapPdr, abi.MapRefused)
	set.Move(r.filter, abi.MapFilter, abi.MapFrameFilter)
	set.Move(r.meter, abi.MapMeter)
	set.Move(r.quota, abi.MapQuota)
	set.Move(r.forwarding, abi.MapForwarding)
	r.editEntries()
	r.editReferences()
	r.do, r.out, r.led, r.goesOn, r.next = nil, nil, nil, nil, nil // the edits, which stay, need none of it
	return r.Moved, nil
}

// read reads what the tables say that refers to others.
func (r *resizing) read() error {
	n := func(name string) uint32 { was, _ := r.set.Sizes(name); return was }
	r.do, r.out = make([]uint64, n(abi.MapPdr)), make([]uint32, n(abi.MapPdr))
	r.goesOn, r.next = make([]bool, n(abi.MapFilter)), make([]uint32, n(abi.MapMeter))
	err := r.set.Each(abi.MapPdr, func(i uint32, _, value []byte) {
		r.do[i] = binary.NativeEndian.Uint64(value[8*wordPDRDo:])
		r.out[i] = migrate.As[abi.Pdr](value).Forwarding
	})
	if err == nil {
		err = r.set.Each(abi.MapFilter, func(i uint32, _, value []byte) { r.goesOn[i] = !takesAll(migrate.As[abi.Filter](value)) })
	}
	if err == nil {
		err = r.set.Each(abi.MapMeter, func(i uint32, _, value []byte) { r.next[i] = migrate.As[abi.Meter](value).Next })
	}
	return err
}

// readKeys finds what hashes and targets lead to.
func (r *resizing) readKeys() error {
	r.led = make([]bool, len(r.do))
	var err error
	for of, name := range []string{abi.MapPdrByTeid, abi.MapPdrByUe} {
		if err == nil {
			err = r.set.Each(name, func(_ uint32, _, value []byte) {
				r.hashed[of]++
				if i := *migrate.As[uint32](value); int(i) < len(r.led) {
					r.led[i] = true
				}
			})
		}
	}
	for _, name := range []string{abi.MapTargetByDst4, abi.MapTargetByDst6} {
		if err == nil {
			err = r.set.Each(name, func(_ uint32, _, value []byte) {
				if to := migrate.As[abi.Target](value); to.Kind == uint32(abi.TargetKindTARGET_PDR) && int(to.Index) < len(r.led) {
					r.led[to.Index] = true
				}
			})
		}
	}
	return err
}

// movePools moves the ranges of UE pools that sessions have addresses of. Others make room: who
// has none gets a range again when the settings are put.
func (r *resizing) movePools() error {
	r.pdr = make(migrate.Moves, len(r.do))
	var ranges [][2]uint32
	err := r.set.Each(settings.Map, func(_ uint32, _, value []byte) {
		for _, p := range ofSessions(settings.PoolsOf(migrate.As[abi.Settings](value))) {
			if p.Mask != 0 && slices.ContainsFunc(r.do[p.Base:p.Base+p.Size()], isActive) {
				ranges = append(ranges, [2]uint32{p.Base, p.Size()})
			}
		}
	})
	if err != nil {
		return err
	}
	_, was, _ := r.was.PDRRanges()
	_, first, end := r.now.PDRRanges()
	total, fits := uint32(0), true
	for i, base := range settings.Refit(ranges, was, first, end) {
		at, size := ranges[i][0], ranges[i][1]
		total += size
		if fits = fits && base != 0; base != 0 {
			r.bases[at] = base
			r.pdr.Shift(migrate.Range{First: at, End: at + size}, base)
		}
	}
	if !fits {
		return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: "addresses in UE pools with sessions", Used: total, Room: end - first, Want: (total + 1) / 2}
	}
	return nil
}

// movePDRs moves rules, and what keys lead to. A TEID whose entry is no longer in its place is
// found by a hash.
func (r *resizing) movePDRs() error {
	slots, _, free := r.was.PDRRanges()
	slotsNow, _, freeNow := r.now.PDRRanges()
	var more []uint32
	for i := uint32(1); i < slots; i++ {
		switch at := placeIn(i, r.do[i]); {
		case i < slotsNow && (!isActive(r.do[i]) || placeOf(at.teid(slots), slotsNow) == at):
			r.pdr[i] = i
		case isActive(r.do[i]):
			more = append(more, i)
			r.teids[i] = true
		}
	}
	end, size := min(Beside(r.was), uint32(len(r.do))), Beside(r.now)
	for i := range uint32(len(r.do)) - end { // an early build has none
		switch at := end + i; {
		case isActive(r.do[at]) && i < slotsNow:
			r.pdr[at] = size + i
		case isActive(r.do[at]):
			more = append(more, at)
		}
	}
	n := r.pdr.Fit(migrate.Range{First: free, End: end}, migrate.Range{First: freeNow, End: size},
		func(i uint32) bool { return isActive(r.do[i]) || r.led[i] }, more)
	if room := size - freeNow; n > room {
		want := r.now.Sessions
		for n > room+want-r.now.Sessions {
			want++ // each session has an entry more, at least
		}
		return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: "rules of sessions", Used: n, Room: room, Want: want}
	}
	for i := range r.teids {
		migrate.Add(r.set, abi.MapPdrByTeid, placeIn(i, r.do[i]).teid(slots), r.pdr.To(i))
	}
	for _, k := range []struct {
		what string
		n    int
	}{{"local TEIDs of sessions that are no index", r.hashed[0] + len(r.teids)}, {"addresses of UEs outside of UE pools", r.hashed[1]}} {
		if n, room := uint32(k.n), keysOfSession*r.now.Sessions; n > room {
			return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: k.what, Used: n, Room: room, Want: (n + keysOfSession - 1) / keysOfSession}
		}
	}
	return nil
}

// moveFilters packs runs where some are behind the last filter: the longest first, so that each
// begins at a multiple of its size.
func (r *resizing) moveFilters() error {
	if r.now.Filters >= r.was.Filters {
		return nil
	}
	var runs [][2]uint32 // where one begins, and its length
	fits := true
	for _, do := range r.do {
		if at := moreOf(do); actionOf(do) == actionFilters && at >= firstFilter && int(at) < len(r.goesOn) {
			n := uint32(1)
			for n < maxRun && int(at+n) < len(r.goesOn) && r.goesOn[at+n-1] {
				n++
			}
			runs = append(runs, [2]uint32{at, n})
			fits = fits && at+1<<runOrder(int(n)) <= firstFilter+r.now.Filters
		}
	}
	if fits {
		return nil
	}
	slices.SortFunc(runs, func(a, b [2]uint32) int {
		return cmp.Or(runOrder(int(b[1]))-runOrder(int(a[1])), cmp.Compare(a[0], b[0]))
	})
	runs = slices.Compact(runs)
	r.filter = make(migrate.Moves, len(r.goesOn))
	used := uint32(0)
	for _, run := range runs {
		if used+run[1] <= r.now.Filters {
			r.filter.Shift(migrate.Range{First: run[0], End: run[0] + run[1]}, firstFilter+used)
		}
		used += 1 << runOrder(int(run[1]))
	}
	if used > r.now.Filters {
		return &migrate.LimitError{Limit: "filters", Now: r.now.Filters, What: "filters of sessions", Used: used, Room: r.now.Filters, Want: used}
	}
	return nil
}

// moveMeters moves meters where there are fewer.
func (r *resizing) moveMeters() error {
	was, now := r.set.Sizes(abi.MapMeter)
	if now >= was {
		return nil
	}
	used := make([]bool, was)
	follow := func(do uint64) {
		if actionOf(do) == actionFilters || flagsOf(do)&flagMeters == 0 {
			return
		}
		for m := moreOf(do); m != 0 && m < was && !used[m]; m = r.next[m] {
			used[m] = true
		}
	}
	for _, do := range r.do {
		follow(do)
	}
	err := r.set.Each(abi.MapN4Session, func(_ uint32, _, value []byte) {
		for _, rule := range migrate.As[abi.N4Session](value).Rule {
			follow(rule.Forward)
			follow(rule.Buffer)
		}
	})
	if err != nil {
		return err
	}
	r.meter = make(migrate.Moves, was)
	if n := r.meter.Fit(migrate.Range{First: 1, End: was}, migrate.Range{First: 1, End: now}, func(i uint32) bool { return used[i] }, nil); n > now-1 {
		return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: "rates that rules share", Used: n, Room: now - 1, Want: (n + metersOfSession - 1) / metersOfSession}
	}
	return nil
}

// moveQuotas moves quotas where there are fewer.
func (r *resizing) moveQuotas() error {
	was, now := r.set.Sizes(abi.MapQuota)
	if now >= was {
		return nil
	}
	used := make([]bool, was)
	err := r.set.Each(abi.MapRefused, func(i uint32, _, value []byte) {
		if at := migrate.As[abi.Refused](value).Quota; at != 0 && at < was && isActive(r.do[i]) {
			used[at] = true
		}
	})
	if err != nil {
		return err
	}
	r.quota = make(migrate.Moves, was)
	if n := r.quota.Fit(migrate.Range{First: 1, End: was}, migrate.Range{First: 1, End: now}, func(i uint32) bool { return used[i] }, nil); n > now-1 {
		return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: "sessions with quotas", Used: n, Room: now - 1, Want: n}
	}
	return nil
}

// moveForwardings moves where rules send to, where there are fewer entries for it.
func (r *resizing) moveForwardings() error {
	was, now := r.set.Sizes(abi.MapForwarding)
	if now >= was {
		return nil
	}
	used := make([]bool, was)
	use := func(i uint32) {
		if i < was {
			used[i] = true
		}
	}
	for i, do := range r.do {
		if isActive(do) && actionOf(do) != actionFilters {
			use(r.out[i])
		}
	}
	if err := r.set.Each(abi.MapN4Forwarding, func(_ uint32, _, value []byte) { use(*migrate.As[uint32](value)) }); err != nil {
		return err
	}
	r.forwarding = make(migrate.Moves, was)
	n := r.forwarding.Fit(migrate.Range{First: firstForwarding, End: was}, migrate.Range{First: firstForwarding, End: now}, func(i uint32) bool { return used[i] }, nil)
	if room := now - firstForwarding; n > room {
		return &migrate.LimitError{Limit: "sessions", Now: r.now.Sessions, What: "ways to forward", Used: n, Room: room, Want: (n + forwardingsOfSession - 1) / forwardingsOfSession}
	}
	return nil
}

// editEntries has entries of sessions refer to others where these are now.
func (r *resizing) editEntries() {
	r.set.Edit(abi.MapPdr, func(i uint32, _, value []byte) bool {
		r.editPDR(i, migrate.As[abi.Pdr](value))
		return true
	})
	r.set.Edit(abi.MapRefused, func(i uint32, _, value []byte) bool {
		e := migrate.As[abi.Refused](value)
		if i == inHand {
			e.Held = r.pdr.To(e.Held)
		}
		e.Quota = r.quota.To(e.Quota)
		return true
	})
	r.set.Edit(abi.MapQuota, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.Quota](value)
		for i := range e.Rule {
			e.Rule[i] = r.pdr.To(e.Rule[i])
		}
		return true
	})
	r.set.Edit(abi.MapFilter, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.Filter](value)
		e.Pdr = r.pdr.To(e.Pdr)
		return true
	})
	r.set.Edit(abi.MapMeter, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.Meter](value)
		e.Next = r.meter.To(e.Next)
		return true
	})
	r.set.Edit(abi.MapN4Session, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.N4Session](value)
		for i := range e.Rule {
			rule := &e.Rule[i]
			rule.Forward, rule.Buffer = r.editDo(rule.Pdr, rule.Forward), r.editDo(rule.Pdr, rule.Buffer)
			rule.Pdr = r.pdr.To(rule.Pdr)
		}
		return true
	})
}

// editDo is what a word of an entry says now of what becomes of packets.
func (r *resizing) editDo(index uint32, do uint64) uint64 {
	more := moreOf(do)
	switch {
	case actionOf(do) == actionFilters:
		more = r.filter.To(more)
	case flagsOf(do)&flagMeters != 0:
		more = r.meter.To(more)
	}
	do = do&^(1<<32-1) | uint64(more)
	if r.teids[index] && isActive(do) {
		do &^= uint64(flagByTEID)<<40 | 0xff<<56
	}
	return do
}

func (r *resizing) editPDR(index uint32, e *abi.Pdr) {
	do := doWord(e.More, e.Action, e.Flags, e.Qfi, e.Generation)
	marked, frames := isMarked(do), e.Qfi&Frames != 0
	do = r.editDo(index, do)
	e.More, e.Flags, e.Generation = moreOf(do), flagsOf(do), generationOf(do)
	switch {
	case marked:
		e.Teid = r.straight(e.Teid, index)
	case e.Action != actionFilters && e.Forwarding >= firstForwarding:
		e.Forwarding = max(r.forwarding.To(e.Forwarding), firstForwarding)
	}
	// What leads to a UE names one entry of the UE's; frames from a UE that of its link.
	const sources = flagSource4 | flagSource6
	down := e.Flags&flagDownlink != 0
	if frames && !down && e.Flags&sources == sources || !frames && down && e.Flags&sources == 0 {
		e.Source4 = r.pdr.To(e.Source4)
	}
}

// straight is an enum straight of the entry `of`, whose rule has moved.
func (r *resizing) straight(s, of uint32) uint32 {
	const index = uint32(abi.StraightSTRAIGHT_INDEX)
	rule := s & index
	if rule == uint32(abi.StraightSTRAIGHT_BESIDE) {
		rule = Beside(r.was) + of
	}
	to := straightIndex(r.pdr.To(rule), Beside(r.now)+r.pdr.To(of))
	if to == 0 {
		return 0
	}
	return s&^index | to
}

// editReferences has keys, and what else refers to entries of sessions, refer to where they are
// now.
func (r *resizing) editReferences() {
	for name, moves := range map[string]migrate.Moves{abi.MapPdrByTeid: r.pdr, abi.MapPdrByUe: r.pdr, abi.MapN4Forwarding: r.forwarding} {
		r.set.Edit(name, func(_ uint32, _, value []byte) bool {
			index := migrate.As[uint32](value)
			*index = moves.To(*index)
			return *index != 0
		})
	}
	for _, name := range []string{abi.MapTargetByDst4, abi.MapTargetByDst6} {
		r.set.Edit(name, func(_ uint32, _, value []byte) bool {
			to := migrate.As[abi.Target](value)
			if to.Kind != uint32(abi.TargetKindTARGET_PDR) {
				return true
			}
			to.Index = r.pdr.To(to.Index)
			return to.Index != 0
		})
	}
	r.set.Edit(abi.MapStation, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.Station](value)
		e.Pdr = r.pdr.To(e.Pdr)
		return e.Pdr != 0
	})
	r.set.Edit(settings.Map, func(_ uint32, _, value []byte) bool {
		settings.MovePools(migrate.As[abi.Settings](value), 1, func(p settings.Pool) uint32 { return r.bases[p.Base] })
		return true
	})
}

// Record has a record of the former data path, which the daemon reads, say where entries are now.
func (m *Moved) Record(record any) {
	switch r := record.(type) {
	case *abi.SessionEvent:
		r.Pdr = m.pdr.To(r.Pdr)
	case *abi.N4Event:
		r.Out = r.Out&(1<<32-1) | uint64(m.forwarding.To(uint32(r.Out>>32)))<<32
	case *abi.Punt:
		switch abi.PuntKind(r.Kind) {
		case abi.PuntKindPUNT_BUFFER, abi.PuntKindPUNT_DUPLICATE, abi.PuntKindPUNT_SEND:
			r.Info = m.pdr.To(r.Info)
		case abi.PuntKindPUNT_ICMP:
			r.Egress = m.pdr.To(r.Egress) // that of a UE's packet, else 0
		}
	}
}

// Rings are the ring buffers whose records name entries of sessions.
var Rings = []string{abi.MapSlowPath, abi.MapSessionEvents, abi.MapN4Events}

// Any says whether entries of sessions have moved.
func (m *Moved) Any() bool { return m.pdr != nil }
