package traffic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// usage is what /proc says at one moment.
type usage struct {
	watch     map[string]int
	cores     map[int64]procfs.CPUStat
	processes []ProcessUsage // CPU: since each began
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
	u := usage{watch: watch, cores: stat.CPU}
	for name, pid := range watch {
		ran, err := proc.TimeOfAll(pid)
		if err != nil {
			return u, fmt.Errorf("CPU time of %s, process %d: %w", name, pid, err)
		}
		u.processes = append(u.processes, ProcessUsage{Name: name, PID: pid, CPU: ran})
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
			u.processes = append(u.processes, ProcessUsage{Name: name, PID: p.PID, CPU: ran})
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
	for _, used := range u.processes {
		i := slices.IndexFunc(before.processes, func(b ProcessUsage) bool { return b.PID == used.PID })
		if i < 0 {
			continue
		}
		used.CPU -= before.processes[i].CPU
		if u.watch[used.Name] == used.PID {
			used.Resident, used.Maps, _ = proc.Memory(used.PID) // 0 of one that has ended
		}
		c.Processes = append(c.Processes, used)
	}
	slices.SortFunc(c.Processes, func(a, b ProcessUsage) int { return strings.Compare(a.Name, b.Name) })
	return c
}
