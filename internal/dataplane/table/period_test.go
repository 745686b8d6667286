package table

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "0-2,5,7-8": {0, 1, 2, 5, 7, 8}} {
		if got, err := parseCPUs(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "a", "3-1", "1-", "1,,2"} {
		if got, err := parseCPUs(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}

// TestVisitCPUs demands that the thread goes back to where it may be, and that
// a period is short enough to wait for in the middle of a request.
func TestVisitCPUs(t *testing.T) {
	var before, after unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &before))
	var took []time.Duration
	for range 50 {
		start := time.Now()
		must(t, visitCPUs())
		took = append(took, time.Since(start))
	}
	must(t, unix.SchedGetaffinity(0, &after))
	if before != after {
		t.Errorf("the process may run on %v, before on %v", after, before)
	}
	slices.Sort(took)
	t.Logf("a visit takes %v, at most %v", took[len(took)/2], took[len(took)-1])
}
