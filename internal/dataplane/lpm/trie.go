package lpm

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Trie repeats tables of prefixes as blocks of 256 leaves, one for each octet of an
// address. A packet walks it in as many loads as the longest prefix near its destination
// has octets. Each leaf is written whole, so a packet sees what was true before or after.
// Where there is no room, and where an IPv6 prefix is longer than 64 bits, the leaf says
// to ask the table itself.
type Trie struct {
	TrieTables
	indexes *table.Indexes
	tables  map[uint32]*repeated
}

// TrieTables are the arrays of a trie.
type TrieTables struct {
	Roots  *table.Array[abi.TrieRoot]  `map:"trie_root"`
	Blocks *table.Array[abi.TrieBlock] `map:"trie_block"`
}

// repeated is a table: without a root packets ask it.
type repeated struct {
	root    *block
	entries int
	// long counts the prefixes longer than the octets that blocks tell of, by those.
	long map[path]int
}

// path are the octets of an address that blocks tell of.
type path [abi.TrieLeafTRIE_OCTETS]byte

// block is a block with, for each leaf, 1 + the length of the prefix that it has its
// value from; 0: of none.
type block struct {
	index uint32
	bits  [256]uint8
	leaf  [256]uint32
	child [256]*block
}

const (
	leafMore = uint32(abi.TrieLeafLEAF_MORE)
	leafAsk  = uint32(abi.TrieLeafLEAF_ASK)
	// longest is the length of the prefixes that leaves have values of; those that are
	// longer count as one of longest+1, which says to ask.
	longest = 8 * int(abi.TrieLeafTRIE_OCTETS)
	// noRoom is the length of what says to ask for want of a block: no prefix
	// replaces it.
	noRoom = 255
)

// OpenTrie adopts what an earlier daemon left. Settle follows, after all has been put again.
func OpenTrie(t TrieTables, grace *table.Grace) *Trie {
	r := &Trie{TrieTables: t, tables: map[uint32]*repeated{}, indexes: table.NewIndexes(grace, abi.MapTrieBlock, "routes", 1, t.Blocks.Len)}
	taken := map[uint32]bool{}
	for slot := range t.Roots.Len {
		e := t.Roots.Get(slot)
		if root := r.read(e.Leaf&^leafMore, 0, taken); root != nil && slotOf(e.Table) == slot {
			r.tables[e.Table] = &repeated{root: root, long: map[path]int{}}
		} else {
			t.Roots.Change(slot, 0, 0)
		}
	}
	r.indexes.Restore(taken)
	return r
}

// Settle clears what nothing stands for: what an earlier daemon left and this one has not put.
func (r *Trie) Settle() {
	for number, t := range r.tables {
		if t.root != nil {
			r.forgetStale(t.root)
		}
		r.tidy(number, t)
	}
}

