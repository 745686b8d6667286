package dataplane

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// recover finds out what an earlier daemon left in the tables, so that none of
// it is overwritten. Nothing is in use in empty tables.
func (d *DataPlane) recover() error {
	d.sids, d.policies, d.tunnels = map[netip.Prefix]*sid{}, map[string]*policy{}, map[string]*tunnel{}
	d.ethernet = map[Link]*ethernetLink{}
	d.teids, d.steerings, d.local = map[uint32]string{}, map[string]*steering{}, map[netip.Addr]bool{}
	d.adjacencies, d.sources = map[AdjacencyKey]*adjacency{}, map[abi.In6]*source{}
	d.routes, d.waiting = map[routeKey][]AdjacencyKey{}, map[string]map[string]bool{}
	d.sendNames, d.policyNames = map[string]uint32{}, map[string]uint32{}
	d.reading = map[string]bool{}
	d.resting, d.ports, d.devices = map[uint32]uint64{}, map[int]bool{}, map[int]bool{}

	l := d.limits
	d.sidIndex = table.NewIndexes(d.grace, "local_sid", "sids", l.SIDs+1, 2*l.SIDs+1)
	d.mobileIndex = table.NewIndexes(d.grace, "mobile", "sids", 1, l.SIDs+1)
	d.policyIndex = table.NewIndexes(d.grace, "sr_policy", "policies", 1, l.Policies+1)
	d.listIndex = table.NewIndexes(d.grace, "segment_list", "segment_lists", 1, l.SegmentLists+1)
	d.tunnelIndex = table.NewIndexes(d.grace, "tunnel", "tunnels", 2*l.Tunnels, 4*l.Tunnels)
	d.adjacencyIndex = table.NewIndexes(d.grace, "adjacency", "adjacencies", 1, l.Adjacencies+1)
	d.podIndex = table.NewIndexes(d.grace, "pod", "", 1, d.maps[abi.MapPod].MaxEntries())
	d.sourceIndex = table.NewIndexes(d.grace, "source", "", 1, d.maps[abi.MapSource].MaxEntries())

	d.storeSettings(func(s *abi.Settings) {
		s.TeidSlots = l.Tunnels
		if s.HopLimit == 0 {
			s.HopLimit = defaultHopLimit
		}
	})
	d.countInside()
	d.recoverSIDs()
	d.recoverPolicies()
	d.recoverTunnels()
	d.openSessions()
	return errors.Join(d.recoverAdjacencies(), d.recoverSources(), d.recoverPods())
}

// openSessions begins the sessions anew, with what an earlier daemon left.
func (d *DataPlane) openSessions() {
	if d.Sessions != nil {
		d.Sessions.closed = true
	}
	d.Sessions = openSessions(&d.mu, sessionNode{d}, d.limits, d.sessionTables)
	if d.limits.Sessions != 0 {
		slots, _, _ := d.limits.pdrRanges()
		d.storeSettings(func(e *abi.Settings) { e.PdrSlots = slots })
		d.Sessions.setPools(sessionPoolsOf(new(d.settings.Get(0))))
	}
}

func (d *DataPlane) recoverSIDs() {
	taken, mobiles := map[uint32]bool{}, map[uint32]bool{}
	for _, index := range d.sidTable.All() {
		taken[index] = true
		mobiles[d.localSID.Get(index).Mobile] = true
	}
	for index := range d.sidsByIndex() {
		mobiles[d.localSID.Get(index).Mobile] = true
	}
	for _, t := range d.target4.All() {
		if t.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
			mobiles[t.Index] = true
		}
	}
	delete(mobiles, 0)
	d.sidIndex.Restore(taken)
	d.mobileIndex.Restore(mobiles)
}

// sidsByIndex are the SIDs in the locators' ranges.
func (d *DataPlane) sidsByIndex() map[uint32]netip.Prefix {
	out := map[uint32]netip.Prefix{}
	s := d.settings.Get(0)
	for _, l := range s.Locator[:s.Locators] {
		if !l.Enabled() {
			continue
		}
		for index := l.Base; index < l.Base+l.Size(); index++ {
			if uint8(d.localSID.Load(index, 0)) != 0 { // behavior
				out[index] = l.PrefixOf(index)
			}
		}
	}
	return out
}

func (d *DataPlane) recoverPolicies() {
	policies, lists := map[uint32]bool{}, map[uint32]bool{}
	for index, name := range d.names.All(table.NamePolicy) {
		policies[index] = true
		d.policyNames[name] = index
		p := d.srPolicy.Get(index)
		for _, l := range p.List[:p.Count] {
			lists[l.List] = true
		}
	}
	d.policyIndex.Restore(policies)
	d.listIndex.Restore(lists)
}

func (d *DataPlane) recoverTunnels() {
	taken := map[uint32]bool{}
	for _, index := range d.teidTable.All() {
		taken[index] = true
	}
	for index, name := range d.names.All(table.NameTunnel) {
		taken[index] = true
		d.sendNames[name] = index
	}
	d.tunnelIndex.Restore(taken)
}

