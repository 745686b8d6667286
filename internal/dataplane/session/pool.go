package session

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// pools are the UE pools of sessions in the settings.
type pools struct {
	four []abi.Pool4
	six  []abi.Pool6
}

func poolsOf(s *abi.Settings) (p pools) {
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

// slotOf is the index of pdr that a pool has for a UE; 0: no pool has it.
func (p *pools) slotOf(ue netip.Prefix) uint32 {
	if !isUE(ue) {
		return 0
	}
	if ue.Addr().Is4() {
		b := ue.Addr().As4()
		addr := binary.BigEndian.Uint32(b[:])
		for _, l := range p.four {
			if addr&l.Mask == l.Prefix {
				return l.Base + addr&^l.Mask
			}
		}
		return 0
	}
	hi, _ := abi.Halves(ue.Addr())
	for _, l := range p.six {
		if hi&l.Mask == l.Hi {
			return l.Base + uint32(hi&^l.Mask)
		}
	}
	return 0
}

func (p *pools) has(want netip.Prefix) bool {
	want = want.Masked()
	return slices.ContainsFunc(p.four, func(l abi.Pool4) bool { return fromPool4(l) == want }) ||
		slices.ContainsFunc(p.six, func(l abi.Pool6) bool { return fromPool6(l) == want })
}

// SetPools has packets' UE pools in mind, as the settings have them now.
func (s *Sessions) SetPools(now *abi.Settings) { s.tables.pools = poolsOf(now) }

// CheckPools says whether the UE pools of sessions can become those that are
// wanted: all are in the next settings, sessions have no address of those that
// are not kept, and none of those that are new by another lookup.
func (s *Sessions) CheckPools(want []netip.Prefix, kept, next *abi.Settings) error {
	if !s.room {
		if len(want) > 0 {
			return fmt.Errorf("UE pool %s: %w", want[0], ErrNone)
		}
		return nil
	}
	stay, all := poolsOf(kept), poolsOf(next)
	for _, p := range want {
		if !all.has(p) {
			return fmt.Errorf("UE pool %s: %w", p, &table.FullError{Table: abi.MapPdr, Max: 2 * s.owners.most, Limit: "sessions"})
		}
		if stay.has(p) {
			continue
		}
		for k := range s.tables.ues.All() {
			if a := netip.AddrFrom16(k.B).Unmap(); !isLinkEntry(k) && p.Contains(a) {
				return fmt.Errorf("UE pool %s: a session has %s, which is found otherwise: release it first", p, a)
			}
		}
	}
	for _, l := range s.tables.pools.four {
		if !slices.Contains(stay.four, l) && s.owners.inUse(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool4(l))
		}
	}
	for _, l := range s.tables.pools.six {
		if !slices.Contains(stay.six, l) && s.owners.inUse(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool6(l))
		}
	}
	return nil
}

// inUse says whether a session has an entry of a range of pdr.
func (o *owners) inUse(base, size uint32) bool {
	return slices.ContainsFunc(o.entries[base:base+size], func(e owner) bool { return e.session != 0 })
}

func fromPool4(l abi.Pool4) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], l.Prefix)
	return netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(l.Mask))
}

func fromPool6(l abi.Pool6) netip.Prefix {
	return netip.PrefixFrom(abi.FromHalves(l.Hi, 0), bits.OnesCount64(l.Mask))
}
