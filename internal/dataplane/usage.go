package dataplane

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Outcomes counts how packets' journeys ended, by Reason. Each frame that came
// in on a port is in exactly one of them, with its whole length.
func (d *DataPlane) Outcomes() ([]counter.Counter, error) {
	out := make([]counter.Counter, len(reasons))
	for i := range out {
		var err error
		if out[i], err = counter.Read(d.maps[abi.MapOutcomes], uint32(i)); err != nil {
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
	of := func(x *table.Indexes) Usage { return Usage{x.Used(), x.Size()} }
	entries := func(n int, table string) Usage { return Usage{n, int(d.maps[table].MaxEntries())} }
	sids, tunnels := of(d.sidIndex), of(d.tunnelIndex)
	out := map[string]Usage{
		abi.MapLocalSid:     {sids.Used + byIndex, sids.Max + int(d.limits.SIDs)},
		abi.MapSidByPrefix:  entries(d.sidTable.Len(), abi.MapSidByPrefix),
		abi.MapMobile:       of(d.mobileIndex),
		abi.MapSrPolicy:     of(d.policyIndex),
		abi.MapSegmentList:  of(d.listIndex),
		abi.MapTunnel:       {tunnels.Used + receiving + inPools, 4*int(d.limits.Tunnels) - 1},
		abi.MapTunnelByTeid: entries(d.teidTable.Len(), abi.MapTunnelByTeid),
		abi.MapTargetByDst4: entries(d.target4.Len(), abi.MapTargetByDst4),
		abi.MapTargetByDst6: entries(d.target6.Len(), abi.MapTargetByDst6),
		abi.MapTargetByPort: entries(d.portRules.Len(), abi.MapTargetByPort),
		abi.MapRoute4:       entries(d.route4.Len(), abi.MapRoute4),
		abi.MapRoute6:       entries(d.route6.Len(), abi.MapRoute6),
		abi.MapAdjacency:    of(d.adjacencyIndex),
		abi.MapSource:       of(d.sourceIndex),
		abi.MapNameByIndex:  entries(d.names.Len(), abi.MapNameByIndex),
	}
	if d.Sessions.room {
		d.Sessions.tableUsage(out)
	}
	return out
}

// tableUsage says how full the tables of sessions are. Of pdr, entries that
// TEIDs and UE pools lead to are there for each session.
func (s *Sessions) tableUsage(out map[string]Usage) {
	o, of := s.owners, func(x *indexStack) Usage { return Usage{x.used(), int(x.end - x.first)} }
	out["sessions"] = Usage{o.byID.Len(), int(o.most)}
	out[abi.MapPdr], out[abi.MapMeter], out[abi.MapForwarding] = of(&o.pdrFree), of(&o.meterFree), of(&s.forwardings.free)
	out[abi.MapFilter] = Usage{int(o.runs.used), int(o.runs.count)}
	out[abi.MapPdrByTeid] = Usage{s.tables.count(byTEID), int(o.most)}
	out[abi.MapPdrByUe] = Usage{s.tables.count(byUE), int(o.most)}
}
