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
		// Few places, and both what we make and what earlier builds made.
		place, upper := uint32(random.IntN(300)), uint64(random.IntN(2))<<60
		seid := upper | MakeSEID(place, uint32(random.IntN(2))<<30)
		switch random.IntN(3) {
		case 0:
			table.Delete(seid)
			delete(want, seid)
		default:
			table.Put(seid, step+1)
			want[seid] = step + 1
		}
		if table.Free(seid) && table.Get(seid) != 0 && upper == 0 && len(table.more) == 0 {
			t.Fatalf("step %d: the place of SEID %#x is free", step, seid)
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
	if table.Len() != 0 || len(table.pages)+len(table.more) != 0 {
		t.Errorf("%d are left, on %d pages", table.Len(), len(table.pages))
	}
	table.Put(7, 7)
	table.Clear()
	if table.Get(7) != 0 || table.Len() != 0 {
		t.Error("not cleared")
	}
}
