// Package class owns the tables class_way and class_counter: where packets of each column
// go at a destination with traffic classes, and what the classes carried. Steering refers
// to rows of class_way; ports have the classifiers (package port).
package class

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// columns of a row.
const columns = uint32(len(class.Row{}))

// Table is the two tables.
type Table struct {
	mu *sync.Mutex
	Tables
	names    *table.Names
	policies *policy.Table
	rows     *table.Indexes // numbers of rows
	counters *table.Indexes
	indexOf  map[string]uint32 // of classes, those of an earlier daemon among them
}

// Tables are the tables as packets see them.
type Tables struct {
	Ways     *table.Array[abi.ClassWay] `map:"class_way"`
	Counters *ebpf.Map                  `map:"class_counter"`
}

// New takes the tables, and from names what an earlier daemon counted. Restore comes next.
// mu is the data path's lock.
func New(mu *sync.Mutex, tables Tables, names *table.Names, grace *table.Grace, policies *policy.Table) *Table {
	t := &Table{
		mu: mu, Tables: tables, names: names, policies: policies, indexOf: map[string]uint32{},
		rows:     table.NewIndexes(grace, abi.MapClassWay, "", 1, tables.Ways.Len/columns),
		counters: table.NewIndexes(grace, abi.MapClassCounter, "", 1, tables.Counters.MaxEntries()),
	}
	taken := map[uint32]bool{}
	for index, name := range names.All(table.NameClass) {
		t.indexOf[name], taken[index] = index, true
	}
	t.counters.Restore(taken)
	return t
}

// Restore marks the rows that an earlier daemon's targets refer to, by their first entry.
func (t *Table) Restore(taken map[uint32]bool) {
	rows := map[uint32]bool{}
	for first := range taken {
		rows[first/columns] = true
	}
	t.rows.Restore(rows)
}

// Set says which classes there are. A class keeps its counter as long as it is one of
// them; rows with others must be gone.
func (t *Table) Set(names []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, index := range t.indexOf {
		if slices.Contains(names, name) {
			continue
		}
		if err := t.names.Delete(table.NameClass, index); err != nil {
			return err
		}
		t.counters.Retire(index)
		delete(t.indexOf, name)
	}
	for _, name := range names {
		if index, there := t.indexOf[name]; there {
			if err := t.names.Put(table.NameClass, index, name); err != nil {
				return err
			}
			continue
		}
		index, err := t.counters.Alloc()
		if err != nil {
			return err
		}
		if err := errors.Join(counter.Zero(t.Counters, index), t.names.Put(table.NameClass, index, name)); err != nil {
			t.counters.Retire(index)
			return err
		}
		t.indexOf[name] = index
	}
	return nil
}

// Number is that of a class; 0: no class has that name. The caller holds the lock.
func (t *Table) Number(name string) uint32 { return t.indexOf[name] }

// NameAt is the class of a counter; "": it is nobody's. The caller holds the lock.
func (t *Table) NameAt(index uint32) string {
	for name, i := range t.indexOf {
		if i == index {
			return name
		}
	}
	return ""
}

// Read is what a class carried.
func (t *Table) Read(name string) (counter.Counter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index, there := t.indexOf[name]
	if !there {
		return counter.Counter{}, nil
	}
	return counter.Read(t.Counters, index)
}

// Check says what a row names that does not exist, or that takes frames.
func (t *Table) Check(row *class.Row) error {
	for _, way := range row {
		if way.Policy != "" {
			p := t.policies.Get(way.Policy)
			if p == nil {
				return fmt.Errorf("policy %q of class %q: there is none of that name", way.Policy, way.Class)
			}
			if p.Layer2() {
				return fmt.Errorf("policy %q of class %q: it encapsulates Ethernet frames", way.Policy, way.Class)
			}
		}
		if way.Class != "" && t.indexOf[way.Class] == 0 {
			return fmt.Errorf("class %q: there is none of that name", way.Class)
		}
	}
	return nil
}

// Put writes a row, which Check has seen, and returns its first entry: now, if that is not
// 0. Packets see each way old or new. The caller holds the lock.
func (t *Table) Put(now uint32, row *class.Row) (uint32, error) {
	if now == 0 {
		number, err := t.rows.Alloc()
		if err != nil {
			return 0, err
		}
		now = number * columns
	}
	for i, way := range row {
		next := abi.ClassWay{Class: t.indexOf[way.Class]}
		if way.Policy != "" {
			next.Policy = t.policies.Get(way.Policy).Index()
		}
		t.Ways.Change(now+uint32(i), 0, table.ToWords(next)[0])
	}
	return now, nil
}

// Retire gives back a row that nothing refers to. The caller holds the lock.
func (t *Table) Retire(first uint32) { t.rows.Retire(first / columns) }

// Usage says how many rows there are, and how many there can be.
func (t *Table) Usage() table.Usage { return t.rows.Usage() }
