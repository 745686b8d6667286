package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pin binds the calling thread to one CPU.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPU %d: %w", cpu, err)
	}
	return nil
}

// allowedCPUs are those that the process may run on.
func allowedCPUs() ([]int, error) {
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

// chosenCPU is the last that the process may run on, where none is given.
func chosenCPU(cpu int) (int, error) {
	if cpu >= 0 {
		return cpu, nil
	}
	cpus, err := allowedCPUs()
	if err != nil {
		return 0, err
	}
	return cpus[len(cpus)-1], nil
}

func oneCPU(chosen int) ([]int, error) {
	cpu, err := chosenCPU(chosen)
	return []int{cpu}, err
}

// clock reads what the calling thread and one CPU's ksoftirqd have run for:
// together, what the frames cost that the thread sent.
type clock struct{ softirqd string }

// newClock finds ksoftirqd of a CPU.
func newClock(cpu int) (clock, error) {
	name := fmt.Sprintf("ksoftirqd/%d\n", cpu)
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return clock{}, err
	}
	for _, p := range paths {
		if text, err := os.ReadFile(p); err == nil && string(text) == name {
			return clock{filepath.Join(filepath.Dir(p), "schedstat")}, nil
		}
	}
	return clock{}, fmt.Errorf("no %s in /proc: mount /proc of the host", strings.TrimSpace(name))
}

func (c clock) now() (uint64, error) {
	thread, err := schedstat("/proc/thread-self/schedstat")
	if err != nil {
		return 0, err
	}
	softirqd, err := schedstat(c.softirqd)
	return thread + softirqd, err
}

// during is the CPU time of f, in ns. The thread must be locked.
func (c clock) during(f func() error) (uint64, error) {
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

// cpuPair is who works where.
type cpuPair struct{ generator, device int }

// pickCPUs gives the generator one CPU, and built-in devices another.
func pickCPUs(wanted int) (p cpuPair, err error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return p, err
	}
	p = cpuPair{cpus[len(cpus)-1], cpus[0]}
	if wanted >= 0 {
		p.generator = wanted
	}
	if p.generator == p.device {
		p.device = cpus[len(cpus)-1]
	}
	return p, nil
}

// both are the generator's CPU and the device's.
func both(chosen int) ([]int, error) {
	p, err := pickCPUs(chosen)
	return []int{p.generator, p.device}, err
}

var errTwoCPUs = errors.New("two cores over one need two CPUs, and this process may use one")

// twoCPUs are the last two that the process may run on.
func twoCPUs() ([]int, error) {
	cpus, err := allowedCPUs()
	if err == nil && len(cpus) < 2 {
		err = errTwoCPUs
	}
	if err != nil {
		return nil, err
	}
	return cpus[len(cpus)-2:], nil
}
