package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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

// Bind binds all threads of a process to one CPU. Threads and processes that they start
// are bound too.
func Bind(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := bind(pid, &set); err != nil {
		return fmt.Errorf("CPU %d: %w", cpu, err)
	}
	return nil
}

// Stay binds all of this process to one CPU, as Bind does. The function that it returns
// takes that back, also where there is an error.
func Stay(cpu int) (back func() error, err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return func() error { return nil }, fmt.Errorf("read the CPUs that may be used: %w", err)
	}
	return func() error { return bind(os.Getpid(), &before) }, Bind(os.Getpid(), cpu)
}

func bind(pid int, set *unix.CPUSet) error {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return err
	}
	for _, t := range threads {
		if err := unix.SchedSetaffinity(t.PID, set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("bind thread %d of process %d: %w", t.PID, pid, err)
		}
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
type Clock struct{ softirqd int }

// NewClock finds ksoftirqd of a CPU.
func NewClock(cpu int) (Clock, error) {
	pid, err := Softirqd(cpu)
	return Clock{pid}, err
}

// Softirqd returns the process of a CPU's ksoftirqd.
func Softirqd(cpu int) (pid int, err error) {
	name := fmt.Sprintf("ksoftirqd/%d", cpu)
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if comm, err := p.Comm(); err == nil && comm == name {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("no %s in /proc: mount /proc of the host", name)
}

// During is the CPU time of both in f. The thread must be locked.
func (c Clock) During(f func() error) (time.Duration, error) {
	return During(func() (time.Duration, error) { return Time(unix.Gettid(), c.softirqd) }, f)
}

// During is by how much a time grows in f.
func During(read func() (time.Duration, error), f func() error) (time.Duration, error) {
	before, err := read()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := read()
	return after - before, err
}

// Time returns how long some threads have run, all together.
func Time(tids ...int) (sum time.Duration, err error) {
	for _, tid := range tids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w (the kernel needs CONFIG_SCHED_INFO)", err)
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of thread %d, %q: %w", tid, text, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// TimeOfAll returns how long all threads of a process have run.
func TimeOfAll(pid int) (sum time.Duration, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		if ran, err := Time(t.PID); err == nil { // else it has ended
			sum += ran
		}
	}
	return sum, nil
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