func (d *DataPlane) recoverAdjacencies() error {
	taken := map[uint32]bool{}
	var errs []error
	for index, name := range d.names.All(table.NameAdjacency) {
		k, err := parseAdjacencyKey(name)
		a := &adjacency{index: index}
		if err == nil {
			err = d.maps[abi.MapAdjacency].Lookup(index, &a.value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("recover adjacency %d: %w", index, err))
			continue
		}
		taken[index] = true
		d.adjacencies[k] = a
	}
	d.adjacencyIndex.Restore(taken)
	return errors.Join(errs...)
}

func (d *DataPlane) recoverSources() error {
	taken := map[uint32]bool{}
	m := d.maps[abi.MapSource]
	for index := uint32(1); index < m.MaxEntries(); index++ {
		var a abi.In6
		if err := m.Lookup(index, &a); err != nil {
			return fmt.Errorf("recover source %d: %w", index, err)
		}
		if a == (abi.In6{}) || d.sources[a] != nil {
			continue
		}
		taken[index] = true
		d.sources[a] = &source{index: index}
	}
	d.sourceIndex.Restore(taken)
	return nil
}

// Sweep removes what an earlier daemon had put and this one has not. Call it
// once everything that is wanted is put. What others refer to goes last.
func (d *DataPlane) Sweep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{d.route4.Sweep(), d.route6.Sweep(), d.sweepPods(), d.sweepTargets()}
	errs = append(errs, d.sweepPorts()...)
	errs = append(errs, d.Sessions.sweep())
	errs = append(errs, d.sweepSIDs()...)
	errs = append(errs, d.sweepTunnels()...)
	for name, index := range d.policyNames {
		if d.policies[name] == nil {
			errs = append(errs, d.forgetPolicy(name, index))
		}
	}
	for k, a := range d.adjacencies {
		if a.refs == 0 {
			errs = append(errs, d.forgetAdjacency(k))
		}
	}
	for a, s := range d.sources {
		if s.refs == 0 {
			delete(d.sources, a)
			d.sourceIndex.Retire(s.index)
		}
	}
	for _, t := range []interface{ Settle() }{d.names, d.sidTable, d.teidTable, d.Sessions.tables.teids, d.Sessions.tables.ues, d.target4, d.target6, d.portRules, d.route4, d.route6} {
		t.Settle()
	}
	return errors.Join(errs...)
}

func (d *DataPlane) sweepTargets() error {
	var errs []error
	for _, t := range d.target4.Stale() {
		errs = append(errs, d.dropTarget(t, nil))
	}
	ports := d.portRules.Stale()
	errs = append(errs, d.target4.Sweep(), d.target6.Sweep(), d.portRules.Sweep())
	for k := range ports {
		errs = append(errs, d.markSteered(int(k.Ifindex)))
	}
	mine := map[uint32]bool{}
	for _, s := range d.steerings {
		mine[s.slot] = true
	}
	s := d.settings.Get(0)
	sweep := func(base, size uint32) {
		for index := base; index < base+size; index++ {
			if !mine[index] && uint8(d.tunnel.Load(index, wordAction)>>32) != 0 {
				d.clearTunnel(index, wordAction)
			}
		}
	}
	for _, p := range s.Pool4[:s.Pools4] {
		if p.Enabled() && p.Sessions == 0 {
			sweep(p.Base, p.Size())
		}
	}
	for _, p := range s.Pool6[:s.Pools6] {
		if p.Enabled() && p.Sessions == 0 {
			sweep(p.Base, p.Size())
		}
	}
	return errors.Join(errs...)
}

func (d *DataPlane) sweepSIDs() []error {
	var errs []error
	for k, index := range d.sidTable.All() {
		if d.sids[abi.SIDPrefix(k)] == nil {
			errs = append(errs, d.unpublishSID(abi.SIDPrefix(k), index))
		}
	}
	for index, p := range d.sidsByIndex() {
		if s := d.sids[p]; s == nil || s.index != index {
			errs = append(errs, d.unpublishSID(p, index))
		}
	}
	return errs
}

func (d *DataPlane) sweepTunnels() []error {
	var errs []error
	for teid, index := range d.teidTable.All() {
		if t := d.tunnels[d.teids[teid]]; t == nil || t.receive != index {
			errs = append(errs, d.unlinkTEID(teid))
		}
	}
	for slot := uint32(1); slot < d.limits.Tunnels; slot++ {
		teid := uint32(d.tunnel.Load(slot, wordKey))
		if teid == 0 {
			continue
		}
		if t := d.tunnels[d.teids[teid]]; t == nil || t.receive != slot {
			d.clearTunnel(slot, wordKey)
		}
	}
	for index, name := range d.names.All(table.NameTunnel) {
		if t := d.tunnels[name]; t == nil || t.send != index {
			if d.sendNames[name] == index {
				delete(d.sendNames, name)
			}
			d.tunnelIndex.Retire(index)
			errs = append(errs, d.names.Delete(table.NameTunnel, index))
		}
	}
	return errs
}
