package proc

import (
	"os"
	"slices"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// counts is how many threads of this process may run on how many CPUs.
func counts(t *testing.T) (list []int) {
	t.Helper()
	threads, err := procfs.AllThreads(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range threads {
		var set unix.CPUSet
		if unix.SchedGetaffinity(one.PID, &set) == nil {
			list = append(list, set.Count())
		}
	}
	return list
}

// A process that stays on a CPU does so with all threads, and until that is taken back.
func TestStay(t *testing.T) {
	before, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Stay(before[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := counts(t); slices.Max(got) != 1 {
		t.Errorf("threads may run on %v CPUs, want 1", got)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	if got := counts(t); slices.Min(got) != len(before) {
		t.Errorf("afterwards threads may run on %v CPUs, want %d", got, len(before))
	}
}
