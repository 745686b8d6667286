package adjacency

import (
	"cmp"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// trie repeats route4 as blocks of 256 leaves, one for each octet of an address. A
// packet walks it in as many loads as the longest prefix near its destination has
// octets. Each leaf is written whole, so a packet sees the next hop of before or of
// after. Where there is no room the leaf says to look into route4.
type trie struct {
	TrieTables
	indexes *table.Indexes
	tables  map[uint32]*routing
}

// TrieTables are the arrays of a trie.
type TrieTables struct {
	Roots  *table.Array[abi.RouteRoot]  `map:"route_root"`
	Blocks *table.Array[abi.RouteBlock] `map:"route_block"`
}

// routing is a routing table: without a root packets look into route4.
type routing struct {
	root   *block
	routes int
}

// block is a block with, for each leaf, 1 + the length of the prefix that it has its
// value from; 0: of none.
type block struct {
	index uint32
	bits  [256]uint8
	leaf  [256]uint32
	child [256]*block
}

const (
	leafMore = uint32(abi.RouteLeafLEAF_MORE)
	leafAsk  = uint32(abi.RouteLeafLEAF_ASK)
	// noRoom is the length of what says to ask for want of a block: no prefix
	// replaces it.
	noRoom = 255
)

// newTrie adopts what an earlier daemon left, and makes it repeat all: what is right
// already stays as it is.
func newTrie(t TrieTables, grace *table.Grace, all *table.Hash[abi.Lpm4Key, abi.Route]) *trie {
	r := &trie{TrieTables: t, tables: map[uint32]*routing{}, indexes: table.NewIndexes(grace, abi.MapRouteBlock, "routes", 1, t.Blocks.Len)}
	taken := map[uint32]bool{}
	for slot := range t.Roots.Len {
		e := t.Roots.Get(slot)
		if root := r.read(e.Leaf&^leafMore, 0, taken); root != nil && slotOf(e.Table) == slot {
			r.tables[e.Table] = &routing{root: root}
		} else {
			t.Roots.Change(slot, 0, 0)
		}
	}
	r.indexes.Restore(taken)
	var keys []abi.Lpm4Key
	for k := range all.All() {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b abi.Lpm4Key) int { return cmp.Compare(a.Prefixlen, b.Prefixlen) })
	for _, k := range keys {
		r.put(k, all.Get(k), true)
	}
	for number, rt := range r.tables {
		if rt.root != nil {
			r.forgetStale(rt.root)
		}
		r.tidy(number, rt)
	}
	return r
}

// read is a block that the data path may see, and those below; nil: it is none.
func (r *trie) read(index uint32, depth int, taken map[uint32]bool) *block {
	if index == 0 || index >= r.Blocks.Len || depth > 3 || taken[index] {
		return nil
	}
	taken[index] = true
	b := &block{index: index, leaf: r.Blocks.Get(index).Leaf}
	for i, leaf := range b.leaf {
		if leaf&leafMore != 0 {
			if b.child[i] = r.read(leaf&^leafMore, depth+1, taken); b.child[i] == nil {
				r.store(b, i, 0)
			}
		}
	}
	return b
}

// forgetStale clears what no route stands for.
func (r *trie) forgetStale(b *block) {
	for i := range b.leaf {
		if b.child[i] != nil {
			r.forgetStale(b.child[i])
		} else if b.bits[i] == 0 {
			r.store(b, i, 0)
		}
	}
}

func slotOf(table uint32) uint32 { return table % uint32(abi.RouteLeafROUTE_ROOTS) }

// leafOf is a route as a leaf: its next hop, if it has one.
func leafOf(e abi.Route) uint32 {
	if e.Count == 1 {
		return e.Adjacency[0]
	}
	return leafAsk
}

// put repeats a route; fresh: the table does not have it yet.
func (r *trie) put(k abi.Lpm4Key, e abi.Route, fresh bool) {
	rt := r.tables[k.Table]
	if rt == nil {
		rt = &routing{root: r.newRoot(k.Table)}
		r.tables[k.Table] = rt
	}
	if fresh {
		rt.routes++
	}
	if rt.root != nil {
		r.set(rt.root, pathOf(k), length(k), leafOf(e), 0)
	}
}

// newRoot is the first block of a table; nil: there is no room.
func (r *trie) newRoot(number uint32) *block {
	if r.Roots.Load(slotOf(number), 0) != 0 {
		return nil
	}
	b := r.newBlock(0, 0)
	if b != nil {
		r.Roots.Put(slotOf(number), &abi.RouteRoot{Table: number, Leaf: b.index | leafMore})
	}
	return b
}

