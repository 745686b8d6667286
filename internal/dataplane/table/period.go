package table

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of membarrier(2).
const membarrierGlobal = 1

// Periods are RCU grace periods that callers share. XDP programs run inside RCU
// read sections, so what was unlinked before one is seen by no packet after it.
// A period that has begun does not help a caller that comes then: all callers
// wait for the next one, which one of them starts.
type Periods struct {
	mu          sync.Mutex // of who changes the numbers
	changed     *sync.Cond
	begun, over atomic.Uint64 // numbers of the last ones
	pass        func()        // returns at the end of one that begins now
}

// NewPeriods returns periods of which none has begun.
func NewPeriods() *Periods { return newPeriods(gracePeriod) }

// PeriodsInMemory returns those of tables that no packet sees, as NewArray and NewHash
// make them: each ends when it begins.
func PeriodsInMemory() *Periods { return newPeriods(func() {}) }

func newPeriods(pass func()) *Periods {
	p := &Periods{pass: pass}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Next is the number of the period after which no packet sees any more what is
// unlinked now.
func (p *Periods) Next() uint64 { return p.begun.Load() + 1 }

// Ended is the number of the last one that is over.
func (p *Periods) Ended() uint64 { return p.over.Load() }

// Wait returns when period n is over.
func (p *Periods) Wait(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.over.Load() < n {
		if p.begun.Load() > p.over.Load() { // somebody's is on
			p.changed.Wait()
			continue
		}
		began := p.begun.Add(1)
		p.mu.Unlock()
		p.pass()
		p.mu.Lock()
		p.over.Store(began)
		p.changed.Broadcast()
	}
}

// gracePeriod returns when every packet that was on its way has left.
func gracePeriod() {
	if visitCPUs() == nil {
		return
	}
	// With more than one CPU the kernel waits for an RCU grace period
	// (10 ms, on a busy machine ten times that). It refuses on kernels with
	// nohz_full: there, sleep for longer than any packet takes.
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		time.Sleep(50 * time.Millisecond)
	}
}

// visitCPUs runs on each CPU for a moment. XDP programs run with softirqs off,
// and so without being scheduled away: when a CPU takes up this thread, the
// packet that it had is through. That is as good as an RCU grace period, and
// takes tens of microseconds. It is an error where it does not hold (PREEMPT_RT)
// or a CPU is not for us (cpusets, hotplug).
func visitCPUs() error {
	cpus, err := onlineCPUs()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	for _, cpu := range cpus {
		var one unix.CPUSet
		one.Set(cpu)
		// The kernel returns when the thread runs there.
		if err = unix.SchedSetaffinity(0, &one); err != nil {
			break
		}
	}
	if restore := unix.SchedSetaffinity(0, &before); restore != nil {
		return errors.Join(err, restore) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// online is the file that says which CPUs there are: it stays open, and says what
// is true each time that it is read.
var online = sync.OnceValues(func() (*os.File, error) { return os.Open("/sys/devices/system/cpu/online") })

// onlineCPUs are those that packets may be on.
func onlineCPUs() ([]int, error) {
	if preemptRT() {
		return nil, errors.ErrUnsupported
	}
	file, err := online()
	if err != nil {
		return nil, err
	}
	var text [4096]byte
	n, err := file.ReadAt(text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(text[:n])))
}

// parseCPUs reads a list such as 0-3,8.
func parseCPUs(list string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from > to {
			return nil, fmt.Errorf("list of CPUs %q: %w", list, errors.Join(err, unix.EINVAL))
		}
		for cpu := from; cpu <= to; cpu++ {
			out = append(out, cpu)
		}
	}
	return out, nil
}

// preemptRT says that softirqs can be scheduled away.
var preemptRT = sync.OnceValue(func() bool {
	realtime, err := os.ReadFile("/sys/kernel/realtime")
	return err == nil && strings.TrimSpace(string(realtime)) == "1"
})

// Monotonic is the data path's clock, in nanoseconds.
func Monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return uint64(now.Nano()), nil
}
