package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Counter counts packets and bytes (which bytes: docs/semantics.md section 1).
type Counter struct{ Packets, Bytes uint64 }

func (c *Counter) add(o Counter) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}

// readCounter sums an entry over the CPUs.
func (d *DataPlane) readCounter(table string, index uint32) (Counter, error) {
	var each []abi.Counter
	var sum Counter
	if err := d.maps[table].Lookup(index, &each); err != nil {
		return sum, fmt.Errorf("read table %s: %w", table, err)
	}
	for _, c := range each {
		sum.add(Counter{c.Packets, c.Bytes})
	}
	return sum, nil
}

func (d *DataPlane) zeroCounter(table string, index uint32) error {
	return d.writeCounter(table, index, make([]abi.Counter, ebpf.MustPossibleCPU()))
}

func (d *DataPlane) copyCounter(table string, from, to uint32) error {
	var each []abi.Counter
	if err := d.maps[table].Lookup(from, &each); err != nil {
		return fmt.Errorf("read table %s: %w", table, err)
	}
	return d.writeCounter(table, to, each)
}

func (d *DataPlane) writeCounter(table string, index uint32, each []abi.Counter) error {
	if err := d.maps[table].Put(index, each); err != nil {
		return fmt.Errorf("write table %s: %w", table, err)
	}
	return nil
}

// Outcomes counts how packets' journeys ended, by Reason. Each frame that came
// in on a port is in exactly one of them, with its whole length.
func (d *DataPlane) Outcomes() ([]Counter, error) {
	out := make([]Counter, len(reasons))
	for i := range out {
		var err error
		if out[i], err = d.readCounter(abi.MapOutcomes, uint32(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Usage says how full a table is.
type Usage struct{ Used, Max int }

// Usage says how full the tables are that the configuration fills.
func (d *DataPlane) Usage() map[string]Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	receiving := 0
	for _, t := range d.tunnels {
		if t.receive != 0 && t.receive < d.limits.Tunnels {
			receiving++
		}
	}
	inPools := 0
	for _, s := range d.steerings {
		if s.slot != 0 {
			inPools++
		}
	}
	byIndex := 0
	for _, s := range d.sids {
		if s.index <= d.limits.SIDs {
			byIndex++
		}
	}
	of := func(x *indexes) Usage { return Usage{x.used(), int(x.end - x.first)} }
	entries := func(n int, table string) Usage { return Usage{n, int(d.maps[table].MaxEntries())} }
	sids, tunnels := of(d.sidIndex), of(d.tunnelIndex)
	out := map[string]Usage{
		abi.MapLocalSid:     {sids.Used + byIndex, sids.Max + int(d.limits.SIDs)},
		abi.MapSidByPrefix:  entries(len(d.sidTable.have), abi.MapSidByPrefix),
		abi.MapMobile:       of(d.mobileIndex),
		abi.MapSrPolicy:     of(d.policyIndex),
		abi.MapSegmentList:  of(d.listIndex),
		abi.MapTunnel:       {tunnels.Used + receiving + inPools, 4*int(d.limits.Tunnels) - 1},
		abi.MapTunnelByTeid: entries(len(d.teidTable.have), abi.MapTunnelByTeid),
		abi.MapTargetByDst4: entries(len(d.target4.have), abi.MapTargetByDst4),
		abi.MapTargetByDst6: entries(len(d.target6.have), abi.MapTargetByDst6),
		abi.MapTargetByPort: entries(len(d.portRules.have), abi.MapTargetByPort),
		abi.MapRoute4:       entries(len(d.route4.have), abi.MapRoute4),
		abi.MapRoute6:       entries(len(d.route6.have), abi.MapRoute6),
		abi.MapAdjacency:    of(d.adjacencyIndex),
		abi.MapSource:       of(d.sourceIndex),
		abi.MapNameByIndex:  entries(len(d.names.table.have), abi.MapNameByIndex),
	}
	if d.sessions != nil {
		d.sessionUsage(out)
	}
	return out
}

// sessionUsage says how full the tables of sessions are. Of pdr, entries that
// TEIDs and UE pools lead to are there for each session.
func (d *DataPlane) sessionUsage(out map[string]Usage) {
	s := d.sessions
	of := func(x *indexStack) Usage { return Usage{x.used(), int(x.end - x.first)} }
	out["sessions"] = Usage{s.byID.Len(), int(d.limits.Sessions)}
	out[abi.MapPdr], out[abi.MapMeter], out[abi.MapForwarding] = of(&s.pdrFree), of(&s.meterFree), of(&s.forwardingFree)
	out[abi.MapFilter] = Usage{int(s.runs.used), int(s.runs.count)}
	out[abi.MapPdrByTeid] = Usage{len(d.pdrByTEID.have), int(d.limits.Sessions)}
	out[abi.MapPdrByUe] = Usage{len(d.pdrByUE.have), int(d.limits.Sessions)}
}