// read is a block that the data path may see, and those below; nil: it is none.
func (r *Trie) read(index uint32, depth int, taken map[uint32]bool) *block {
	if index == 0 || index >= r.Blocks.Len || depth >= len(path{}) || taken[index] {
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

// forgetStale clears what no prefix stands for.
func (r *Trie) forgetStale(b *block) {
	for i := range b.leaf {
		if b.child[i] != nil {
			r.forgetStale(b.child[i])
		} else if b.bits[i] == 0 {
			r.store(b, i, 0)
		}
	}
}

// slotOf is trie_slot of bpf/trie.h.
func slotOf(table uint32) uint32 { return (table ^ table>>22) % uint32(abi.TrieLeafTRIE_ROOTS) }

// put repeats an entry; fresh: the table did not have its prefix.
func (r *Trie) put(number uint32, p netip.Prefix, leaf uint32, fresh bool) {
	t := r.tables[number]
	if t == nil {
		t = &repeated{root: r.newRoot(number), long: map[path]int{}}
		r.tables[number] = t
	}
	if fresh {
		t.entries++
	}
	at, length := pathOf(p.Addr()), p.Bits()
	if length > longest {
		if fresh {
			t.long[at]++
		}
		length, leaf = longest+1, leafAsk
	}
	if t.root != nil {
		r.set(t.root, at, length, leaf, 0)
	}
}

// newRoot is the first block of a table; nil: there is no room.
func (r *Trie) newRoot(number uint32) *block {
	if r.Roots.Load(slotOf(number), 0) != 0 {
		return nil
	}
	b := r.newBlock(0, 0)
	if b != nil {
		r.Roots.Put(slotOf(number), &abi.TrieRoot{Table: number, Leaf: b.index | leafMore})
	}
	return b
}

// newBlock is one whose leaves all have the same value; nil: there is no room.
func (r *Trie) newBlock(bits uint8, leaf uint32) *block {
	index, err := r.indexes.Alloc()
	if err != nil {
		return nil
	}
	b := &block{index: index}
	for i := range b.leaf {
		b.bits[i], b.leaf[i] = bits, leaf
	}
	r.Blocks.Put(index, &abi.TrieBlock{Leaf: b.leaf})
	return b
}

func pathOf(a netip.Addr) (at path) {
	copy(at[:], a.AsSlice())
	return at
}

// ends says whether a prefix ends in a block at a depth, and not below it.
func ends(length, depth int) bool { return length <= 8*(depth+1) || depth == len(path{})-1 }

// span are the leaves of a block at a depth that a prefix which ends there has.
func span(at path, length, depth int) (first, end int) {
	rest := max(0, 8*(depth+1)-length)
	first = int(at[depth]) >> rest << rest
	return first, first + 1<<rest
}

// set gives a value to the leaves that a prefix has and no longer one does.
func (r *Trie) set(b *block, at path, length int, leaf uint32, depth int) {
	if !ends(length, depth) {
		i := int(at[depth])
		if b.child[i] == nil && !r.grow(b, i) {
			return
		}
		r.set(b.child[i], at, length, leaf, depth+1)
		return
	}
	first, end := span(at, length, depth)
	r.assign(b, first, end, func(bits uint8) bool { return bits <= uint8(length)+1 }, uint8(length)+1, leaf)
}

// assign gives a value to the leaves in a range, and to all below, of which is
// tells true.
func (r *Trie) assign(b *block, first, end int, is func(bits uint8) bool, bits uint8, leaf uint32) {
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
func (r *Trie) grow(b *block, i int) bool {
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

func (r *Trie) store(b *block, i int, leaf uint32) {
	if b.leaf[i] != leaf {
		b.leaf[i] = leaf
		r.Blocks.StoreHalf(b.index, i/2, i%2, leaf)
	}
}

// delete gives the leaves of an entry that is gone to the next shorter one, of at most max
// bits, of which the table says 1 + its length, and its leaf.
func (r *Trie) delete(number uint32, p netip.Prefix, shorter func(max int) (bits uint8, leaf uint32)) {
	t := r.tables[number]
	if t == nil {
		return
	}
	t.entries--
	at, length := pathOf(p.Addr()), p.Bits()
	if length > longest {
		length = longest + 1
		if t.long[at]--; t.long[at] == 0 {
			delete(t.long, at)
		}
	}
	if t.root != nil && (length <= longest || t.long[at] == 0) {
		bits, leaf := shorter(length - 1)
		r.unset(t.root, at, length, bits, leaf, 0)
	}
	r.tidy(number, t)
}

// unset undoes set, and gives up blocks that tell nothing of their own.
func (r *Trie) unset(b *block, at path, length int, bits uint8, leaf uint32, depth int) {
	if ends(length, depth) {
		first, end := span(at, length, depth)
		r.assign(b, first, end, func(was uint8) bool { return was == uint8(length)+1 }, bits, leaf)
		return
	}
	i := int(at[depth])
	child := b.child[i]
	if child == nil {
		return
	}
	r.unset(child, at, length, bits, leaf, depth+1)
	for n := range child.bits {
		if child.child[n] != nil || int(child.bits[n]) > 8*(depth+1)+1 {
			return
		}
	}
	b.child[i], b.bits[i] = nil, child.bits[0]
	r.store(b, i, child.leaf[0])
	r.indexes.Retire(child.index)
}

// tidy gives up a table without entries.
func (r *Trie) tidy(number uint32, t *repeated) {
	if t.entries > 0 {
		return
	}
	if t.root != nil {
		r.Roots.Put(slotOf(number), &abi.TrieRoot{})
		r.retire(t.root)
	}
	delete(r.tables, number)
}

// retire gives up a block and those below.
func (r *Trie) retire(b *block) {
	for _, child := range b.child {
		if child != nil {
			r.retire(child)
		}
	}
	r.indexes.Retire(b.index)
}
