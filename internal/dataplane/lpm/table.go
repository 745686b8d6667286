package lpm

import (
	"cmp"
	"errors"
	"iter"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// At is where an entry is: a prefix, in the table of that number.
type At struct {
	Table  uint32
	Prefix netip.Prefix
}

// Table is what tables of prefixes say, by number and for both families. A packet sees an entry of
// before a change or of after it.
type Table[V comparable] struct {
	Entries[V]
	trie    *Trie
	kind    uint32
	leaf    func(V) uint32
	changed func()
}

// Entries are the tables as packets see them where the trie says to ask: Families or Mixed.
type Entries[V comparable] interface {
	// Lookup is the entry of exactly this prefix, and whether there is one.
	Lookup(at At) (V, bool)
	// All are the entries, those of an earlier daemon among them. Deleting some meanwhile is
	// allowed.
	All() iter.Seq2[At, V]
	// Stale are those that an earlier daemon put and this one has not: none after Settle. They
	// stay the same while entries change.
	Stale() iter.Seq2[At, V]
	// Settle ends the time in which entries may be stale.
	Settle()
	put(at At, v V) error
	delete(at At) error
}

// New takes tables, and repeats them in the trie. kind goes into what the trie knows their
// numbers by (enum trie_table), leaf says what a leaf has of an entry (enum trie_leaf), and
// changed runs after each write.
func New[V comparable](tables Entries[V], trie *Trie, kind uint32, leaf func(V) uint32, changed func()) *Table[V] {
	t := &Table[V]{Entries: tables, trie: trie, kind: kind, leaf: leaf, changed: changed}
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

// Put writes an entry, unless the table has the same (*table.FullError). The trie says to ask
// for what it has no room for, so the table itself has it first.
func (t *Table[V]) Put(at At, v V) error {
	old, known := t.Lookup(at)
	if err := t.put(at, v); err != nil || known && old == v {
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
	if err := t.delete(at); err != nil {
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

// Sweep deletes what is stale.
func (t *Table[V]) Sweep() error {
	var errs []error
	for at := range t.Stale() {
		errs = append(errs, t.Delete(at))
	}
	return errors.Join(errs...)
}
