package dataplane

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// poolsIn are the wanted UE pools that are there now, each where it is; if add
// is set, also those that are new, as far as they fit.
func (d *DataPlane) poolsIn(now abi.Settings, s Settings, add bool) ([8]abi.Pool4, [8]abi.Pool6) {
	want4, want6 := d.poolEntries(s)
	out4, out6 := now.Pool4, now.Pool6
	var ranges poolRanges
	for i, p := range out4 {
		base := p.Base
		p.Base = 0
		if n := slices.Index(want4, p); p.Enabled() && n >= 0 {
			want4 = slices.Delete(want4, n, n+1)
			ranges.add(p.Sessions, base, p.Size())
		} else {
			out4[i] = abi.Pool4{Prefix: abi.Off4, Mask: abi.Off4}
		}
	}
	for i, p := range out6 {
		base := p.Base
		p.Base = 0
		if n := slices.Index(want6, p); p.Enabled() && n >= 0 {
			want6 = slices.Delete(want6, n, n+1)
			ranges.add(p.Sessions, base, p.Size())
		} else {
			out6[i] = abi.Pool6{Hi: abi.Off}
		}
	}
	if add {
		d.addPools(&out4, &out6, want4, want6, &ranges)
	}
	return out4, out6
}

// poolEntries are the pools that can be found by index, without their ranges.
func (d *DataPlane) poolEntries(s Settings) (want4 []abi.Pool4, want6 []abi.Pool6) {
	add := func(p netip.Prefix, room, sessions uint32) {
		p = p.Masked()
		if p.Addr().Is4() {
			b := p.Addr().As4()
			e := abi.Pool4{Prefix: binary.BigEndian.Uint32(b[:]), Mask: ^uint32(0) << (32 - p.Bits()), Sessions: sessions}
			if p.Bits() > 0 && e.Size() <= room {
				want4 = append(want4, e)
			}
			return
		}
		hi, _ := abi.Halves(p.Addr())
		if n := p.Bits(); n > 0 && n <= 64 && uint64(1)<<(64-n) <= uint64(room) {
			want6 = append(want6, abi.Pool6{Hi: hi, Mask: abi.Ones(n), Sessions: sessions})
		}
	}
	for _, p := range s.UEPools {
		add(p, 2*d.limits.Sessions, 1)
	}
	for _, p := range s.Pools {
		add(p, d.limits.Tunnels, 0)
	}
	return want4, want6
}

// poolRange is where entries of pools are: in tunnel, or in pdr.
func (d *DataPlane) poolRange(sessions uint32) (first, end uint32) {
	if sessions == 0 {
		return d.limits.Tunnels, 2 * d.limits.Tunnels
	}
	_, first, end = d.limits.pdrRanges()
	return first, end
}

// poolRanges are {base, size} of pools of tunnels, and of sessions.
type poolRanges [2][][2]uint32

func (r *poolRanges) add(sessions, base, size uint32) {
	r[sessions] = append(r[sessions], [2]uint32{base, size})
}

// addPools gives pools ranges of tunnel and pdr, behind those of TEIDs.
func (d *DataPlane) addPools(out4 *[8]abi.Pool4, out6 *[8]abi.Pool6, want4 []abi.Pool4, want6 []abi.Pool6, ranges *poolRanges) {
	room := func(sessions, size uint32) (uint32, bool) {
		first, end := d.poolRange(sessions)
		base, ok := fit(ranges[sessions], size, first, end)
		if ok {
			ranges.add(sessions, base, size)
		}
		return base, ok
	}
	for i := range out4 {
		for !out4[i].Enabled() && len(want4) > 0 {
			e := want4[0]
			want4 = want4[1:]
			if base, ok := room(e.Sessions, e.Size()); ok {
				e.Base = base
				out4[i] = e
			}
		}
	}
	for i := range out6 {
		for !out6[i].Enabled() && len(want6) > 0 {
			e := want6[0]
			want6 = want6[1:]
			if base, ok := room(e.Sessions, e.Size()); ok {
				e.Base = base
				out6[i] = e
			}
		}
	}
}

// poolSlot is the entry of tunnel that a UE pool leads to for a prefix; 0 if
// it is not one address (IPv6: /64) of a pool.
func (d *DataPlane) poolSlot(p netip.Prefix) uint32 {
	s := d.settings.Get(0)
	if p.Addr().Is4() && p.Bits() == 32 {
		b := p.Addr().As4()
		addr := binary.BigEndian.Uint32(b[:])
		for _, l := range s.Pool4[:s.Pools4] {
			if l.Enabled() && l.Sessions == 0 && addr&l.Mask == l.Prefix && !d.leaving[l.Base] {
				return l.Base + addr&^l.Mask
			}
		}
	}
	if p.Addr().Is6() && p.Bits() == 64 {
		hi, _ := abi.Halves(p.Addr())
		for _, l := range s.Pool6[:s.Pools6] {
			if l.Enabled() && l.Sessions == 0 && hi&l.Mask == l.Hi && !d.leaving[l.Base] {
				return l.Base + uint32(hi&^l.Mask)
			}
		}
	}
	return 0
}

// checkUEPools says whether the session pools of s fit, all that go are idle,
// and none that comes has addresses of sessions which are found otherwise.
func (d *DataPlane) checkUEPools(now abi.Settings, s Settings) error {
	if !d.Sessions.room {
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
