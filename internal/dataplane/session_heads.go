package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// way says how packets come to a head.
type way uint8

// The ways.
const (
	byIndex  way = iota // of its TEID, or in a UE pool
	byTEID              // pdr_by_teid
	byUE                // pdr_by_ue
	byPrefix            // target_by_dst4, target_by_dst6
	byLink              // station; pdr_by_ue has it for a daemon that starts again
)

// isUE says whether a prefix is what a UE has: an IPv4 address, or an IPv6 /64.
func isUE(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() == 32 || p.Addr().Is6() && p.Bits() == 64
}

// findHead finds out where a head is, or would be.
func (d *DataPlane) findHead(k headKey) (where way, index uint32, had bool) {
	if k.teid != 0 {
		if slot := d.sessions.teids.slotOf(k.teid); slot != 0 {
			do := d.pdr.Load(slot, wordPDRDo)
			if isActive(do) && flagsOf(do)&flagByTEID != 0 && generationOf(do) == uint8(k.teid>>24) {
				return byIndex, slot, true
			}
		}
		index, had = d.pdrByTEID.Lookup(k.teid)
		return byTEID, index, had
	}
	if k.session != 0 {
		index, had = d.pdrByUE.Lookup(linkEntry(k.session))
		return byLink, index, had
	}
	if slot := d.sessionSlot(k.prefix); slot != 0 {
		return byIndex, slot, isActive(d.pdr.Load(slot, wordPDRDo))
	}
	if isUE(k.prefix) {
		index, had = d.pdrByUE.Lookup(abi.In6Of(k.prefix.Addr()))
		return byUE, index, had
	}
	t := d.targetAt(k.prefix)
	if t.Kind == uint32(abi.TargetKindTARGET_PDR) {
		return byPrefix, t.Index, true
	}
	return byPrefix, 0, false
}

func (d *DataPlane) targetAt(p netip.Prefix) abi.Target {
	if p.Addr().Is4() {
		return d.target4.Get(abi.LPM4(0, p))
	}
	return d.target6.Get(abi.LPM6(0, p))
}

// planHeads finds an entry for each head.
func (d *DataPlane) planHeads() error {
	p := &d.sessions.plan
	for i := range p.heads {
		h := &p.heads[i]
		h.where, h.index, h.had = d.findHead(h.headKey)
		if h.had {
			if owner := d.sessions.entries[h.index].session; owner != p.slot {
				return fmt.Errorf("%s %w", h.headKey, ErrTaken)
			}
		} else if err := d.newHead(h); err != nil {
			return err
		}
		if h.where == byIndex && h.teid != 0 {
			h.flags |= flagByTEID
		}
	}
	d.joinLink()
	return nil
}

// newHead takes an entry for a head.
func (d *DataPlane) newHead(h *plannedHead) error {
	s := d.sessions
	if h.teid != 0 {
		if slot := s.teids.slotOf(h.teid); slot != 0 && d.isFree(slot) {
			h.where, h.index = byIndex, slot
		}
	}
	switch h.where {
	case byIndex:
		if s.entries[h.index].session != 0 {
			return fmt.Errorf("%s %w", h.headKey, ErrTaken)
		}
		return d.rested(h.index)
	case byPrefix:
		if d.steerings[h.prefix.String()] != nil || d.isLocal(h.prefix) {
			return fmt.Errorf("%s %w: by steering, or by this node", h.headKey, ErrTaken)
		}
	}
	if err := d.roomFor(h.where); err != nil {
		return err
	}
	var err error
	h.index, err = d.takePDR()
	return err
}

// roomFor says whether one more head can be led to so, beside those of the plan.
func (d *DataPlane) roomFor(where way) error {
	name, used := abi.MapPdrByTeid, d.pdrByTEID.Len()
	if where == byUE || where == byLink {
		name, used = abi.MapPdrByUe, d.pdrByUE.Len()
	}
	for i := range d.sessions.plan.heads {
		if h := &d.sessions.plan.heads[i]; h.where == where && !h.had && h.index != 0 {
			used++
		}
	}
	if where != byPrefix && used >= int(d.limits.Sessions) {
		return &table.FullError{Table: name, Max: d.limits.Sessions, Limit: "sessions"}
	}
	return nil
}

// isFree says whether the entry of a TEID is nobody's, nor one that this plan
// has for another TEID.
func (d *DataPlane) isFree(slot uint32) bool {
	for i := range d.sessions.plan.heads {
		if d.sessions.plan.heads[i].index == slot {
			return false
		}
	}
	return d.sessions.entries[slot].session == 0 && !isActive(d.pdr.Load(slot, wordPDRDo))
}

// takePDR is an entry that nothing leads to by itself.
func (d *DataPlane) takePDR() (uint32, error) {
	p := &d.sessions.plan
	index, err := d.takeIndex(&d.sessions.pdrFree)
	if err == nil {
		p.freshPDRs = append(p.freshPDRs, index)
	}
	return index, err
}

