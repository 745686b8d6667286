package stats

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTaken(t *testing.T) {
	quiet := make([]float64, 100)
	for i := range quiet {
		quiet[i] = 10
	}
	if got := taken(quiet); got != 0 {
		t.Errorf("of equal turns others took %v, want 0", got)
	}
	// One of a hundred turns was 1010 long: 1000 of 2000 were others'.
	quiet[50] = 1010
	if got := taken(quiet); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("others took %v, want 0.5", got)
	}
}

func TestParseStolen(t *testing.T) {
	before, err := parseStolen([]byte("cpu  100 0 50 800 10 5 15 20 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil || before != (stolen{20, 1000}) {
		t.Fatalf("%+v, %v", before, err)
	}
	after := stolen{70, 1200}
	if got := after.share(before); got != 0.25 {
		t.Errorf("stolen: %v, want a quarter", got)
	}
	if got := before.share(before); got != 0 {
		t.Errorf("stolen in no time: %v", got)
	}
	for _, bad := range []string{"", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3", "cpu 1 2 3 4 5 6 7 x"} {
		if s, err := parseStolen([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

// Where somebody else works on the same CPU, they take a part of it: half where nobody else does.
func TestNoiseSeesANeighbour(t *testing.T) {
	cpu := someCPU(t)
	ctx, cancel := context.WithCancel(t.Context())
	there, worked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(worked)
		runtime.LockOSThread()
		bind(t, cpu)
		close(there)
		loop(ctx, time.Hour)
	}()
	<-there
	noise, err := Noise(t.Context(), cpu, 300*time.Millisecond)
	cancel()
	<-worked
	if err != nil || noise < 0.1 || noise > 1 {
		t.Errorf("beside a busy neighbour: %v, %v; want 0.1 or more", noise, err)
	}
}

func TestNoiseEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := Noise(ctx, -1, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	if _, err := Noise(t.Context(), 1<<9, time.Millisecond); err == nil {
		t.Error("there is no CPU 512")
	}
}

func someCPU(t *testing.T) int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if set.IsSet(i) {
			return i
		}
	}
	t.Fatal("there is no CPU to run on")
	return 0
}

func bind(t *testing.T, cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Error(err)
	}
}
