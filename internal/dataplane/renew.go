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
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/logevent"
)

// renewal is what is left of tables that this build cannot use, from Open to Sweep. Until
// then packets meet these, and the daemon fills new ones.
type renewal struct {
	d       *DataPlane
	pins    *pin.Dir
	maps    pin.Pinned
	volumes migrate.Volumes
	late    []*migrate.Table // to be copied once more
}

// What is not copied: it is put again by whoever starts, belongs to one packet, or saves a
// look-up.
var transient = map[string]bool{
	abi.MapNextProgram: true, abi.MapDevice: true, abi.MapTraceFilter: true,
	abi.MapSpreadSettings: true, abi.MapSpreadBucket: true, abi.MapSpreadQueue: true, abi.MapSpreadCpu: true, abi.MapSpreadCpu2: true,
	abi.MapLookupCache: true, abi.MapCachedRoute: true, abi.MapUntranslated: true,
	abi.MapJourneyState: true, abi.MapMoveScratch: true, abi.MapTraceScratch: true, abi.MapErrorsLeft: true, abi.MapFlowSkip: true,
	abi.MapNetpolCache: true,
}

// Only packets change these and counters, so that they are copied again at the last moment.
var changedByPackets = map[string]bool{abi.MapNetpolFlow: true, abi.MapNatBucket: true, abi.MapStation: true, abi.MapLimitByGroup: true}

// renew loads the build beside the tables that it cannot use, and copies what they hold.
// Interfaces run what they ran until switchOver.
func renew(d *DataPlane, spec *ebpf.CollectionSpec, former pin.Pinned) error {
	d.log.Info("the tables have another layout: copying them while packets meet the former ones", "event", logevent.DataPathLayoutChanged, "differ", former.Differ)
	r := &renewal{d: d, pins: d.pins, maps: former}
	d.renewal, d.pins = r, nil
	// The daemon answers PFCP from here on: a change of a session would be lost.
	if programs := former.Maps[abi.MapNextProgram]; programs != nil {
		if err := programs.Delete(uint32(abi.ProgramPROGRAM_N4)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("write table %s: %w", abi.MapNextProgram, err)
		}
		d.grace.Wait()
	}
	shared := r.shared(spec)
	err := d.load(spec, shared)
	if err != nil {
		return err
	}
	if d.pins, err = r.pins.Renew(); err != nil {
		return err
	}
	if err := pinAll(d, spec); err != nil {
		return err
	}
	if err := r.copyTables(spec, shared); err != nil {
		return err
	}
	return errors.Join(d.openAttachments(), d.XDP.Hold(), d.TCX.Hold(), d.netfilter.Hold())
}

// shared are maps that both builds use: packets' counters, and ring buffers, so that nothing
// that the former build writes is lost.
func (r *renewal) shared(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name, m := range r.maps.Maps {
		value := spec.Maps[name].Value
		counts := m.Type() == ebpf.PerCPUArray && (value.TypeName() == "counter" || name == abi.MapN4Count)
		if r.maps.Differ[name] == "" && (counts || m.Type() == ebpf.RingBuf) {
			out[name] = m
		}
	}
	return out
}

// copyTables fills the maps with what the former ones hold.
func (r *renewal) copyTables(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map) error {
	d := r.d
	for _, name := range slices.Sorted(maps.Keys(r.maps.Maps)) {
		if shared[name] != nil || transient[name] || r.maps.Maps[name].Type() == ebpf.RingBuf {
			continue
		}
		types := r.maps.Types[name]
		t := &migrate.Table{Map: d.maps[name], Spec: spec.Maps[name], From: r.maps.Maps[name], FormerKey: types.Key, FormerValue: types.Value}
		if name == abi.MapNetpolFlow && t.Map.MaxEntries() != t.From.MaxEntries() { // the number of buckets decides about places
			d.log.Warn("a table starts empty", "event", logevent.DataPathTableEmptied, "table", name, "reason", "limits.pod_flows changed")
			continue
		}
		err := t.Copy()
		switch {
		case errors.Is(err, migrate.ErrUnlike):
			d.log.Warn("a table starts empty", "event", logevent.DataPathTableEmptied, "table", name, "reason", err)
			continue
		case errors.Is(err, migrate.ErrTooSmall):
			return fmt.Errorf("%w: table %s: %w: raise its limit again", pin.ErrIncompatible, name, err)
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("%w: table %s: an early build made it, whose fields only root with all capabilities can read: "+
				"start the daemon once as `culvert run --config FILE`, outside of the service, or run `culvert unpin`", pin.ErrIncompatible, name)
		case err != nil:
			return fmt.Errorf("copy table %s: %w", name, err)
		}
		if err := r.volumes.Note(t); err != nil {
			return fmt.Errorf("copy table %s: %w", name, err)
		}
		if changedByPackets[name] || t.Map.Type() == ebpf.PerCPUArray {
			r.late = append(r.late, t)
		}
	}
	return nil
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
	if err := errors.Join(d.XDP.Release(), d.TCX.Release(), d.netfilter.Release()); err != nil {
		return err
	}
	d.grace.Wait()
	r.volumes.Add()
	err := d.pins.Replace(r.pins)
	d.renewal = nil
	return errors.Join(err, r.close())
}

// close lets go of the former tables. What is pinned goes on.
func (r *renewal) close() error {
	err := r.volumes.Close()
	r.maps.Close()
	return errors.Join(err, r.pins.Close())
}
