package target

import (
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// TestLeaf: a leaf of the trie has the whole target, or says to ask for it.
func TestLeaf(t *testing.T) {
	const shift = abi.TrieLeafLEAF_KIND_SHIFT
	last, most := abi.TargetKindTARGET_SID, uint32(1<<shift-1)
	for _, c := range []struct {
		to   abi.Target
		want uint32
	}{
		{abi.Target{Kind: uint32(abi.TargetKindTARGET_PASS)}, 1 << shift},
		{abi.Target{Kind: uint32(abi.TargetKindTARGET_PDR), Index: 7, Bits: 16}, uint32(abi.TargetKindTARGET_PDR)<<shift | 7},
		{abi.Target{Kind: uint32(last), Index: most}, uint32(last)<<shift | most},
		{abi.Target{Kind: uint32(last), Index: most + 1}, uint32(abi.TrieLeafLEAF_ASK)},
	} {
		if got := leafOf(c.to); got != c.want {
			t.Errorf("%+v: leaf %#x, want %#x", c.to, got, c.want)
		}
	}
	if 16 <= last || uint32(last)<<shift|most == uint32(abi.TrieLeafLEAF_ASK) {
		t.Errorf("kind %d has no place in a leaf", last)
	}
}
