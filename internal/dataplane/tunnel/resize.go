package tunnel

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/migrate"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// resizing gives tunnels new indices, in tables with room for another number of them.
type resizing struct {
	set      migrate.Set
	was, now uint32 // the limit
	moves    migrate.Moves
	keys     []uint32 // local TEIDs, by entry
	active   []bool   // entries that do something
	bases    map[uint32]uint32
	more     []uint32 // entries whose TEID is no longer an index
}

// Resize has the tunnels of a set keep what they do, and have counted, where limits.tunnels
// changed (*migrate.LimitError).
func Resize(set migrate.Set) error {
	was, now := set.Sizes(abi.MapTunnelByTeid)
	if was == now {
		return nil
	}
	r := &resizing{set: set, was: was, now: now, moves: make(migrate.Moves, 4*was), keys: make([]uint32, 4*was), active: make([]bool, 4*was), bases: map[uint32]uint32{}}
	err := set.Each(abi.MapTunnel, func(index uint32, _, value []byte) {
		e := migrate.As[abi.Tunnel](value)
		r.keys[index], r.active[index] = e.Key, e.Action != 0
	})
	if err != nil {
		return err
	}
	for i := uint32(1); i < was; i++ {
		switch {
		case i < now:
			r.moves[i] = i
		case r.keys[i] != 0:
			r.more = append(r.more, i)
		}
	}
	if err := r.movePools(); err != nil {
		return err
	}
	if err := r.moveOthers(); err != nil {
		return err
	}
	set.Move(r.moves, abi.MapTunnel)
	r.editReferences()
	return nil
}

// movePools moves the ranges of UE pools that have steering. Others make room: who has none
// gets a range again when the settings are put.
func (r *resizing) movePools() error {
	var ranges [][2]uint32
	err := r.set.Each(settings.Map, func(_ uint32, _, value []byte) {
		for _, p := range settings.PoolsOf(migrate.As[abi.Settings](value)) {
			if p.Mask != 0 && p.Sessions == 0 && r.isUsed(p) {
				ranges = append(ranges, [2]uint32{p.Base, p.Size()})
			}
		}
	})
	if err != nil {
		return err
	}
	total, fits := uint32(0), true
	for i, base := range settings.Refit(ranges, r.was, r.now, 2*r.now) {
		first, size := ranges[i][0], ranges[i][1]
		total += size
		if fits = fits && base != 0; base != 0 {
			r.bases[first] = base
			r.moves.Shift(migrate.Range{First: first, End: first + size}, base)
		}
	}
	if !fits {
		return &migrate.LimitError{Limit: "tunnels", Now: r.now, What: "addresses of gtpu.pools with steering", Used: total, Room: r.now, Want: total}
	}
	return nil
}

func (r *resizing) isUsed(p settings.Pool) bool {
	for i := p.Base; i < p.Base+p.Size(); i++ {
		if r.active[i] {
			return true
		}
	}
	return false
}

// moveOthers moves what steering refers to, and what a hash finds by TEID, now or from now on.
func (r *resizing) moveOthers() error {
	used := make([]bool, 4*r.was)
	use := func(i uint32) { used[i%(4*r.was)] = true }
	byTEID := uint32(len(r.more))
	err := r.set.Each(abi.MapTunnelByTeid, func(_ uint32, _, value []byte) {
		byTEID++
		use(*migrate.As[uint32](value))
	})
	if err == nil {
		err = r.set.Each(abi.MapNameByIndex, func(_ uint32, key, _ []byte) {
			if k := migrate.As[abi.NameKey](key); k.Kind == table.NameTunnel {
				use(k.Index)
			}
		})
	}
	for _, name := range table.OfTargets {
		if err == nil {
			err = r.set.Each(name, func(_ uint32, _, value []byte) {
				if to := migrate.As[abi.Target](value); to.Kind == uint32(abi.TargetKindTARGET_TUNNEL) {
					use(to.Index)
				}
			})
		}
	}
	if err != nil {
		return err
	}
	n := r.moves.Fit(migrate.Range{First: 2 * r.was, End: 4 * r.was}, migrate.Range{First: 2 * r.now, End: 4 * r.now},
		func(i uint32) bool { return used[i] }, r.more)
	switch {
	case n > 2*r.now:
		return &migrate.LimitError{Limit: "tunnels", Now: r.now, What: "tunnels", Used: n, Room: 2 * r.now, Want: (n + 1) / 2}
	case byTEID > r.now:
		return &migrate.LimitError{Limit: "tunnels", Now: r.now, What: "local TEIDs that are no index", Used: byTEID, Room: r.now, Want: byTEID}
	}
	for _, i := range r.more {
		migrate.Add(r.set, abi.MapTunnelByTeid, r.keys[i], r.moves.To(i))
	}
	return nil
}

// editReferences has what refers to tunnels refer to their new entries.
func (r *resizing) editReferences() {
	r.set.Edit(abi.MapTunnelByTeid, func(_ uint32, _, value []byte) bool {
		index := migrate.As[uint32](value)
		*index = r.moves.To(*index)
		return *index != 0
	})
	r.set.Edit(abi.MapNameByIndex, func(_ uint32, key, _ []byte) bool {
		k := migrate.As[abi.NameKey](key)
		if k.Kind != table.NameTunnel {
			return true
		}
		k.Index = r.moves.To(k.Index)
		return k.Index != 0
	})
	for _, name := range table.OfTargets {
		r.set.Edit(name, func(_ uint32, _, value []byte) bool {
			if to := migrate.As[abi.Target](value); to.Kind == uint32(abi.TargetKindTARGET_TUNNEL) {
				to.Index = r.moves.To(to.Index)
			}
			return true
		})
	}
	r.set.Edit(settings.Map, func(_ uint32, _, value []byte) bool {
		settings.MovePools(migrate.As[abi.Settings](value), 0, func(p settings.Pool) uint32 { return r.bases[p.Base] })
		return true
	})
}
