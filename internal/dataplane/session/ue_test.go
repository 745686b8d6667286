package session

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// lookUp4 is what find_in_bucket and pdr_of_ue4 of bpf/session.h do.
func lookUp4(t *tables, ue netip.Addr) uint32 {
	address := abi.BE32(ue)
	words := t.ues.table.Words(t.ues.of(address))
	for _, word := range words[:ueSlots] {
		if uint32(word>>32) == address && word != 0 {
			return uint32(word)
		}
	}
	if words[ueMore] == 0 {
		return 0
	}
	return t.UEs.Get(abi.In6Of(ue))
}

// TestUEBuckets demands that packets find what pdr_by_ue has of IPv4 UEs, and nothing else, also
// where buckets are full, and after a daemon that died between two writes.
func TestUEBuckets(t *testing.T) {
	const n, full = 16, 64 // more keys than slots
	tabs := &tables{node: &memoryNode{}, Tables: Tables{
		UEs: table.NewHash[abi.In6, uint32](abi.MapPdrByUe, n*full), UEBucket: table.NewArray[abi.UeBucket](bucketsFor(n)),
	}}
	tabs.openUEs()
	random := rand.New(rand.NewPCG(1, 2))
	ue := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i * 77), byte(i), byte(i * 5)}) }
	check := func(when string) {
		t.Helper()
		for i := range full {
			if got, want := lookUp4(tabs, ue(i)), tabs.UEs.Get(abi.In6Of(ue(i))); got != want {
				t.Fatalf("%s: %s leads to %d, want %d", when, ue(i), got, want)
			}
		}
	}
	crowded := false
	for range 5000 {
		i := random.IntN(full)
		if random.IntN(2) == 0 {
			must(t, tabs.putUE(abi.In6Of(ue(i)), 1+random.Uint32N(1000)))
		} else {
			must(t, tabs.delUE(abi.In6Of(ue(i))))
		}
		check("after a change")
		crowded = crowded || tabs.UEBucket.Load(0, ueMore) > 0
	}
	if !crowded {
		t.Error("no bucket was ever full")
	}
	// What a daemon that dies leaves: a key of the hash alone, one with its former index, and an
	// address that no key has.
	keys := maps.Clone(maps.Collect(tabs.UEs.All()))
	must(t, tabs.UEs.Put(abi.In6Of(ue(1)), 1001))
	must(t, tabs.UEs.Put(abi.In6Of(ue(2)), 1002))
	tabs.UEBucket.Store(0, 0, 1<<40|7)
	tabs.openUEs()
	check("after a start")
	for e := range keys {
		must(t, tabs.delUE(e))
	}
	must(t, tabs.delUE(abi.In6Of(ue(1))))
	must(t, tabs.delUE(abi.In6Of(ue(2))))
	for bucket := range tabs.UEBucket.Len {
		if got := tabs.UEBucket.Get(bucket); got != (abi.UeBucket{}) {
			t.Errorf("bucket %d keeps %+v", bucket, got)
		}
	}
}
