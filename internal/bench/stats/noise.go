package stats

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The loop of known length: one turn is about as long as a batch of packets, so
// that its quickest turn is one that nobody disturbed.
const (
	turnSteps   = 20_000
	fewestTurns = 100
)

// Noise is the share of time, 0 to 1, that others took from a loop of known
// length that runs on a CPU for about `lasting`: what its turns took above the
// quickest one, or what the hypervisor says that it stole, whichever is more. On
// a CPU below 0 it runs wherever the process may. What slows every turn alike
// (a neighbour on the other half of a core, all the time) cannot be seen.
func Noise(ctx context.Context, cpu int, lasting time.Duration) (float64, error) {
	type answer struct {
		noise float64
		err   error
	}
	done := make(chan answer)
	go func() {
		// For good: the thread keeps its CPU, and ends with its goroutine.
		runtime.LockOSThread()
		n, err := noiseHere(ctx, cpu, lasting)
		done <- answer{n, err}
	}()
	a := <-done
	return a.noise, a.err
}

func noiseHere(ctx context.Context, cpu int, lasting time.Duration) (float64, error) {
	// Whoever calls may go before others: the loop is to meet them as they are.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 0); err != nil {
		return 0, fmt.Errorf("set the loop's priority: %w", err)
	}
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return 0, fmt.Errorf("bind to CPU %d: %w", cpu, err)
		}
	}
	before, err := readStolen()
	if err != nil {
		return 0, err
	}
	turns := loop(ctx, lasting)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	after, err := readStolen()
	return max(taken(turns), after.share(before)), err
}

// loop runs its turns again and again and returns how long each turn took, the
// time between turns in it.
func loop(ctx context.Context, lasting time.Duration) []float64 {
	var turns []float64
	x := uint64(1)
	begun := time.Now()
	last := begun
	for len(turns) < fewestTurns || last.Sub(begun) < lasting {
		for range turnSteps {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		now := time.Now()
		turns = append(turns, float64(now.Sub(last)))
		last = now
		if ctx.Err() != nil {
			break
		}
	}
	runtime.KeepAlive(x)
	return turns
}

// taken is the share of the turns' time that is above the quickest one's. The
// quickest twentieth stands for it: the clock's own step makes single turns look
// shorter than they were.
func taken(turns []float64) float64 {
	sorted := slices.Sorted(slices.Values(turns))
	total := 0.0
	for _, t := range turns {
		total += t
	}
	return max(0, 1-Quantile(sorted, 0.05)*float64(len(turns))/total)
}

// stolen is what /proc/stat counts of all CPUs together, in ticks.
type stolen struct{ steal, all uint64 }

func readStolen() (stolen, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return stolen{}, err
	}
	return parseStolen(text)
}

// parseStolen reads "cpu user nice system idle iowait irq softirq steal guest
// guest_nice"; the guests' time is in user and nice already.
func parseStolen(stat []byte) (s stolen, err error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return s, fmt.Errorf("/proc/stat begins with %q: no line of all CPUs", line)
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return s, fmt.Errorf("/proc/stat: %w", err)
		}
		if s.all += n; i == 7 {
			s.steal = n
		}
	}
	return s, nil
}

func (s stolen) share(before stolen) float64 {
	if s.all <= before.all {
		return 0
	}
	return float64(s.steal-before.steal) / float64(s.all-before.all)
}
