package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/migrate"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/sid"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/tunnel"
	"github.com/culvert-net/culvert/internal/logevent"
)

// renewal is what is left of tables that this build cannot use, from Open to Sweep. Until
// then packets meet these, and the daemon fills new ones.
type renewal struct {
	d       *DataPlane
	pins    *pin.Dir
	maps    pin.Pinned
	shares  map[string]*ebpf.Map // of maps: both builds use them
	tables  migrate.Set
	moved   *session.Moved // entries of sessions, by another limit
	volumes migrate.Volumes
	counts  migrate.Counts
	late    []*migrate.Table // to be copied once more
}

// What is not copied: it is put again by whoever starts, belongs to one packet, or saves a
// look-up.
var transient = map[string]bool{
	abi.MapNextProgram: true, abi.MapDevice: true, abi.MapTraceFilter: true,
	abi.MapSpreadSettings: true, abi.MapSpreadBucket: true, abi.MapSpreadQueue: true, abi.MapSpreadCpu: true, abi.MapSpreadCpu2: true,
	abi.MapLookupCache: true, abi.MapCachedRoute: true, abi.MapUeBucket: true,
	abi.MapJourneyState: true, abi.MapMoveScratch: true, abi.MapTraceScratch: true, abi.MapErrorsLeft: true, abi.MapFlowSkip: true,
	abi.MapFlowCache: true,
}

// Only packets change these and counters, so that they are copied again at the last moment.
var changedByPackets = map[string]bool{abi.MapNetpolFlow: true, abi.MapNatBucket: true, abi.MapStation: true, abi.MapLimitByGroup: true}

// renew loads the build beside the tables that it cannot use, and copies what they hold.
// Interfaces run what they ran until switchOver. Where a limit is too small for what is there,
// nothing has changed (pin.ErrIncompatible).
func renew(d *DataPlane, spec *ebpf.CollectionSpec, former pin.Pinned) error {
	d.log.Info("the tables have another layout or size: copying them while packets meet the former ones", "event", logevent.DataPathLayoutChanged, "differ", former.Differ)
	r := &renewal{d: d, pins: d.pins, maps: former}
	d.renewal, d.pins = r, nil
	if err := r.findTables(spec); err != nil {
		return err
	}
	// The daemon answers PFCP from here on: a change of a session would be lost.
	if programs := former.Maps[abi.MapNextProgram]; programs != nil {
		if err := leaveN4(programs); err != nil {
			return err
		}
		d.grace.Wait()
	}
	r.shares = r.shared(spec)
	err := d.load(spec, r.shares)
	if err != nil {
		return err
	}
	if d.pins, err = r.pins.Renew(); err != nil {
		return err
	}
	if err := pinAll(d, spec); err != nil {
		return err
	}
	if err := r.copyTables(); err != nil {
		return err
	}
	return errors.Join(d.openAttachments(), d.XDP.Hold(), d.TCX.Hold(), d.netfilter.Hold())
}

// findTables finds what is copied, and where entries go whose table has another size.
func (r *renewal) findTables(spec *ebpf.CollectionSpec) error {
	r.tables, r.moved = migrate.Set{}, &session.Moved{}
	gone := r.withoutSessions()
	for name, m := range r.maps.Maps {
		if !transient[name] && !gone[name] && m.Type() != ebpf.RingBuf {
			types := r.maps.Types[name]
			r.tables[name] = &migrate.Table{Spec: spec.Maps[name], From: m, FormerKey: types.Key, FormerValue: types.Value}
		}
	}
	err := errors.Join(sid.Resize(r.tables), tunnel.Resize(r.tables))
	if len(gone) > 0 {
		forgetSessions(r.tables)
	} else {
		var sessions error
		r.moved, sessions = session.Resize(r.tables, r.d.limits)
		err = errors.Join(err, sessions)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return errUnreadable
	case err != nil:
		return fmt.Errorf("%w: %w", pin.ErrIncompatible, err)
	}
	return nil
}

// errUnreadable says that the fields of tables are not recorded, and that the kernel does not
// tell them.
var errUnreadable = fmt.Errorf("%w: an early build made tables whose fields only root with all capabilities can read: "+
	"start the daemon once as `culvert run --config FILE`, outside of the service, or run `culvert unpin`", pin.ErrIncompatible)

