package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// usage is what /proc says at one moment.
type usage struct {
	when      time.Time
	cores     map[int64]procfs.CPUStat
	processes []watched
}

// watched is a process, and how long it has run.
type watched struct {
	name string
	pid  int
	ran  time.Duration
	own  bool // the kernel's thread is only its CPU time
}

// now reads it, for processes by name and for the kernel's threads that receive
// packets.
func now(watch map[string]int) (usage, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return usage{}, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return usage{}, err
	}
	u := usage{when: time.Now(), cores: stat.CPU}
	for name, pid := range watch {
		ran, err := proc.TimeOfAll(pid)
		if err != nil {
			return u, fmt.Errorf("CPU time of %s, process %d: %w", name, pid, err)
		}
		u.processes = append(u.processes, watched{name, pid, ran, true})
	}
	list, err := fs.AllProcs()
	if err != nil {
		return u, err
	}
	for _, p := range list {
		name, err := p.Comm()
		if err != nil || !strings.HasPrefix(name, "ksoftirqd/") && !strings.HasPrefix(name, "napi/") {
			continue // or it has ended
		}
		if ran, err := proc.Time(p.PID); err == nil {
			u.processes = append(u.processes, watched{name, p.PID, ran, false})
		}
	}
	return u, nil
}

// since is what was used from `before` to u.
func (u usage) since(before usage) CPUUsage {
	var c CPUUsage
	for cpu, n := range u.cores {
		b := before.cores[cpu]
		// The kernel counts in ticks, and not at one moment on all CPUs: the sum is the time.
		core := CoreUsage{
			CPU: int(cpu), User: n.User + n.Nice - b.User - b.Nice, System: n.System - b.System,
			Softirq: n.SoftIRQ + n.IRQ - b.SoftIRQ - b.IRQ, Steal: n.Steal - b.Steal, Idle: n.Idle + n.Iowait - b.Idle - b.Iowait,
		}
		all := core.User + core.System + core.Softirq + core.Steal + core.Idle
		for _, share := range []*float64{&core.User, &core.System, &core.Softirq, &core.Steal, &core.Idle} {
			*share = max(0, *share/max(all, 1e-9))
		}
		c.Cores = append(c.Cores, core)
	}
	slices.SortFunc(c.Cores, func(a, b CoreUsage) int { return a.CPU - b.CPU })
	for _, p := range u.processes {
		i := slices.IndexFunc(before.processes, func(b watched) bool { return b.pid == p.pid })
		if i < 0 {
			continue
		}
		used := ProcessUsage{Name: p.name, PID: p.pid, CPU: p.ran - before.processes[i].ran}
		if p.own {
			used.Resident, used.Maps, _ = proc.Memory(p.pid) // 0 of one that has ended
		}
		c.Processes = append(c.Processes, used)
	}
	slices.SortFunc(c.Processes, func(a, b ProcessUsage) int { return strings.Compare(a.Name, b.Name) })
	return c
}