// newBlock is one whose leaves all have the same value; nil: there is no room.
func (r *trie) newBlock(bits uint8, leaf uint32) *block {
	index, err := r.indexes.Alloc()
	if err != nil {
		return nil
	}
	b := &block{index: index}
	for i := range b.leaf {
		b.bits[i], b.leaf[i] = bits, leaf
	}
	r.Blocks.Put(index, &abi.RouteBlock{Leaf: b.leaf})
	return b
}

func length(k abi.Lpm4Key) int { return int(k.Prefixlen) - 32 }

func pathOf(k abi.Lpm4Key) [4]byte { return abi.FromBE32(k.Addr).As4() }

// span are the leaves of a block at a depth that a prefix has.
func span(path [4]byte, length, depth int) (first, end int) {
	rest := max(0, 8*(depth+1)-length)
	first = int(path[depth]) >> rest << rest
	return first, first + 1<<rest
}

// set gives a value to the leaves that a prefix has and no longer one does.
func (r *trie) set(b *block, path [4]byte, length int, leaf uint32, depth int) {
	if length > 8*(depth+1) {
		i := int(path[depth])
		if b.child[i] == nil && !r.grow(b, i) {
			return
		}
		r.set(b.child[i], path, length, leaf, depth+1)
		return
	}
	first, end := span(path, length, depth)
	r.assign(b, first, end, func(bits uint8) bool { return bits <= uint8(length)+1 }, uint8(length)+1, leaf)
}

// assign gives a value to the leaves in a range, and to all below, of which is
// tells true.
func (r *trie) assign(b *block, first, end int, is func(bits uint8) bool, bits uint8, leaf uint32) {
	for i := first; i < end; i++ {
		if b.child[i] != nil {
			r.assign(b.child[i], 0, 256, is, bits, leaf)
		} else if is(b.bits[i]) {
			b.bits[i] = bits
			r.store(b, i, leaf)
		}
	}
}

// grow puts a block below a leaf; false: there is no room.
func (r *trie) grow(b *block, i int) bool {
	if b.bits[i] == noRoom {
		return false
	}
	child := r.newBlock(b.bits[i], b.leaf[i])
	if child == nil {
		b.bits[i] = noRoom
		r.store(b, i, leafAsk)
		return false
	}
	b.child[i] = child
	r.store(b, i, child.index|leafMore)
	return true
}

func (r *trie) store(b *block, i int, leaf uint32) {
	if b.leaf[i] != leaf {
		b.leaf[i] = leaf
		r.Blocks.StoreHalf(b.index, i/2, i%2, leaf)
	}
}

// delete gives the leaves of a route that is gone to the next shorter one in all.
func (r *trie) delete(k abi.Lpm4Key, all *table.Hash[abi.Lpm4Key, abi.Route]) {
	rt := r.tables[k.Table]
	if rt == nil {
		return
	}
	rt.routes--
	if rt.root != nil {
		bits, leaf := shorter(k, all)
		r.unset(rt.root, pathOf(k), length(k), bits, leaf, 0)
	}
	r.tidy(k.Table, rt)
}

// shorter is the longest route that contains another: 1 + its length, and its leaf.
func shorter(k abi.Lpm4Key, all *table.Hash[abi.Lpm4Key, abi.Route]) (bits uint8, leaf uint32) {
	a := abi.FromBE32(k.Addr)
	for n := length(k) - 1; n >= 0; n-- {
		p, err := a.Prefix(n)
		if err != nil {
			return 0, 0
		}
		if e, ok := all.Lookup(abi.LPM4(k.Table, p)); ok {
			return uint8(n) + 1, leafOf(e)
		}
	}
	return 0, 0
}

// unset undoes set, and gives up blocks that tell nothing of their own.
func (r *trie) unset(b *block, path [4]byte, length int, bits uint8, leaf uint32, depth int) {
	if length <= 8*(depth+1) {
		first, end := span(path, length, depth)
		r.assign(b, first, end, func(was uint8) bool { return was == uint8(length)+1 }, bits, leaf)
		return
	}
	i := int(path[depth])
	child := b.child[i]
	if child == nil {
		return
	}
	r.unset(child, path, length, bits, leaf, depth+1)
	for n := range child.bits {
		if child.child[n] != nil || int(child.bits[n]) > 8*(depth+1)+1 {
			return
		}
	}
	b.child[i], b.bits[i] = nil, child.bits[0]
	r.store(b, i, child.leaf[0])
	r.indexes.Retire(child.index)
}

// tidy gives up a table without routes.
func (r *trie) tidy(number uint32, rt *routing) {
	if rt.routes > 0 {
		return
	}
	if rt.root != nil {
		r.Roots.Put(slotOf(number), &abi.RouteRoot{})
		r.retire(rt.root)
	}
	delete(r.tables, number)
}

// retire gives up a block and those below.
func (r *trie) retire(b *block) {
	for _, child := range b.child {
		if child != nil {
			r.retire(child)
		}
	}
	r.indexes.Retire(b.index)
}
