package session

import "math/bits"

// maxRun is how many filters a rule lookup goes through (MAX_FILTERS in
// bpf/filter.h).
const maxRun = 64

// runs hands out runs of entries of `filter`: blocks of 1, 2, 4 ... maxRun, each
// at a multiple of its size, which grow together again when they come back.
type runs struct {
	count uint32
	// state of the block that begins at an entry: its order + 1, and whether
	// it is free. 0: no block begins there.
	state []uint8
	free  [maxRunOrder + 1][]uint32 // some of them are out of date: see pop
	used  uint32
}

const (
	maxRunOrder = 6 // 1 << 6 == maxRun
	runFree     = 0x80
)

func newRuns(count uint32) *runs { return &runs{count: count, state: make([]uint8, count)} }

// runOrder is that of the block for n entries.
func runOrder(n int) int { return bits.Len(uint(n - 1)) }

// put makes a block free.
func (r *runs) put(at uint32, order int) {
	for order < maxRunOrder {
		other := at ^ 1<<order
		if other >= r.count || r.state[other] != runFree|uint8(order+1) {
			break
		}
		r.state[other], r.state[at] = 0, 0
		at = min(at, other)
		order++
	}
	r.state[at] = runFree | uint8(order+1)
	r.free[order] = append(r.free[order], at)
}

// pop takes a free block of an order.
func (r *runs) pop(order int) (uint32, bool) {
	for n := len(r.free[order]); n > 0; n = len(r.free[order]) {
		at := r.free[order][n-1]
		r.free[order] = r.free[order][:n-1]
		if r.state[at] == runFree|uint8(order+1) { // it has not grown since
			return at, true
		}
	}
	return 0, false
}

// alloc is a block for n entries.
func (r *runs) alloc(n int) (uint32, bool) {
	want := runOrder(n)
	for order := want; order <= maxRunOrder; order++ {
		at, ok := r.pop(order)
		if !ok {
			continue
		}
		for ; order > want; order-- {
			half := at + 1<<(order-1)
			r.state[half] = runFree | uint8(order)
			r.free[order-1] = append(r.free[order-1], half)
		}
		r.state[at] = uint8(want + 1)
		r.used += 1 << want
		return at, true
	}
	return 0, false
}

// release gives back a block.
func (r *runs) release(at uint32) {
	order := int(r.state[at]) - 1
	r.used -= 1 << order
	r.put(at, order)
}

// restore marks a block as one that is in use. It comes before settle.
func (r *runs) restore(at uint32, n int) {
	r.state[at] = uint8(runOrder(n) + 1)
	r.used += 1 << runOrder(n)
}

// settle makes free what was not restored.
func (r *runs) settle() {
	for at := uint32(0); at < r.count; {
		if s := r.state[at]; s != 0 {
			at += 1 << (s - 1)
			continue
		}
		end := at
		for end < r.count && r.state[end] == 0 {
			end++
		}
		for at < end {
			order := min(bits.TrailingZeros32(at|1<<maxRunOrder), bits.Len32(end-at)-1)
			r.put(at, order)
			at += 1 << order
		}
	}
}
