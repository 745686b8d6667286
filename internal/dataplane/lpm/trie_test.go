package lpm

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// rig is a table beside the trie that repeats it.
type rig struct {
	*Table[uint32]
	t    *testing.T
	rng  *rand.Rand
	kind uint32
	in   Families[uint32]
}

// numbers are tables two of which want the same root.
var numbers = []uint32{254, 100, 100 + uint32(abi.TrieLeafTRIE_ROOTS)}

func newRig(t *testing.T, kind, blocks uint32) *rig {
	t.Helper()
	r := &rig{
		t: t, rng: rand.New(rand.NewPCG(7, uint64(blocks))), kind: kind,
		in: Families[uint32]{table.NewHash[abi.Lpm4Key, uint32]("four", 1<<20), table.NewHash[abi.Lpm6Key, uint32]("six", 1<<20)},
	}
	r.restart(TrieTables{Roots: table.NewArray[abi.TrieRoot](uint32(abi.TrieLeafTRIE_ROOTS)), Blocks: table.NewArray[abi.TrieBlock](blocks)})
	return r
}

func (r *rig) restart(t TrieTables) {
	trie := OpenTrie(t, &table.Grace{})
	r.Table = New(r.in, trie, r.kind, func(v uint32) uint32 { return v }, func() {})
	trie.Settle()
}

// walk is walk_trie of bpf/trie.h.
func (r *rig) walk(number uint32, a netip.Addr) uint32 {
	known := r.number(At{number, prefixOf(a, 0)})
	root := r.trie.Roots.Get(slotOf(known))
	if root.Table != known {
		return leafAsk
	}
	leaf := root.Leaf
	for _, octet := range pathOf(a) {
		leaf = r.trie.Blocks.LoadHalf(leaf&^leafMore, int(octet)/2, int(octet)%2)
		if leaf&leafMore == 0 {
			return leaf
		}
	}
	r.t.Fatalf("%s leads to one block more", a)
	return 0
}

// want is what the longest prefix says.
func (r *rig) want(number uint32, a netip.Addr) uint32 {
	_, leaf := r.shorter(At{number, prefixOf(a, a.BitLen())}, a.BitLen())
	return leaf
}

// mayAsk says whether a longer prefix is near an address than the trie repeats.
func (r *rig) mayAsk(number uint32, a netip.Addr) bool {
	for at := range r.All() {
		if at.Table == number && at.Prefix.Bits() > longest && prefixOf(at.Prefix.Addr(), longest).Contains(a) {
			return true
		}
	}
	return false
}

func prefixOf(a netip.Addr, n int) netip.Prefix { return netip.PrefixFrom(a, n).Masked() }

// address is one of few, so that prefixes lie in each other.
func (r *rig) address() netip.Addr {
	some := []byte{0, 1, 7, 8, 127, 128, 255}
	a := make([]byte, []int{4, 16}[r.rng.IntN(2)])
	for i := range a {
		if i < 4 || i > 5 && i < 9 {
			a[i] = some[r.rng.IntN(len(some))]
		}
	}
	out, _ := netip.AddrFromSlice(a)
	return out
}

// change changes an entry.
func (r *rig) change() {
	a := r.address()
	r.changeAt(At{numbers[r.rng.IntN(len(numbers))], prefixOf(a, r.rng.IntN(a.BitLen()+1))})
}

// changeAt puts an entry or deletes it.
func (r *rig) changeAt(at At) {
	if r.rng.IntN(5) < 2 {
		must(r.t, r.Delete(at))
		return
	}
	v := 1 + r.rng.Uint32N(9)
	if r.rng.IntN(6) == 0 {
		v = leafAsk
	}
	must(r.t, r.Put(at, v))
}

// check compares the trie with the table; it may say to ask where there is no room.
func (r *rig) check(room bool) {
	r.t.Helper()
	asks := 0
	for range 300 {
		for _, number := range numbers {
			a := r.address()
			got, want := r.walk(number, a), r.want(number, a)
			if got == leafAsk && want != leafAsk {
				asks++
			}
			mayAsk := !room || number != 254 || r.trie.tables[r.number(At{number, prefixOf(a, 0)})] == nil || r.mayAsk(number, a)
			if got != want && (got != leafAsk || !mayAsk) {
				r.t.Fatalf("table %d, %s: leaf %#x, want %#x", number, a, got, want)
			}
		}
	}
	if asks == 900 {
		r.t.Fatal("the trie says nothing")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTrieSaysWhatTheTableSays changes entries at random, restarts now and then, and ends
// with none: then all blocks are free again.
func TestTrieSaysWhatTheTableSays(t *testing.T) {
	for name, blocks := range map[string]uint32{"room": 1 << 14, "no room": 24} {
		t.Run(name, func(t *testing.T) {
			r, room := newRig(t, uint32(abi.TrieTableTRIE_TARGETS), blocks), blocks > 100
			for i := range 6000 {
				r.change()
				if i%100 == 0 {
					r.check(room)
				}
				if i%1000 == 999 {
					before := slices.Clone(r.trie.Blocks.Words(1)[:128*int(blocks-1)])
					r.restart(r.trie.TrieTables)
					r.check(room)
					if room && !slices.Equal(before, r.trie.Blocks.Words(1)[:128*int(blocks-1)]) {
						t.Fatal("a restart changed blocks")
					}
				}
			}
			for at := range maps.Collect(r.All()) {
				must(t, r.Delete(at))
			}
			if used := r.trie.indexes.Used(); used != 0 || len(r.trie.tables) != 0 {
				t.Errorf("%d blocks and %d tables are left of no entry", used, len(r.trie.tables))
			}
		})
	}
}

// TestTrieOfAnEarlierDaemon finds leaves that no entry stands for, as when the
// daemon ended between the tables.
func TestTrieOfAnEarlierDaemon(t *testing.T) {
	r := newRig(t, 0, 1<<14)
	for range 500 {
		r.change()
	}
	for at := range maps.Collect(r.All()) {
		if at.Table == 254 && r.rng.IntN(2) == 0 {
			must(t, r.in.delete(at))
		}
	}
	r.restart(r.trie.TrieTables)
	r.check(true)
	r.trie.Blocks.StoreHalf(1, 4, 0, leafMore|1) // a circle
	r.trie.Blocks.StoreHalf(1, 4, 1, leafMore|1<<20)
	r.restart(r.trie.TrieTables)
	r.check(true)
}

// TestTrieLeadsToOldOrNew looks at addresses after each word that a change writes.
func TestTrieLeadsToOldOrNew(t *testing.T) {
	r := newRig(t, 0, 1<<14)
	for range 400 {
		r.change()
	}
	addresses := make([]netip.Addr, 10)
	old := make([]uint32, len(addresses))
	for range 4000 {
		a := r.address()
		p := prefixOf(a, r.rng.IntN(a.BitLen()+1))
		for i := range addresses {
			addresses[i] = r.address()
			if i%2 == 0 {
				addresses[i] = p.Addr()
			}
			old[i] = r.walk(254, addresses[i])
		}
		seen := make([]map[uint32]bool, len(addresses))
		r.trie.Blocks.Stored = func() {
			for i, a := range addresses {
				if seen[i] == nil {
					seen[i] = map[uint32]bool{}
				}
				seen[i][r.walk(254, a)] = true
			}
		}
		r.changeAt(At{254, p})
		r.trie.Blocks.Stored = nil
		for i, a := range addresses {
			for leaf := range seen[i] {
				if now := r.walk(254, a); leaf != old[i] && leaf != now {
					t.Fatalf("%s led to %#x between %#x and %#x", a, leaf, old[i], now)
				}
			}
		}
	}
}
