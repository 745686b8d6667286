package lpm

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// At is where an entry is: a prefix, in the table of that number.
type At struct {
	Table  uint32
	Prefix netip.Prefix
}

// Table is what tables of prefixes say, by number and for both families. A packet sees an entry of
// before a change or of after it.
type Table[V comparable] struct {
	four    *table.Hash[abi.Lpm4Key, V]
	six     *table.Hash[abi.Lpm6Key, V]
	trie    *Trie
	kind    uint32
	leaf    func(V) uint32
	changed func()
}

// Four and Six are the tables of each family as packets see them, if the trie says to ask.
type (
	Four[V comparable] = table.Hash[abi.Lpm4Key, V]
	Six[V comparable]  = table.Hash[abi.Lpm6Key, V]
)

// New takes the tables, and repeats them in the trie. kind goes into what the trie knows their
// numbers by (enum trie_table), leaf says what a leaf has of an entry (enum trie_leaf), and
// changed runs after each write.
func New[V comparable](four *Four[V], six *Six[V], trie *Trie, kind uint32, leaf func(V) uint32, changed func()) *Table[V] {
	t := &Table[V]{four: four, six: six, trie: trie, kind: kind, leaf: leaf, changed: changed}
	var all []At
	for at := range t.All() {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b At) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	for _, at := range all {
		v, _ := t.Lookup(at)
		trie.put(t.number(at), at.Prefix, leaf(v), true)
	}
	changed()
	return t
}

// number is what the trie knows a table by.
func (t *Table[V]) number(at At) uint32 {
	n := t.kind | at.Table
	if at.Prefix.Addr().Is4() {
		n |= uint32(abi.TrieTableTRIE_IPV4)
	}
	return n
}

// Put writes an entry, if there is none that is the same (*table.FullError). The trie says to ask
// for what it has no room for, so the table itself has it first.
func (t *Table[V]) Put(at At, v V) error {
	old, known := t.Lookup(at)
	var err error
	if at.Prefix.Addr().Is4() {
		err = t.four.Put(abi.LPM4(at.Table, at.Prefix), v)
	} else {
		err = t.six.Put(abi.LPM6(at.Table, at.Prefix), v)
	}
	if err != nil || known && old == v {
		return err
	}
	t.trie.put(t.number(at), at.Prefix, t.leaf(v), !known)
	t.changed()
	return nil
}

// Delete removes an entry; one that is not there is not an error.
func (t *Table[V]) Delete(at At) error {
	if _, known := t.Lookup(at); !known {
		return nil
	}
	var err error
	if at.Prefix.Addr().Is4() {
		err = t.four.Delete(abi.LPM4(at.Table, at.Prefix))
	} else {
		err = t.six.Delete(abi.LPM6(at.Table, at.Prefix))
	}
	if err != nil {
		return err
	}
	t.trie.delete(t.number(at), at.Prefix, func(bits int) (uint8, uint32) { return t.shorter(at, bits) })
	t.changed()
	return nil
}

// shorter is the longest entry of at most so many bits that contains another: 1 + its length, and
// its leaf.
func (t *Table[V]) shorter(at At, bits int) (uint8, uint32) {
	for ; bits >= 0; bits-- {
		p, err := at.Prefix.Addr().Prefix(bits)
		if err != nil {
			return 0, 0
		}
		if v, ok := t.Lookup(At{at.Table, p}); ok {
			return uint8(bits) + 1, t.leaf(v)
		}
	}
	return 0, 0
}

// Lookup is the entry of exactly this prefix, and whether there is one.
func (t *Table[V]) Lookup(at At) (V, bool) {
	if at.Prefix.Addr().Is4() {
		return t.four.Lookup(abi.LPM4(at.Table, at.Prefix))
	}
	return t.six.Lookup(abi.LPM6(at.Table, at.Prefix))
}

// All are the entries, those of an earlier daemon among them. Deleting some meanwhile is allowed.
func (t *Table[V]) All() iter.Seq2[At, V] { return entries(t.four.All(), t.six.All()) }

// Stale are those that an earlier daemon put and this one has not: none after Settle. They stay
// the same while entries change.
func (t *Table[V]) Stale() iter.Seq2[At, V] {
	four, six := t.four.Stale(), t.six.Stale()
	return entries(maps.All(four), maps.All(six))
}

// entries are those of both families.
func entries[V any](four iter.Seq2[abi.Lpm4Key, V], six iter.Seq2[abi.Lpm6Key, V]) iter.Seq2[At, V] {
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

// Sweep deletes what is stale.
func (t *Table[V]) Sweep() error {
	var errs []error
	for at := range t.Stale() {
		errs = append(errs, t.Delete(at))
	}
	return errors.Join(errs...)
}

// Settle ends the time in which entries may be stale.
func (t *Table[V]) Settle() {
	t.four.Settle()
	t.six.Settle()
}
