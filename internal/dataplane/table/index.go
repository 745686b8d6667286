package table

import (
	"fmt"
	"time"
)

// MaxRetired is how many indices may wait for a grace period: few enough that
// the tables stay compact, enough that deleting a million tunnels costs few
// grace periods.
const MaxRetired = 4096

// Grace counts RCU grace periods. XDP programs run inside RCU read sections,
// so what was unlinked before one is seen by no packet after it.
type Grace struct {
	// Epoch is the number of periods that are over.
	Epoch  uint64
	waited time.Time
}

// Wait returns when every packet that was on its way has left.
func (g *Grace) Wait() {
	gracePeriod()
	g.Epoch++
	g.waited = time.Now()
}

// WaitNow waits if that was not done in the last second: a hundredth of the
// time at most.
func (g *Grace) WaitNow() bool {
	if time.Since(g.waited) < time.Second {
		return false
	}
	g.Wait()
	return true
}

// Indexes hands out the entries [first, end) of an array. A returned index is
// given out again only after a grace period.
type Indexes struct {
	table string // for errors
	limit string // the configuration's name for what bounds it
	grace *Grace

	first, next, end uint32
	free             []uint32
	retired          []uint32
	retiredAt        uint64 // epoch of the newest in retired
}

// NewIndexes has none handed out.
func NewIndexes(g *Grace, table, limit string, first, end uint32) *Indexes {
	return &Indexes{table: table, limit: limit, grace: g, first: first, next: first, end: end}
}

// Restore marks what an earlier daemon had in use. It comes before Alloc.
func (x *Indexes) Restore(taken map[uint32]bool) {
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

// Alloc hands out an index (*FullError). It may wait for a grace period.
func (x *Indexes) Alloc() (uint32, error) {
	x.settle()
	if len(x.free) == 0 && x.next == x.end && len(x.retired) > 0 {
		x.grace.Wait()
		x.settle()
	}
	if n := len(x.free); n > 0 {
		i := x.free[n-1]
		x.free = x.free[:n-1]
		return i, nil
	}
	if x.next == x.end {
		return 0, x.Full()
	}
	x.next++
	return x.next - 1, nil
}

// Room is how many indices Alloc can hand out.
func (x *Indexes) Room() int { return int(x.end-x.next) + len(x.free) + len(x.retired) }

// Full is what Alloc returns where there is no room.
func (x *Indexes) Full() error {
	return &FullError{Table: x.table, Max: x.end - x.first, Limit: x.limit}
}

// settle frees what was retired before the last grace period.
func (x *Indexes) settle() {
	if len(x.retired) > 0 && x.retiredAt < x.grace.Epoch {
		x.free = append(x.free, x.retired...)
		x.retired = x.retired[:0]
	}
}

// Retire gives back an index that nothing refers to any more. Index 0 is none.
func (x *Indexes) Retire(i uint32) {
	if i == 0 {
		return
	}
	x.settle()
	x.retired = append(x.retired, i)
	x.retiredAt = x.grace.Epoch
	if len(x.retired) >= MaxRetired {
		x.grace.Wait()
		x.settle()
	}
}

// Usage says how full a table is.
type Usage struct{ Used, Max int }

// Usage is how many indices are handed out, and how many there are.
func (x *Indexes) Usage() Usage { return Usage{x.Used(), int(x.end - x.first)} }

// Used is how many indices are handed out.
func (x *Indexes) Used() int {
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
	return fmt.Sprintf("table %s is full (%d entries): a larger limits.%s counts from the next start on", e.Table, e.Max, e.Limit)
}
