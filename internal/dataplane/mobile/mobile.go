// Package mobile owns the table mobile: the parameters of the mobile user plane's
// behaviours (RFC 9433), to which local SIDs and steering by H.M.GTP4.D refer.
// Callers hold the data path's lock.
package mobile

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Table is the table mobile.
type Table struct {
	m *ebpf.Map
	*table.Indexes
}

// New takes the map.
func New(m *ebpf.Map, grace *table.Grace) *Table {
	return &Table{m, table.NewIndexes(grace, abi.MapMobile, "sids", 1, m.MaxEntries())}
}

// Put makes an entry that holds m, and returns its index: that of now, if it does.
// What packets can reach is never written: a change is a new entry. Whoever had
// the former one retires it.
func (t *Table) Put(now uint32, m *abi.Mobile) (uint32, error) {
	if m == nil {
		return 0, nil
	}
	if now != 0 {
		var there abi.Mobile
		if err := t.m.Lookup(now, &there); err != nil {
			return 0, fmt.Errorf("read table mobile: %w", err)
		}
		if there == *m {
			return now, nil
		}
	}
	fresh, err := t.Alloc()
	if err != nil {
		return 0, err
	}
	if err := t.m.Put(fresh, m); err != nil {
		return 0, fmt.Errorf("write table mobile: %w", err)
	}
	return fresh, nil
}
