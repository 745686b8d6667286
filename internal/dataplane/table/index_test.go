package table

import (
	"errors"
	"strings"
	"testing"
)

func TestIndexesComeBackAfterGrace(t *testing.T) {
	g := &Grace{}
	x := NewIndexes(g, "things", "things", 1, 4)
	var got []uint32
	for range 3 {
		i, err := x.Alloc()
		must(t, err)
		got = append(got, i)
	}
	var full *FullError
	if _, err := x.Alloc(); !errors.As(err, &full) || full.Max != 3 || !strings.Contains(err.Error(), "limits.things") {
		t.Fatalf("a full table: %v", err)
	}
	x.Retire(got[1])
	if x.Used() != 2 {
		t.Errorf("%d in use, want 2", x.Used())
	}
	epoch := g.Epoch
	i, err := x.Alloc()
	must(t, err)
	if i != got[1] || g.Epoch == epoch {
		t.Errorf("index %d came back in epoch %d, it was retired in epoch %d", i, g.Epoch, epoch)
	}
	x.Retire(0) // none
	y := NewIndexes(g, "things", "", 10, 20)
	y.Restore(map[uint32]bool{12: true, 14: true, 3: true})
	seen := map[uint32]bool{12: true, 14: true}
	for range 8 {
		i, err := y.Alloc()
		must(t, err)
		if seen[i] || i < 10 || i >= 20 {
			t.Errorf("index %d is in use, or not there", i)
		}
		seen[i] = true
	}
	if _, err := y.Alloc(); !errors.As(err, &full) {
		t.Errorf("a full table: %v", err)
	}
}