// leadTo lets packets find the new heads that are not at an index of their own,
// and lead nowhere yet. On failure none is found.
func (d *DataPlane) leadTo(heads []plannedHead) error {
	for i := range heads {
		h := &heads[i]
		if err := d.keepHead(h); err != nil {
			errs := []error{err}
			for n := range heads[:i] {
				if !heads[n].had {
					errs = append(errs, d.leadNowhere(heads[n].headKey, heads[n].where))
				}
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

// keepHead writes what leads to a head. That is remembered for Sweep also where
// it is there already.
func (d *DataPlane) keepHead(h *plannedHead) error {
	if h.had && !d.sessions.recovering {
		return nil
	}
	switch h.where {
	case byTEID:
		return d.pdrByTEID.Put(h.teid, h.index)
	case byUE:
		if err := d.pdrByUE.Put(abi.In6Of(h.prefix.Addr()), h.index); err != nil {
			return err
		}
		d.countUEs()
	case byLink:
		return d.pdrByUE.Put(linkEntry(h.session), h.index)
	case byPrefix:
		return d.putTarget(h.prefix, abi.Target{Kind: uint32(abi.TargetKindTARGET_PDR), Index: h.index})
	}
	return nil
}

// leadNowhere is the reverse.
func (d *DataPlane) leadNowhere(k headKey, where way) error {
	switch where {
	case byTEID:
		return d.pdrByTEID.Delete(k.teid)
	case byUE:
		err := d.pdrByUE.Delete(abi.In6Of(k.prefix.Addr()))
		d.countUEs()
		return err
	case byLink:
		return d.pdrByUE.Delete(linkEntry(k.session))
	case byPrefix:
		return d.delTarget(k.prefix)
	}
	return nil
}

// countUEs lets packets skip pdr_by_ue while it is empty.
func (d *DataPlane) countUEs() {
	ues := uint32(d.pdrByUE.Len())
	if ues > 1 {
		return
	}
	if (d.settings.Get(0).Ues != 0) != (ues != 0) {
		d.storeSettings(func(s *abi.Settings) { s.Ues = min(ues, 1) })
	}
}

// hideHead takes a head away from packets.
func (d *DataPlane) hideHead(index uint32) error {
	k, ok := d.sessions.keys[index]
	if !ok {
		d.pdr.Store(index, wordPDRDo, inactive(d.pdr.Load(index, wordPDRDo)))
		return nil
	}
	delete(d.sessions.keys, index)
	switch {
	case k.teid != 0:
		return d.leadNowhere(k, byTEID)
	case k.session != 0:
		return d.leadNowhere(k, byLink)
	case isUE(k.prefix):
		return d.leadNowhere(k, byUE)
	}
	return d.leadNowhere(k, byPrefix)
}

// sessionPools are the session pools in the settings, to find slots fast.
type sessionPools struct {
	four []abi.Pool4
	six  []abi.Pool6
}

func sessionPoolsOf(s *abi.Settings) (p sessionPools) {
	for _, e := range s.Pool4 {
		if e.Enabled() && e.Sessions != 0 {
			p.four = append(p.four, e)
		}
	}
	for _, e := range s.Pool6 {
		if e.Enabled() && e.Sessions != 0 {
			p.six = append(p.six, e)
		}
	}
	return p
}

func (d *DataPlane) readSessionPools() {
	if d.sessions != nil {
		now := d.settings.Get(0)
		d.sessions.pools = sessionPoolsOf(&now)
	}
}

// sessionSlot is the entry of pdr that a session pool leads to for a UE; 0 if
// it is in none.
func (d *DataPlane) sessionSlot(p netip.Prefix) uint32 {
	if !isUE(p) {
		return 0
	}
	if p.Addr().Is4() {
		b := p.Addr().As4()
		addr := binary.BigEndian.Uint32(b[:])
		for _, l := range d.sessions.pools.four {
			if addr&l.Mask == l.Prefix {
				return l.Base + addr&^l.Mask
			}
		}
		return 0
	}
	hi, _ := abi.Halves(p.Addr())
	for _, l := range d.sessions.pools.six {
		if hi&l.Mask == l.Hi {
			return l.Base + uint32(hi&^l.Mask)
		}
	}
	return 0
}

// checkUEPools says whether the session pools of s fit, all that go are idle,
// and none that comes has addresses of sessions which are found otherwise.
func (d *DataPlane) checkUEPools(now abi.Settings, s Settings) error {
	if d.sessions == nil {
		if len(s.UEPools) > 0 {
			return fmt.Errorf("UE pool %s: %w", s.UEPools[0], errNoSessions)
		}
		return nil
	}
	next := now
	next.Pool4, next.Pool6 = d.poolsIn(now, s, false)
	kept := sessionPoolsOf(&next)
	next.Pool4, next.Pool6 = d.poolsIn(next, s, true)
	all := sessionPoolsOf(&next)
	for _, p := range s.UEPools {
		if !all.has(p) {
			return fmt.Errorf("UE pool %s: %w", p, &table.FullError{Table: abi.MapPdr, Max: 2 * d.limits.Sessions, Limit: "sessions"})
		}
		if kept.has(p) {
			continue
		}
		for k := range d.pdrByUE.All() {
			if a := netip.AddrFrom16(k.B).Unmap(); !isLinkEntry(k) && p.Contains(a) {
				return fmt.Errorf("UE pool %s: a session has %s, which is found otherwise: release it first", p, a)
			}
		}
	}
	for _, l := range d.sessions.pools.four {
		if !slices.Contains(kept.four, l) && d.poolInUse(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool4(l))
		}
	}
	for _, l := range d.sessions.pools.six {
		if !slices.Contains(kept.six, l) && d.poolInUse(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool6(l))
		}
	}
	return nil
}

func (p *sessionPools) has(want netip.Prefix) bool {
	want = want.Masked()
	return slices.ContainsFunc(p.four, func(l abi.Pool4) bool { return fromPool4(l) == want }) ||
		slices.ContainsFunc(p.six, func(l abi.Pool6) bool { return fromPool6(l) == want })
}

func (d *DataPlane) poolInUse(base, size uint32) bool {
	for i := base; i < base+size; i++ {
		if d.sessions.entries[i].session != 0 {
			return true
		}
	}
	return false
}

func fromPool4(l abi.Pool4) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], l.Prefix)
	return netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(l.Mask))
}

func fromPool6(l abi.Pool6) netip.Prefix {
	return netip.PrefixFrom(abi.FromHalves(l.Hi, 0), bits.OnesCount64(l.Mask))
}
