package dataplane

import (
	"fmt"
	"time"
)

// maxRetired is how many indices may wait for a grace period: few enough that
// the tables stay compact, enough that deleting a million tunnels costs few
// grace periods.
const maxRetired = 4096

// grace counts RCU grace periods. XDP programs run inside RCU read sections,
// so what was unlinked before one is seen by no packet after it.
type grace struct {
	epoch  uint64
	waited time.Time
}

// wait returns when every packet that was on its way has left.
func (g *grace) wait() {
	gracePeriod()
	g.epoch++
	g.waited = time.Now()
}

// waitNow waits if that was not done in the last second: a hundredth of the
// time at most.
func (g *grace) waitNow() bool {
	if time.Since(g.waited) < time.Second {
		return false
	}
	g.wait()
	return true
}

// indexes hands out the entries [first, end) of an array. A returned index is
// given out again only after a grace period.
type indexes struct {
	table string // for errors
	limit string // the configuration's name for what bounds it
	grace *grace

	first, next, end uint32
	free             []uint32
	retired          []uint32
	retiredAt        uint64 // epoch of the newest in retired
}

// newIndexes has none handed out.
func newIndexes(g *grace, table, limit string, first, end uint32) *indexes {
	return &indexes{table: table, limit: limit, grace: g, first: first, next: first, end: end}
}

// restore marks what an earlier daemon had in use. It comes before alloc.
func (x *indexes) restore(taken map[uint32]bool) {
	for i := range taken {
		if i >= x.next && i < x.end {
			x.next = i + 1
		}
	}
	for i := x.first; i < x.next; i++ {
		if !taken[i] {
			x.free = append(x.free, i)
		}
	}
}

func (x *indexes) alloc() (uint32, error) {
	x.settle()
	if len(x.free) == 0 && x.next == x.end && len(x.retired) > 0 {
		x.grace.wait()
		x.settle()
	}
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i, nil
	}
	if x.next == x.end {
		return 0, &FullError{Table: x.table, Max: x.end - x.first, Limit: x.limit}
	}
	x.next++
	return x.next - 1, nil
}

// settle frees what was retired before the last grace period.
func (x *indexes) settle() {
	if len(x.retired) > 0 && x.retiredAt < x.grace.epoch {
		x.free = append(x.free, x.retired...)
		x.retired = x.retired[:0]
	}
}

// retire gives back an index that nothing refers to any more. Index 0 is none.
func (x *indexes) retire(i uint32) {
	if i == 0 {
		return
	}
	x.settle()
	x.retired = append(x.retired, i)
	x.retiredAt = x.grace.epoch
	if len(x.retired) >= maxRetired {
		x.grace.wait()
		x.settle()
	}
}

// Size is how many indices there are.
func (x *indexes) Size() int { return int(x.end - x.first) }

// used is how many indices are handed out.
func (x *indexes) used() int {
	return int(x.next-x.first) - len(x.free) - len(x.retired)
}

// FullError says that a table holds as many entries as it can.
type FullError struct {
	Table string
	Max   uint32
	Limit string // what to raise in the configuration; empty: it is fixed
}

func (e *FullError) Error() string {
	if e.Limit == "" {
		return fmt.Sprintf("table %s is full (%d entries)", e.Table, e.Max)
	}
	return fmt.Sprintf("table %s is full (%d entries): raise limits.%s", e.Table, e.Max, e.Limit)
}
