package dataplane

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// checkUEPools says whether the session pools of s fit, all that go are idle,
// and none that comes has addresses of sessions which are found otherwise.
func (d *DataPlane) checkUEPools(now abi.Settings, s settings.Settings) error {
	if !d.Sessions.room {
		if len(s.UEPools) > 0 {
			return fmt.Errorf("UE pool %s: %w", s.UEPools[0], errNoSessions)
		}
		return nil
	}
	next := now
	next.Pool4, next.Pool6 = d.settings.PoolsIn(&now, &s, false)
	kept := sessionPoolsOf(&next)
	next.Pool4, next.Pool6 = d.settings.PoolsIn(&next, &s, true)
	all := sessionPoolsOf(&next)
	for _, p := range s.UEPools {
		if !all.has(p) {
			return fmt.Errorf("UE pool %s: %w", p, &table.FullError{Table: abi.MapPdr, Max: 2 * d.limits.Sessions, Limit: "sessions"})
		}
		if kept.has(p) {
			continue
		}
		for k := range d.Sessions.tables.ues.All() {
			if a := netip.AddrFrom16(k.B).Unmap(); !isLinkEntry(k) && p.Contains(a) {
				return fmt.Errorf("UE pool %s: a session has %s, which is found otherwise: release it first", p, a)
			}
		}
	}
	for _, l := range d.Sessions.tables.pools.four {
		if !slices.Contains(kept.four, l) && d.Sessions.hasAnyOf(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool4(l))
		}
	}
	for _, l := range d.Sessions.tables.pools.six {
		if !slices.Contains(kept.six, l) && d.Sessions.hasAnyOf(l.Base, l.Size()) {
			return fmt.Errorf("UE pool %s: sessions have addresses of it: release them first", fromPool6(l))
		}
	}
	return nil
}

// hasAnyOf says whether a session has an entry of a range of pdr.
func (s *Sessions) hasAnyOf(base, size uint32) bool {
	return slices.ContainsFunc(s.owners.entries[base:base+size], func(e owner) bool { return e.session != 0 })
}

func fromPool4(l abi.Pool4) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], l.Prefix)
	return netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(l.Mask))
}

func fromPool6(l abi.Pool6) netip.Prefix {
	return netip.PrefixFrom(abi.FromHalves(l.Hi, 0), bits.OnesCount64(l.Mask))
}
