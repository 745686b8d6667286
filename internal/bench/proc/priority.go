package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ahead is the nice value of what must not wait for others' programs. The
// generator's thread goes before it, and spins: whoever shares its CPU gets a
// tenth of it at this value, and a hundredth at the usual one.
const ahead = -10

// GoAhead lets all of this process, and what it starts from then on, go before
// others' programs. The function that it returns takes that back.
func GoAhead() (back func() error, err error) {
	usual, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return nil, fmt.Errorf("read this process's priority: %w", err)
	}
	return func() error { return setNice(20 - usual) }, setNice(ahead) // the system call gives 20 - nice
}

// setNice sets the nice value of each thread: new ones have that of the thread
// that made them.
func setNice(nice int) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("set the priority of thread %d: %w", id, err)
		}
	}
	return nil
}

// Awake keeps idle CPUs from halting until the function that it returns is called: a
// halted CPU, above all a virtual machine's, can need milliseconds to wake up, and what
// comes meanwhile overflows a veth's queue. A machine that cannot say so is left as it is.
func Awake() (back func() error, err error) {
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0) // in force while it is open
	if errors.Is(err, os.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, 4)); err != nil { // 0 us
		return nil, errors.Join(fmt.Errorf("keep idle CPUs awake: %w", err), f.Close())
	}
	return f.Close, nil
}

// Realtime is the lowest real-time priority.
const Realtime = 1

// GoRealtime lets a thread (0: the calling one) go at once before all that have no
// real-time priority, or a lower one.
func GoRealtime(thread int, priority uint32) error {
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	if err := unix.SchedSetAttr(thread, &attr, 0); err != nil {
		return fmt.Errorf("set the priority of thread %d: %w", thread, err)
	}
	return nil
}

// AllRealtime does so with all threads of a process, and so with those that they start.
func AllRealtime(pid int, priority uint32) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := GoRealtime(id, priority); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
