package sid

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/migrate"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// resizing gives SIDs new indices, in tables with room for another number of them.
type resizing struct {
	set      migrate.Set
	was, now uint32 // the limit
	moves    migrate.Moves
	active   []bool // entries that do something
	bases    map[uint32]uint32
	leaving  []abi.Locator // they find no room: their SIDs are found by prefix
	more     []uint32      // entries of these
}

// Resize has the SIDs of a set keep what they do, and have counted, where limits.sids changed
// (*migrate.LimitError). The SIDs of a locator that finds no room by index are found by prefix.
func Resize(set migrate.Set) error {
	was, now := set.Sizes(abi.MapSidByPrefix)
	if was == now {
		return nil
	}
	r := &resizing{set: set, was: was, now: now, moves: make(migrate.Moves, 2*was+1), active: make([]bool, 2*was+1), bases: map[uint32]uint32{}}
	if err := r.moveLocators(); err != nil {
		return err
	}
	if err := r.moveOthers(); err != nil {
		return err
	}
	set.Move(r.moves, abi.MapLocalSid, abi.MapSidCounter)
	set.Edit(abi.MapSidByPrefix, func(_ uint32, _, value []byte) bool {
		index := migrate.As[uint32](value)
		*index = r.moves.To(*index)
		return *index != 0
	})
	set.Edit(abi.MapLimitByGroup, func(_ uint32, key, _ []byte) bool {
		k := migrate.As[abi.LimitKey](key)
		k.Sid = r.moves.To(k.Sid)
		return k.Sid != 0
	})
	set.Edit(settings.Map, func(_ uint32, _, value []byte) bool {
		r.editSettings(migrate.As[abi.Settings](value))
		return true
	})
	return r.moveMobiles()
}

// moveLocators moves the ranges of locators that have SIDs. Others make room: who has no SID
// gets a range again when the settings are put.
func (r *resizing) moveLocators() error {
	err := r.set.Each(abi.MapLocalSid, func(index uint32, _, value []byte) {
		r.active[index] = migrate.As[abi.LocalSid](value).Behavior != 0
	})
	if err != nil {
		return err
	}
	var locators []abi.Locator
	var ranges [][2]uint32
	err = r.set.Each(settings.Map, func(_ uint32, _, value []byte) {
		for _, l := range migrate.As[abi.Settings](value).Locator {
			if l.Enabled() && len(r.activeIn(l)) > 0 {
				locators = append(locators, l)
				ranges = append(ranges, [2]uint32{l.Base, l.Size()})
			}
		}
	})
	if err != nil {
		return err
	}
	for i, base := range settings.Refit(ranges, 1, 1, r.now+1) {
		l := locators[i]
		if base == 0 {
			r.leaving = append(r.leaving, l)
			r.more = append(r.more, r.activeIn(l)...)
			continue
		}
		r.bases[l.Base] = base
		r.moves.Shift(migrate.Range{First: l.Base, End: l.Base + l.Size()}, base)
	}
	return nil
}

// activeIn are the entries in the range of a locator that do something.
func (r *resizing) activeIn(l abi.Locator) (out []uint32) {
	for i := l.Base; i < l.Base+l.Size() && i <= r.was; i++ {
		if r.active[i] {
			out = append(out, i)
		}
	}
	return out
}

// moveOthers moves what is found by prefix, and what is to be from now on.
func (r *resizing) moveOthers() error {
	used := make([]bool, 2*r.was+1)
	err := r.set.Each(abi.MapSidByPrefix, func(_ uint32, _, value []byte) {
		if index := *migrate.As[uint32](value); index <= 2*r.was {
			used[index] = true
		}
	})
	if err != nil {
		return err
	}
	n := r.moves.Fit(migrate.Range{First: r.was + 1, End: 2*r.was + 1}, migrate.Range{First: r.now + 1, End: 2*r.now + 1},
		func(i uint32) bool { return used[i] }, r.more)
	if n > r.now {
		return &migrate.LimitError{Limit: "sids", Now: r.now, What: "SIDs that no locator finds by index", Used: n, Room: r.now, Want: n}
	}
	for _, l := range r.leaving {
		for _, i := range r.activeIn(l) {
			migrate.Add(r.set, abi.MapSidByPrefix, abi.SIDKey(l.PrefixOf(i)), r.moves.To(i))
		}
	}
	return nil
}

// editSettings has locators lead to their new ranges.
func (r *resizing) editSettings(e *abi.Settings) {
	for i := range e.Locator {
		l := &e.Locator[i]
		if !l.Enabled() {
			continue
		}
		if base := r.bases[l.Base]; base != 0 {
			l.Base = base
		} else {
			*l = abi.Locator{Hi: abi.Off}
		}
	}
	e.SidsByPrefix += uint32(len(r.more))
}

// moveMobiles moves the parameters of mobile behaviours, where there are fewer entries.
func (r *resizing) moveMobiles() error {
	if r.now > r.was {
		return nil
	}
	used := map[uint32]bool{}
	err := r.set.Each(abi.MapLocalSid, func(_ uint32, _, value []byte) {
		if e := migrate.As[abi.LocalSid](value); e.Behavior != 0 {
			used[e.Mobile] = true
		}
	})
	for _, name := range table.OfTargets {
		if err == nil {
			err = r.set.Each(name, func(_ uint32, _, value []byte) {
				if to := migrate.As[abi.Target](value); to.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
					used[to.Index] = true
				}
			})
		}
	}
	if err != nil {
		return err
	}
	moves := make(migrate.Moves, r.was+1)
	n := moves.Fit(migrate.Range{First: 1, End: r.was + 1}, migrate.Range{First: 1, End: r.now + 1}, func(i uint32) bool { return used[i] }, nil)
	if n > r.now {
		return &migrate.LimitError{Limit: "sids", Now: r.now, What: "SIDs and steering with parameters of mobile behaviours", Used: n, Room: r.now, Want: n}
	}
	r.set.Move(moves, abi.MapMobile)
	r.set.Edit(abi.MapLocalSid, func(_ uint32, _, value []byte) bool {
		e := migrate.As[abi.LocalSid](value)
		e.Mobile = moves.To(e.Mobile)
		return true
	})
	for _, name := range table.OfTargets {
		r.set.Edit(name, func(_ uint32, _, value []byte) bool {
			if to := migrate.As[abi.Target](value); to.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
				to.Index = moves.To(to.Index)
			}
			return true
		})
	}
	return nil
}
