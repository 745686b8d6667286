package adjacency

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// trieRig is a trie beside the routes that it repeats.
type trieRig struct {
	*trie
	t      *testing.T
	rng    *rand.Rand
	routes *table.Hash[abi.Lpm4Key, abi.Route]
}

func newTrieRig(t *testing.T, blocks uint32) *trieRig {
	t.Helper()
	r := &trieRig{t: t, rng: rand.New(rand.NewPCG(7, uint64(blocks))), routes: table.NewHash[abi.Lpm4Key, abi.Route]("route4", 1<<20)}
	r.restart(TrieTables{Roots: table.NewArray[abi.RouteRoot](256), Blocks: table.NewArray[abi.RouteBlock](blocks)})
	return r
}

func (r *trieRig) restart(t TrieTables) { r.trie = newTrie(t, &table.Grace{}, r.routes) }

// walk is walk_routes of bpf/next_hop.h.
func (r *trieRig) walk(number uint32, a netip.Addr) uint32 {
	root := r.Roots.Get(number % r.Roots.Len)
	if root.Table != number {
		return leafAsk
	}
	leaf := root.Leaf
	for _, octet := range a.As4() {
		leaf = r.Blocks.LoadHalf(leaf&^leafMore, int(octet)/2, int(octet)%2)
		if leaf&leafMore == 0 {
			return leaf
		}
	}
	r.t.Fatalf("%s leads to a fifth block", a)
	return 0
}

// want is what the longest prefix says.
func (r *trieRig) want(number uint32, a netip.Addr) uint32 {
	for n := 32; n >= 0; n-- {
		if e, ok := r.routes.Lookup(abi.LPM4(number, prefixOf(a, n))); ok {
			return leafOf(e)
		}
	}
	return 0
}

func prefixOf(a netip.Addr, n int) netip.Prefix { return netip.PrefixFrom(a, n).Masked() }

// address is one of few, so that prefixes lie in each other.
func (r *trieRig) address() netip.Addr {
	some := []byte{0, 1, 7, 8, 127, 128, 255}
	one := func() byte { return some[r.rng.IntN(len(some))] }
	return netip.AddrFrom4([4]byte{one(), one(), one(), one()})
}

// change changes a route of one of three tables, two of which want the same root.
func (r *trieRig) change() {
	number := []uint32{254, 100, 356}[r.rng.IntN(3)]
	r.changeRoute(abi.LPM4(number, prefixOf(r.address(), r.rng.IntN(33))))
}

// changeRoute puts or deletes a route.
func (r *trieRig) changeRoute(k abi.Lpm4Key) {
	_, known := r.routes.Lookup(k)
	if r.rng.IntN(5) < 2 {
		if known {
			must(r.t, r.routes.Delete(k))
			r.delete(k, r.routes)
		}
		return
	}
	e := abi.Route{Count: 1, Adjacency: [7]uint32{1 + r.rng.Uint32N(9)}}
	if r.rng.IntN(6) == 0 {
		e.Count = uint16(r.rng.IntN(2) * 2)
	}
	must(r.t, r.routes.Put(k, e))
	r.put(k, e, !known)
}

// check compares the trie with the routes; it may say to ask where `asks`.
func (r *trieRig) check(asks bool) {
	r.t.Helper()
	for range 300 {
		for _, number := range []uint32{254, 100, 356} {
			a := r.address()
			got, want := r.walk(number, a), r.want(number, a)
			if got != want && (got != leafAsk || !asks && number == 254 && r.tables[number] != nil) {
				r.t.Fatalf("table %d, %s: leaf %#x, want %#x", number, a, got, want)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTrieSaysWhatRoutesSay changes routes at random, restarts now and then, and ends
// with none: then all blocks are free again.
func TestTrieSaysWhatRoutesSay(t *testing.T) {
	for name, blocks := range map[string]uint32{"room": 4096, "no room": 24} {
		t.Run(name, func(t *testing.T) {
			r := newTrieRig(t, blocks)
			for i := range 6000 {
				r.change()
				if i%100 == 0 {
					r.check(blocks < 100)
				}
				if i%1000 == 999 {
					before := slices.Clone(r.Blocks.Words(1)[:128*int(blocks-1)])
					r.restart(r.TrieTables)
					r.check(blocks < 100)
					if blocks > 100 && !slices.Equal(before, r.Blocks.Words(1)[:128*int(blocks-1)]) {
						t.Fatal("a restart changed blocks")
					}
				}
			}
			for k := range maps.Collect(r.routes.All()) {
				must(t, r.routes.Delete(k))
				r.delete(k, r.routes)
			}
			if used := r.indexes.Used(); used != 0 || len(r.tables) != 0 {
				t.Errorf("%d blocks and %d tables are left of no route", used, len(r.tables))
			}
		})
	}
}

// TestTrieOfAnEarlierDaemon finds leaves that no route stands for, as when the
// daemon ended between the tables.
func TestTrieOfAnEarlierDaemon(t *testing.T) {
	r := newTrieRig(t, 4096)
	for range 500 {
		r.change()
	}
	gone := maps.Collect(r.routes.All())
	for k := range gone {
		if k.Table == 254 && r.rng.IntN(2) == 0 {
			must(t, r.routes.Delete(k))
		}
	}
	r.restart(r.TrieTables)
	r.check(false)
	r.Blocks.StoreHalf(1, 4, 0, leafMore|1) // a circle
	r.Blocks.StoreHalf(1, 4, 1, leafMore|5000)
	r.restart(r.TrieTables)
	r.check(false)
}

// TestTrieLeadsToOldOrNew looks at addresses after each word that a change writes.
func TestTrieLeadsToOldOrNew(t *testing.T) {
	r := newTrieRig(t, 4096)
	for range 400 {
		r.change()
	}
	addresses := make([]netip.Addr, 10)
	old := make([]uint32, len(addresses))
	for range 4000 {
		p := prefixOf(r.address(), r.rng.IntN(33))
		for i := range addresses {
			addresses[i] = r.address()
			if i%2 == 0 {
				addresses[i] = p.Addr()
			}
			old[i] = r.walk(254, addresses[i])
		}
		seen := make([]map[uint32]bool, len(addresses))
		r.Blocks.Stored = func() {
			for i, a := range addresses {
				if seen[i] == nil {
					seen[i] = map[uint32]bool{}
				}
				seen[i][r.walk(254, a)] = true
			}
		}
		r.changeRoute(abi.LPM4(254, p))
		r.Blocks.Stored = nil
		for i, a := range addresses {
			for leaf := range seen[i] {
				if now := r.walk(254, a); leaf != old[i] && leaf != now {
					t.Fatalf("%s led to %#x between %#x and %#x", a, leaf, old[i], now)
				}
			}
		}
	}
}
