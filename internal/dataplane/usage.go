package dataplane

import (
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Outcomes counts how packets' journeys ended, by reason.Reason. Each frame that
// came in on a port is in exactly one of them, with its whole length.
func (d *DataPlane) Outcomes() ([]counter.Counter, error) {
	out := make([]counter.Counter, len(reason.All()))
	for i := range out {
		var err error
		if out[i], err = counter.Read(d.maps[abi.MapOutcomes], uint32(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Usage says how full the tables are that the configuration fills, by name.
func (d *DataPlane) Usage() map[string]table.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	sids, sidsByPrefix := d.SIDs.Usage()
	policies, lists := d.Policies.Usage()
	tunnels, byTEID := d.Tunnels.Usage()
	tunnels.Used += d.Steering.InPools()
	target4, target6, byPort := d.targets.Usage()
	route4, route6 := d.Routes.Usage()
	out := map[string]table.Usage{
		abi.MapLocalSid: sids, abi.MapSidByPrefix: sidsByPrefix, abi.MapMobile: d.mobiles.Usage(),
		abi.MapSrPolicy: policies, abi.MapSegmentList: lists,
		abi.MapTunnel: tunnels, abi.MapTunnelByTeid: byTEID,
		abi.MapTargetByDst4: target4, abi.MapTargetByDst6: target6, abi.MapTargetByPort: byPort,
		abi.MapRoute4: route4, abi.MapRoute6: route6, abi.MapAdjacency: d.Adjacencies.Usage(), abi.MapSource: d.sources.Usage(),
		abi.MapNameByIndex: d.names.Usage(),
	}
	if d.Sessions.room {
		d.Sessions.tableUsage(out)
	}
	return out
}

// tableUsage says how full the tables of sessions are. Of pdr, entries that
// TEIDs and UE pools lead to are there for each session.
func (s *Sessions) tableUsage(out map[string]table.Usage) {
	o, of := s.owners, func(x *indexStack) table.Usage { return table.Usage{Used: x.used(), Max: int(x.end - x.first)} }
	out["sessions"] = table.Usage{Used: o.byID.Len(), Max: int(o.most)}
	out[abi.MapPdr], out[abi.MapMeter], out[abi.MapForwarding] = of(&o.pdrFree), of(&o.meterFree), of(&s.forwardings.free)
	out[abi.MapFilter] = table.Usage{Used: int(o.runs.used), Max: int(o.runs.count)}
	out[abi.MapPdrByTeid] = table.Usage{Used: s.tables.count(byTEID), Max: int(o.most)}
	out[abi.MapPdrByUe] = table.Usage{Used: s.tables.count(byUE), Max: int(o.most)}
}
