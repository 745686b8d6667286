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
	policies, lists := d.Policies.Usage()
	tunnels := d.Tunnels.Usage()
	tunnels.Used += d.Steering.InPools()
	out := map[string]table.Usage{
		abi.MapLocalSid: d.SIDs.Usage(), abi.MapMobile: d.mobiles.Usage(), abi.MapSrPolicy: policies, abi.MapSegmentList: lists,
		abi.MapTunnel: tunnels, abi.MapAdjacency: d.Adjacencies.Usage(), abi.MapSource: d.sources.Usage(),
	}
	table.HashUsage(&d.tables, out)
	if d.limits.Sessions != 0 {
		d.Sessions.TableUsage(out)
	}
	return out
}
