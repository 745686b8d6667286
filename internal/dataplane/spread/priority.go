package spread

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raise has the threads of all queues run before ordinary tasks: a busy machine would
// otherwise let their queues overflow. The kernel names them cpumap/CPU/map:ID.
func (s *Spread) raise() error {
	var errs []error
	for _, m := range []bool{false, true} {
		info, err := s.mapOf(m).Info()
		if err != nil {
			return err
		}
		id, ok := info.ID()
		if !ok {
			return errors.New("the kernel does not say a map's id")
		}
		errs = append(errs, raiseThreads(s.queuesIn(m), uint32(id)))
	}
	return errors.Join(errs...)
}

// queuesIn are the CPUs that have a queue in a map.
func (s *Spread) queuesIn(second bool) map[int]bool {
	cpus := map[int]bool{}
	for cpu := range int(s.t.Queues.Len / 2) {
		if s.hasQueue(cpu, second) {
			cpus[cpu] = true
		}
	}
	return cpus
}

// raiseThreads finds the threads of a map by their names in /proc.
func raiseThreads(cpus map[int]bool, id uint32) error {
	if len(cpus) == 0 {
		return nil
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range names {
		name, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var cpu int
		var of uint32
		if n, _ := fmt.Sscanf(string(name), "cpumap/%d/map:%d", &cpu, &of); n != 2 || of != id || !cpus[cpu] {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(file, "/proc/"), "/comm"))
		if err == nil {
			err = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("thread %s: set real-time priority: %w", strings.TrimSpace(string(name)), err))
		}
		delete(cpus, cpu)
	}
	for cpu := range cpus {
		errs = append(errs, fmt.Errorf("CPU %d: its thread is not in /proc: run culvert where the host's processes are seen (hostPID)", cpu))
	}
	return errors.Join(errs...)
}