// withoutSessions are the tables that go with the user plane function, if this node was one and
// is none any more.
func (r *renewal) withoutSessions() map[string]bool {
	pdr := r.maps.Maps[abi.MapPdr]
	if r.d.limits.Sessions != 0 || pdr == nil || pdr.MaxEntries() == r.d.unused[abi.MapPdr].Entries {
		return nil
	}
	r.d.log.Warn("a table starts empty", "event", logevent.DataPathTableEmptied, "table", abi.MapPdr, "reason", "this node is no user plane function any more: its sessions end")
	gone := map[string]bool{abi.MapNatBucket: true, abi.MapN4Peer: true}
	for name := range session.MapSizes(r.d.limits) {
		gone[name] = true
	}
	for name := range n4.MapSizes(0) {
		gone[name] = true
	}
	return gone
}

// forgetSessions leaves out what leads to sessions.
func forgetSessions(tables migrate.Set) {
	tables.Edit(settings.Map, func(_ uint32, _, value []byte) bool {
		settings.ForgetSessions(migrate.As[abi.Settings](value))
		return true
	})
	for _, name := range table.OfTargets {
		tables.Edit(name, func(_ uint32, _, value []byte) bool {
			kind := abi.TargetKind(migrate.As[abi.Target](value).Kind)
			return kind != abi.TargetKindTARGET_PDR && kind != abi.TargetKindTARGET_LINK
		})
	}
}

// shared are maps that both builds use: packets' counters, and ring buffers, so that nothing
// that the former build writes is lost.
func (r *renewal) shared(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name, m := range r.maps.Maps {
		value := spec.Maps[name].Value
		counts := m.Type() == ebpf.PerCPUArray && (value.TypeName() == "counter" || name == abi.MapN4Count)
		ring := m.Type() == ebpf.RingBuf && !(r.moved.Any() && slices.Contains(session.Rings, name))
		if r.maps.Differ[name] == "" && (counts || ring) {
			out[name] = m
		}
	}
	return out
}

// copyTables fills the maps with what the former ones hold.
func (r *renewal) copyTables() error {
	d := r.d
	for _, name := range slices.Sorted(maps.Keys(r.tables)) {
		if r.shares[name] != nil {
			continue
		}
		t := r.tables[name]
		t.Map = d.maps[name]
		if name == abi.MapNetpolFlow && t.Map.MaxEntries() != t.From.MaxEntries() { // the number of buckets decides about places
			d.log.Warn("a table starts empty", "event", logevent.DataPathTableEmptied, "table", name, "reason", "limits.pod_flows changed")
			continue
		}
		counting, err := r.counts.Note(t)
		if err == nil {
			err = t.Copy()
		}
		switch {
		case errors.Is(err, migrate.ErrUnlike):
			d.log.Warn("a table starts empty", "event", logevent.DataPathTableEmptied, "table", name, "reason", err)
			continue
		case errors.Is(err, migrate.ErrTooSmall):
			return fmt.Errorf("%w: table %s: %w: raise its limit again", pin.ErrIncompatible, name, err)
		case errors.Is(err, fs.ErrPermission):
			return errUnreadable
		case err != nil:
			return fmt.Errorf("copy table %s: %w", name, err)
		}
		if err := r.volumes.Note(t); err != nil {
			return fmt.Errorf("copy table %s: %w", name, err)
		}
		if changedByPackets[name] || t.Map.Type() == ebpf.PerCPUArray && !counting {
			r.late = append(r.late, t)
		}
	}
	return nil
}

// followRings has the daemon read what the former build writes until switchOver.
func (r *renewal) followRings() error {
	var errs []error
	for name, m := range r.maps.Maps {
		if m.Type() == ebpf.RingBuf && r.shares[name] == nil {
			errs = append(errs, r.d.rings.Follow(name, m, r.moved.Record))
		}
	}
	return errors.Join(errs...)
}

// switchOver has packets meet the new tables. What the former ones counted meanwhile is
// added. The caller holds the lock.
func (r *renewal) switchOver() error {
	d := r.d
	for _, t := range r.late {
		if err := t.Copy(); err != nil {
			return fmt.Errorf("copy table %s: %w", t.Spec.Name, err)
		}
	}
	if err := errors.Join(d.netfilter.Release(), d.XDP.Release(), d.TCX.Release()); err != nil {
		return err
	}
	d.grace.Wait()
	r.volumes.Add()
	d.rings.EndFormer()
	err := errors.Join(r.counts.Add(), d.pins.Replace(r.pins))
	d.renewal = nil
	return errors.Join(err, r.close())
}

// close lets go of the former tables. What is pinned goes on.
func (r *renewal) close() error {
	err := errors.Join(r.volumes.Close(), r.counts.Close())
	r.maps.Close()
	return errors.Join(err, r.pins.Close())
}
