package settings

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// PoolsIn are the wanted UE pools that are there now, each where it is; if add
// is set, also those that are new, as far as they fit.
func (b *Book) PoolsIn(now *abi.Settings, s *Settings, add bool) ([8]abi.Pool4, [8]abi.Pool6) {
	want4, want6 := b.poolEntries(s)
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
		b.addPools(&out4, &out6, want4, want6, &ranges)
	}
	return out4, out6
}

// poolEntries are the pools that can be found by index, without their ranges.
func (b *Book) poolEntries(s *Settings) (want4 []abi.Pool4, want6 []abi.Pool6) {
	add := func(p netip.Prefix, room, sessions uint32) {
		p = p.Masked()
		if p.Addr().Is4() {
			four := p.Addr().As4()
			e := abi.Pool4{Prefix: binary.BigEndian.Uint32(four[:]), Mask: ^uint32(0) << (32 - p.Bits()), Sessions: sessions}
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
		add(p, 2*b.limits.Sessions, 1)
	}
	for _, p := range s.Pools {
		add(p, b.limits.Tunnels, 0)
	}
	return want4, want6
}

// poolRange is where entries of pools are: in tunnel, or in pdr.
func (b *Book) poolRange(sessions uint32) (first, end uint32) {
	if sessions == 0 {
		return b.limits.Tunnels, 2 * b.limits.Tunnels
	}
	_, first, end = b.limits.PDRRanges()
	return first, end
}

// poolRanges are {base, size} of pools of tunnels, and of sessions.
type poolRanges [2][][2]uint32

func (r *poolRanges) add(sessions, base, size uint32) {
	r[sessions] = append(r[sessions], [2]uint32{base, size})
}

// addPools gives pools ranges of tunnel and pdr, behind those of TEIDs.
func (b *Book) addPools(out4 *[8]abi.Pool4, out6 *[8]abi.Pool6, want4 []abi.Pool4, want6 []abi.Pool6, ranges *poolRanges) {
	room := func(sessions, size uint32) (uint32, bool) {
		first, end := b.poolRange(sessions)
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

// PoolSlot is the entry of tunnel that a UE pool leads to for a prefix; 0 if
// it is not one address (IPv6: /64) of a pool.
func (b *Book) PoolSlot(p netip.Prefix) uint32 {
	s := b.Get()
	if p.Addr().Is4() && p.Bits() == 32 {
		four := p.Addr().As4()
		addr := binary.BigEndian.Uint32(four[:])
		for _, l := range s.Pool4[:s.Pools4] {
			if l.Enabled() && l.Sessions == 0 && addr&l.Mask == l.Prefix && !b.Leaving[l.Base] {
				return l.Base + addr&^l.Mask
			}
		}
	}
	if p.Addr().Is6() && p.Bits() == 64 {
		hi, _ := abi.Halves(p.Addr())
		for _, l := range s.Pool6[:s.Pools6] {
			if l.Enabled() && l.Sessions == 0 && hi&l.Mask == l.Hi && !b.Leaving[l.Base] {
				return l.Base + uint32(hi&^l.Mask)
			}
		}
	}
	return 0
}
