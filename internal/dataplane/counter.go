package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Counter counts packets and bytes (which bytes: docs/semantics.md section 1).
type Counter struct{ Packets, Bytes uint64 }

func (c *Counter) add(o Counter) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}

// readCounter sums an entry over the CPUs.
func (d *DataPlane) readCounter(table string, index uint32) (Counter, error) {
	var each []datapathCounter
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
	return d.writeCounter(table, index, make([]datapathCounter, ebpf.MustPossibleCPU()))
}

func (d *DataPlane) copyCounter(table string, from, to uint32) error {
	var each []datapathCounter
	if err := d.maps[table].Lookup(from, &each); err != nil {
		return fmt.Errorf("read table %s: %w", table, err)
	}
	return d.writeCounter(table, to, each)
}

func (d *DataPlane) writeCounter(table string, index uint32, each []datapathCounter) error {
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
		if out[i], err = d.readCounter(datapathMapOutcomes, uint32(i)); err != nil {
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
		datapathMapLocalSid:     {sids.Used + byIndex, sids.Max + int(d.limits.SIDs)},
		datapathMapSidByPrefix:  entries(len(d.sidTable.have), datapathMapSidByPrefix),
		datapathMapMobile:       of(d.mobileIndex),
		datapathMapSrPolicy:     of(d.policyIndex),
		datapathMapSegmentList:  of(d.listIndex),
		datapathMapTunnel:       {tunnels.Used + receiving + inPools, 4*int(d.limits.Tunnels) - 1},
		datapathMapTunnelByTeid: entries(len(d.teidTable.have), datapathMapTunnelByTeid),
		datapathMapTargetByDst4: entries(len(d.target4.have), datapathMapTargetByDst4),
		datapathMapTargetByDst6: entries(len(d.target6.have), datapathMapTargetByDst6),
		datapathMapTargetByPort: entries(len(d.portRules.have), datapathMapTargetByPort),
		datapathMapRoute4:       entries(len(d.route4.have), datapathMapRoute4),
		datapathMapRoute6:       entries(len(d.route6.have), datapathMapRoute6),
		datapathMapAdjacency:    of(d.adjacencyIndex),
		datapathMapSource:       of(d.sourceIndex),
		datapathMapNameByIndex:  entries(len(d.names.table.have), datapathMapNameByIndex),
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
	out[datapathMapPdr], out[datapathMapMeter], out[datapathMapForwarding] = of(&s.pdrFree), of(&s.meterFree), of(&s.forwardingFree)
	out[datapathMapFilter] = Usage{int(s.runs.used), int(s.runs.count)}
	out[datapathMapPdrByTeid] = Usage{len(d.pdrByTEID.have), int(d.limits.Sessions)}
	out[datapathMapPdrByUe] = Usage{len(d.pdrByUE.have), int(d.limits.Sessions)}
}
