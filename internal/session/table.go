package session

import (
	"iter"
	"math"
	"math/bits"
)

// Table maps SEIDs to values. The values of neighbouring places lie together in a page: a
// million take little more than their values and few cache lines, and deleted ones leave
// nothing behind. The zero value is empty.
type Table[V any] struct {
	pages map[uint32]*page[V]
	// more has SEIDs whose place another one has, and those of 2^54 and above, which
	// earlier builds made.
	more map[uint64]V
	len  int
}

const pageBits = 6

// page holds the values of 64 places.
type page[V any] struct {
	used   uint64                // bit i: values[i] is in use
	secret [1 << pageBits]uint32 // the rest of its SEID
	values [1 << pageBits]V
}

// PageOf returns the number of a SEID's page.
func PageOf(seid uint64) uint64 { return uint64(PlaceOf(seid)) >> pageBits }

// Len returns how many SEIDs have a value.
func (t *Table[V]) Len() int { return t.len }

// at returns the page of a SEID, where it lies there, and whether the SEID is there.
// The page is nil if it does not exist.
func (t *Table[V]) at(seid uint64) (p *page[V], i uint, there bool) {
	i = uint(seid % (1 << pageBits))
	if p = t.pages[uint32(PageOf(seid))]; p != nil {
		there = p.used>>i&1 != 0 && uint64(p.secret[i]) == seid>>placeBits
	}
	return p, i, there
}

// Free says whether no SEID has the place of this one.
func (t *Table[V]) Free(seid uint64) bool {
	p, i, _ := t.at(seid)
	return p == nil || p.used>>i&1 == 0
}

// Get returns the value of a SEID, or the zero value.
func (t *Table[V]) Get(seid uint64) (v V) {
	if p, i, there := t.at(seid); there {
		return p.values[i]
	}
	if len(t.more) > 0 {
		v = t.more[seid]
	}
	return v
}

// Put sets the value of a SEID.
func (t *Table[V]) Put(seid uint64, v V) {
	p, i, there := t.at(seid)
	if there {
		p.values[i] = v
		return
	}
	if _, there = t.more[seid]; !there {
		t.len++
	}
	taken := p != nil && p.used>>i&1 != 0
	if there || taken || seid>>placeBits > math.MaxUint32 {
		if t.more == nil {
			t.more = map[uint64]V{}
		}
		t.more[seid] = v
		return
	}
	if p == nil {
		if t.pages == nil {
			t.pages = map[uint32]*page[V]{}
		}
		p = &page[V]{}
		t.pages[uint32(PageOf(seid))] = p
	}
	p.used |= 1 << i
	p.secret[i], p.values[i] = uint32(seid>>placeBits), v
}

// Delete removes a SEID.
func (t *Table[V]) Delete(seid uint64) {
	p, i, there := t.at(seid)
	if !there {
		if _, there := t.more[seid]; there {
			delete(t.more, seid)
			t.len--
		}
		return
	}
	var none V
	p.values[i] = none
	t.len--
	if p.used &^= 1 << i; p.used == 0 {
		delete(t.pages, uint32(PageOf(seid)))
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
				seid := uint64(p.secret[i])<<placeBits | uint64(key)<<pageBits | uint64(i)
				if p.used>>i&1 != 0 && !yield(seid, p.values[i]) {
					return
				}
			}
		}
		for seid, v := range t.more {
			if !yield(seid, v) {
				return
			}
		}
	}
}
