package session

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestTable compares a table with a map, whatever happens to both.
func TestTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var table Table[int]
	want := map[uint64]int{}
	for step := range 20_000 {
		seid := uint64(random.IntN(4))<<60 | uint64(random.IntN(300))
		switch random.IntN(3) {
		case 0:
			table.Delete(seid)
			delete(want, seid)
		default:
			table.Put(seid, step+1)
			want[seid] = step + 1
		}
		if got := table.Get(seid); got != want[seid] || table.Len() != len(want) {
			t.Fatalf("step %d: SEID %#x has %d, want %d; %d are there, want %d", step, seid, got, want[seid], table.Len(), len(want))
		}
	}
	if got := maps.Collect(table.All()); !maps.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
	for seid := range table.All() {
		table.Delete(seid)
	}
	if table.Len() != 0 || len(table.pages) != 0 {
		t.Errorf("%d are left, on %d pages", table.Len(), len(table.pages))
	}
	table.Put(7, 7)
	table.Clear()
	if table.Get(7) != 0 || table.Len() != 0 {
		t.Error("not cleared")
	}
}
