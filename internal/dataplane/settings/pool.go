package settings

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Pool is a UE pool: of the UEs whose key has its bits, each has an entry behind
// Base. The key of a UE is its IPv4 address, or the first half of its IPv6 address.
// The zero Pool has no UE.
type Pool struct {
	IPv4      bool
	Key, Mask uint64
	Base      uint32
	Sessions  uint32 // 1: the entries are those of pdr; 0: of tunnel
}

// Pools are the IPv4 pools of settings and behind them those of IPv6, each in its
// place.
type Pools [16]Pool

// PoolsOf are those of an entry.
func PoolsOf(e *abi.Settings) (out Pools) {
	for i, p := range e.Pool4 {
		if p.Mask != 0 && (p.Prefix != off4 || p.Mask != off4) {
			out[i] = Pool{true, uint64(p.Prefix), ^uint64(^p.Mask), p.Base, p.Sessions}
		}
	}
	for i, p := range e.Pool6 {
		if p.Mask != 0 && p.Hi != abi.Off {
			out[len(e.Pool4)+i] = Pool{false, p.Hi, p.Mask, p.Base, p.Sessions}
		}
	}
	return out
}

// off4 is the prefix and the mask of an IPv4 pool that matches nothing. They
// share one word.
const off4 = ^uint32(0)

// Size is the number of entries that the pool leads to.
func (p Pool) Size() uint32 { return uint32(^p.Mask + 1) }

// Prefix is the prefix of the UEs' addresses.
func (p Pool) Prefix() netip.Prefix {
	if p.IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(p.Key))
		return netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount64(p.Mask)-32)
	}
	return netip.PrefixFrom(abi.FromHalves(p.Key, 0), bits.OnesCount64(p.Mask))
}

// keyOf is the key of an address, and how many bits it has.
func keyOf(a netip.Addr) (key uint64, bits int) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])), 32
	}
	key, _ = abi.Halves(a)
	return key, 64
}

// SlotIn is the entry that pools lead to for a UE; 0 if it is not one address
// (IPv6: /64) of a pool.
func SlotIn(pools []Pool, ue netip.Prefix) uint32 {
	key, bits := keyOf(ue.Addr())
	if ue.Bits() != bits {
		return 0
	}
	for i := range pools {
		if p := &pools[i]; p.Mask != 0 && p.IPv4 == (bits == 32) && key&p.Mask == p.Key {
			return p.Base + uint32(key&^p.Mask)
		}
	}
	return 0
}

// PoolsIn are the wanted UE pools that are there now, each where it is; if add
// is set, also those that are new, as far as they fit.
func (b *Book) PoolsIn(now Pools, s *Settings, add bool) Pools {
	want := b.wantedPools(s)
	var ranges [2][][2]uint32 // {base, size} in tunnel, and in pdr
	for i, p := range now {
		base := p.Base
		p.Base = 0
		if n := slices.Index(want, p); p.Mask != 0 && n >= 0 {
			want = slices.Delete(want, n, n+1)
			ranges[p.Sessions] = append(ranges[p.Sessions], [2]uint32{base, p.Size()})
		} else {
			now[i] = Pool{}
		}
	}
	if !add {
		return now
	}
	for i := range now {
		isNext := func(p Pool) bool { return p.IPv4 == (i < len(now)/2) }
		for n := slices.IndexFunc(want, isNext); now[i].Mask == 0 && n >= 0; n = slices.IndexFunc(want, isNext) {
			p := want[n]
			want = slices.Delete(want, n, n+1)
			first, end := b.limits.Tunnels, 2*b.limits.Tunnels // behind the entries of TEIDs
			if p.Sessions != 0 {
				_, first, end = b.limits.PDRRanges()
			}
			if base, ok := fit(ranges[p.Sessions], p.Size(), first, end); ok {
				ranges[p.Sessions] = append(ranges[p.Sessions], [2]uint32{base, p.Size()})
				p.Base = base
				now[i] = p
			}
		}
	}
	return now
}

// wantedPools are the pools that can be found by index, without their ranges.
func (b *Book) wantedPools(s *Settings) (want []Pool) {
	add := func(p netip.Prefix, room, sessions uint32) {
		key, bits := keyOf(p.Masked().Addr())
		host := bits - p.Bits()
		if host >= 0 && host < bits && uint64(1)<<host <= uint64(room) {
			want = append(want, Pool{bits == 32, key, ^uint64(0) << host, 0, sessions})
		}
	}
	for _, p := range s.UEPools {
		add(p, 2*b.limits.Sessions, 1)
	}
	for _, p := range s.Pools {
		add(p, b.limits.Tunnels, 0)
	}
	return want
}

// PoolSlot is the entry of tunnel that a UE pool leads to for a prefix; 0 if
// it is not one address (IPv6: /64) of a pool.
func (b *Book) PoolSlot(p netip.Prefix) uint32 {
	now := b.Get()
	pools := PoolsOf(&now)
	for i, p := range pools {
		if p.Sessions != 0 || b.Leaving[p.Base] {
			pools[i] = Pool{}
		}
	}
	return SlotIn(pools[:], p)
}

// MovePools gives the UE pools of an entry whose UEs have sessions (1), or none (0), other
// bases. A pool of base 0 goes.
func MovePools(e *abi.Settings, sessions uint32, base func(Pool) uint32) {
	r := RangesOf(e)
	for i, p := range r.Pools {
		if p.Mask == 0 || p.Sessions != sessions {
			continue
		}
		if r.Pools[i].Base = base(p); r.Pools[i].Base == 0 {
			r.Pools[i] = Pool{}
		}
	}
	r.PutIn(e)
}

// ForgetSessions takes out of an entry what is there for sessions.
func ForgetSessions(e *abi.Settings) {
	MovePools(e, 1, func(Pool) uint32 { return 0 })
	e.PdrSlots, e.TeidFold, e.PdrBeside, e.Ues = 0, 0, 0, 0
	for i := range e.Nat {
		e.Nat[i] = noNAT
	}
}
