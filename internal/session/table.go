package session

import (
	"iter"
	"math/bits"
)

// Table maps SEIDs to values. SEIDs are handed out one after the other, so the values
// of a page of SEIDs lie together: a million take little more than their values and
// few cache lines, and deleted ones leave nothing behind. The zero value is empty.
type Table[V any] struct {
	pages map[uint64]*page[V]
	len   int
}

const pageBits = 6

// page holds the values of 64 SEIDs.
type page[V any] struct {
	used   uint64 // bit i: values[i] is in use
	values [1 << pageBits]V
}

// PageOf returns the number of a SEID's page.
func PageOf(seid uint64) uint64 { return seid >> pageBits }

func split(seid uint64) (key uint64, i uint) { return seid >> pageBits, uint(seid % (1 << pageBits)) }

// Len returns how many SEIDs have a value.
func (t *Table[V]) Len() int { return t.len }

// Get returns the value of a SEID, or the zero value.
func (t *Table[V]) Get(seid uint64) (v V) {
	key, i := split(seid)
	if p := t.pages[key]; p != nil {
		v = p.values[i]
	}
	return v
}

// Put sets the value of a SEID.
func (t *Table[V]) Put(seid uint64, v V) {
	key, i := split(seid)
	p := t.pages[key]
	if p == nil {
		if t.pages == nil {
			t.pages = map[uint64]*page[V]{}
		}
		p = &page[V]{}
		t.pages[key] = p
	}
	if p.used>>i&1 == 0 {
		p.used |= 1 << i
		t.len++
	}
	p.values[i] = v
}

// Delete removes a SEID.
func (t *Table[V]) Delete(seid uint64) {
	key, i := split(seid)
	p := t.pages[key]
	if p == nil || p.used>>i&1 == 0 {
		return
	}
	var none V
	p.values[i] = none
	t.len--
	if p.used &^= 1 << i; p.used == 0 {
		delete(t.pages, key)
	}
}

// Clear removes all SEIDs.
func (t *Table[V]) Clear() { *t = Table[V]{} }

// All yields SEIDs and values, in no order. The table may change meanwhile.
func (t *Table[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		for key, p := range t.pages {
			for used := p.used; used != 0; used &= used - 1 {
				i := bits.TrailingZeros64(used)
				if p.used>>i&1 != 0 && !yield(key<<pageBits|uint64(i), p.values[i]) {
					return
				}
			}
		}
	}
}
