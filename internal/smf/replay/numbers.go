package replay

import (
	"maps"
	"slices"
)

// numbers are identifiers of one kind, such as TEIDs. Those of copy 0 are the
// capture's; those of the others lie behind the largest, each copy's in a row.
type numbers struct {
	list   []uint64
	places map[uint64]uint64 // in list
	next   uint64            // behind the largest
}

func newNumbers(set map[uint64]bool) numbers {
	n := numbers{list: slices.Sorted(maps.Keys(set)), places: map[uint64]uint64{}}
	for i, v := range n.list {
		n.places[v] = uint64(i)
		n.next = v + 1
	}
	return n
}

// at is what copy k has in the place of v. What is not one of the numbers stays.
func (n *numbers) at(v uint64, k int) uint64 {
	place, known := n.places[v]
	if k == 0 || !known {
		return v
	}
	return n.next + uint64(k-1)*uint64(len(n.places)) + place
}

// last is the largest that any of so many copies has.
func (n *numbers) last(copies int) uint64 {
	return n.next - 1 + uint64(copies-1)*uint64(len(n.places))
}

// find is whose number it is: v of the capture, and the copy.
func (n *numbers) find(number uint64) (v uint64, k int, ok bool) {
	if _, ok := n.places[number]; ok {
		return number, 0, true
	}
	if len(n.list) == 0 || number < n.next {
		return 0, 0, false
	}
	behind, each := number-n.next, uint64(len(n.list))
	return n.list[behind%each], int(behind/each) + 1, true
}
