package lpm

import (
	"iter"
	"maps"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Families are a map for each family.
type Families[V comparable] struct {
	Four *table.Hash[abi.Lpm4Key, V]
	Six  *table.Hash[abi.Lpm6Key, V]
}

func (f Families[V]) put(at At, v V) error {
	if at.Prefix.Addr().Is4() {
		return f.Four.Put(abi.LPM4(at.Table, at.Prefix), v)
	}
	return f.Six.Put(abi.LPM6(at.Table, at.Prefix), v)
}

func (f Families[V]) delete(at At) error {
	if at.Prefix.Addr().Is4() {
		return f.Four.Delete(abi.LPM4(at.Table, at.Prefix))
	}
	return f.Six.Delete(abi.LPM6(at.Table, at.Prefix))
}

// Lookup implements Entries.
func (f Families[V]) Lookup(at At) (V, bool) {
	if at.Prefix.Addr().Is4() {
		return f.Four.Lookup(abi.LPM4(at.Table, at.Prefix))
	}
	return f.Six.Lookup(abi.LPM6(at.Table, at.Prefix))
}

// All implements Entries.
func (f Families[V]) All() iter.Seq2[At, V] { return ofFamilies(f.Four.All(), f.Six.All()) }

// Stale implements Entries.
func (f Families[V]) Stale() iter.Seq2[At, V] {
	return ofFamilies(maps.All(f.Four.Stale()), maps.All(f.Six.Stale()))
}

func ofFamilies[V any](four iter.Seq2[abi.Lpm4Key, V], six iter.Seq2[abi.Lpm6Key, V]) iter.Seq2[At, V] {
	return func(yield func(At, V) bool) {
		for k, v := range four {
			if !yield(At{k.Table, netip.PrefixFrom(abi.FromBE32(k.Addr), int(k.Prefixlen)-32)}, v) {
				return
			}
		}
		for k, v := range six {
			if !yield(At{k.Table, netip.PrefixFrom(netip.AddrFrom16(k.Addr.B), int(k.Prefixlen)-32)}, v) {
				return
			}
		}
	}
}

// Settle implements Entries.
func (f Families[V]) Settle() {
	f.Four.Settle()
	f.Six.Settle()
}

// Mixed is a map of one table, 0, with both families: in the place of the table a key has the
// family, 4 or 6, and an IPv4 address is in the first octets.
type Mixed[V comparable] struct{ *table.Hash[abi.Lpm6Key, V] }

const familyV4, familyV6 = 4, 6

func mixedKey(at At) abi.Lpm6Key {
	p := at.Prefix.Masked()
	k := abi.Lpm6Key{Prefixlen: 32 + uint32(p.Bits()), Table: familyV6}
	if p.Addr().Is4() {
		k.Table = familyV4
	}
	copy(k.Addr.B[:], p.Addr().AsSlice())
	return k
}

func (m Mixed[V]) put(at At, v V) error { return m.Put(mixedKey(at), v) }

func (m Mixed[V]) delete(at At) error { return m.Delete(mixedKey(at)) }

// Lookup implements Entries.
func (m Mixed[V]) Lookup(at At) (V, bool) { return m.Hash.Lookup(mixedKey(at)) }

// All implements Entries.
func (m Mixed[V]) All() iter.Seq2[At, V] { return ofMixed(m.Hash.All()) }

// Stale implements Entries.
func (m Mixed[V]) Stale() iter.Seq2[At, V] { return ofMixed(maps.All(m.Hash.Stale())) }

func ofMixed[V any](all iter.Seq2[abi.Lpm6Key, V]) iter.Seq2[At, V] {
	return func(yield func(At, V) bool) {
		for k, v := range all {
			a := netip.AddrFrom16(k.Addr.B)
			if k.Table == familyV4 {
				a = netip.AddrFrom4([4]byte(k.Addr.B[:4]))
			}
			if !yield(At{Prefix: netip.PrefixFrom(a, int(k.Prefixlen)-32)}, v) {
				return
			}
		}
	}
}
