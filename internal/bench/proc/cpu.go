package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin binds the calling thread to one CPU.
func Pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPU %d: %w", cpu, err)
	}
	return nil
}

// Allowed are those that the process may run on.
func Allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	var cpus []int
	for i := range 8 * 128 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// Chosen is the last that the process may run on, where none is given.
func Chosen(cpu int) (int, error) {
	if cpu >= 0 {
		return cpu, nil
	}
	cpus, err := Allowed()
	if err != nil {
		return 0, err
	}
	return cpus[len(cpus)-1], nil
}

// One returns the chosen CPU in a list.
func One(chosen int) ([]int, error) {
	cpu, err := Chosen(chosen)
	return []int{cpu}, err
}

// Clock reads what the calling thread and one CPU's ksoftirqd have run for:
// together, what the frames cost that the thread sent.
type Clock struct{ softirqd string }

// NewClock finds ksoftirqd of a CPU.
func NewClock(cpu int) (Clock, error) {
	name := fmt.Sprintf("ksoftirqd/%d\n", cpu)
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return Clock{}, err
	}
	for _, p := range paths {
		if text, err := os.ReadFile(p); err == nil && string(text) == name {
			return Clock{filepath.Join(filepath.Dir(p), "schedstat")}, nil
		}
	}
	return Clock{}, fmt.Errorf("no %s in /proc: mount /proc of the host", strings.TrimSpace(name))
}

func (c Clock) now() (uint64, error) {
	thread, err := schedstat("/proc/thread-self/schedstat")
	if err != nil {
		return 0, err
	}
	softirqd, err := schedstat(c.softirqd)
	return thread + softirqd, err
}

// During is the CPU time of f, in ns. The thread must be locked.
func (c Clock) During(f func() error) (uint64, error) {
	before, err := c.now()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := c.now()
	return after - before, err
}

// schedstat reads a task's time on a CPU.
func schedstat(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w (the kernel needs CONFIG_SCHED_INFO)", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0, fmt.Errorf("%s is empty: the kernel needs CONFIG_SCHED_INFO", path)
	}
	return strconv.ParseUint(fields[0], 10, 64)
}

// Pair is who works where.
type Pair struct{ Generator, Device int }

// PickPair gives the generator one CPU, and built-in devices another.
func PickPair(wanted int) (p Pair, err error) {
	cpus, err := Allowed()
	if err != nil {
		return p, err
	}
	p = Pair{cpus[len(cpus)-1], cpus[0]}
	if wanted >= 0 {
		p.Generator = wanted
	}
	if p.Generator == p.Device {
		p.Device = cpus[len(cpus)-1]
	}
	return p, nil
}

// Both are the generator's CPU and the device's.
func Both(chosen int) ([]int, error) {
	p, err := PickPair(chosen)
	return []int{p.Generator, p.Device}, err
}

// ErrTwo says that two CPUs are needed.
var ErrTwo = errors.New("two cores over one need two CPUs, and this process may use one")

// Two are the last two that the process may run on.
func Two() ([]int, error) {
	cpus, err := Allowed()
	if err == nil && len(cpus) < 2 {
		err = ErrTwo
	}
	if err != nil {
		return nil, err
	}
	return cpus[len(cpus)-2:], nil
}
