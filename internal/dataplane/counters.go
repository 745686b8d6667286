package dataplane

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Outcomes counts how packets' journeys ended, by reason.Reason. Each frame that
// came in on a port, or was injected there, is in exactly one of them, with its whole length.
func (d *DataPlane) Outcomes() ([]counter.Counter, error) {
	out, err := counter.ReadAll(d.maps[abi.MapOutcomes])
	return out[:min(len(out), len(reason.All()))], err
}

// Signalling counts the PFCP messages that the data path answers or leaves to the daemon.
func (d *DataPlane) Signalling() (n4.Counts, error) { return n4.ReadCounts(d.maps[abi.MapN4Count]) }

// Usage says how full the tables are that the configuration fills, by name.
func (d *DataPlane) Usage() map[string]table.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	policies, lists := d.Policies.Usage()
	tunnels := d.Tunnels.Usage()
	tunnels.Used += d.Steering.InPools()
	out := map[string]table.Usage{
		abi.MapLocalSid: d.SIDs.Usage(), abi.MapMobile: d.mobiles.Usage(), abi.MapSrPolicy: policies, abi.MapSegmentList: lists,
		abi.MapTunnel: tunnels, abi.MapAdjacency: d.Adjacencies.Usage(), abi.MapSource: d.sources.Usage(), abi.MapClassWay: d.Classes.Usage(),
	}
	table.HashUsage(&d.tables, out)
	if d.limits.Sessions != 0 {
		d.Sessions.TableUsage(out)
	}
	return out
}

// sliceEntry is where a slice counts, and has its rate (bpf/def/tables.h).
func sliceEntry(slice uint32, direction session.Direction) uint32 { return 2*slice + uint32(direction) }

func (d *DataPlane) checkSlice(slice uint32) error {
	switch {
	case d.maps == nil:
		return fmt.Errorf("slice %d: the data path is closed", slice)
	case d.limits.Sessions == 0:
		return fmt.Errorf("slice %d: %w", slice, session.ErrNone)
	case slice == 0 || slice >= session.MaxSlices:
		return fmt.Errorf("slice %d: want 1 to %d", slice, session.MaxSlices-1)
	}
	return nil
}

// SetSlice limits what sessions of a slice send and get, in kbit/s; 0: not. A
// change of a rate keeps its bucket.
func (d *DataPlane) SetSlice(slice uint32, up, down uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkSlice(slice); err != nil {
		return err
	}
	now, err := table.Monotonic()
	if err != nil {
		return err
	}
	for direction, rate := range map[session.Direction]uint64{session.Uplink: up, session.Downlink: down} {
		index := sliceEntry(slice, direction)
		session.SetMeterRate(d.tables.SliceMeter, index, rate, now)
	}
	return nil
}

// SliceCounters count the T-PDUs of a slice's sessions, and their octets.
func (d *DataPlane) SliceCounters(slice uint32) (up, down counter.Counter, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkSlice(slice); err != nil {
		return up, down, err
	}
	if up, err = counter.Read(d.maps[abi.MapSliceCounter], sliceEntry(slice, session.Uplink)); err != nil {
		return up, down, err
	}
	down, err = counter.Read(d.maps[abi.MapSliceCounter], sliceEntry(slice, session.Downlink))
	return up, down, err
}
