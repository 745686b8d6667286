package traffic

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
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
		ran, err := ranFor(fs, pid)
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
		if s, err := p.Schedstat(); err == nil {
			u.processes = append(u.processes, watched{name, p.PID, time.Duration(s.RunningNanoseconds), false})
		}
	}
	return u, nil
}

// usage is what was used since the trial began.
func (p *Pair) usage(before usage) (CPUUsage, error) {
	after, err := now(p.options.Watch)
	return after.since(before), err
}

// ranFor is the CPU time of all threads that a process has.
func ranFor(fs procfs.FS, pid int) (sum time.Duration, err error) {
	threads, err := fs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // else it has ended
			sum += time.Duration(s.RunningNanoseconds)
		}
	}
	return sum, nil
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
			used.Resident, used.Maps = memoryOf(p.pid)
		}
		c.Processes = append(c.Processes, used)
	}
	slices.SortFunc(c.Processes, func(a, b ProcessUsage) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// memoryOf is a process's own memory, and that of the BPF maps that it has open;
// 0 of one that has ended.
func memoryOf(pid int) (resident, maps uint64) {
	if p, err := procfs.NewProc(pid); err == nil {
		if s, err := p.NewStatus(); err == nil {
			resident = s.VmRSS - s.RssFile
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return resident, 0
	}
	seen := map[string]bool{}
	for _, path := range files {
		info := fields(path)
		if id := info["map_id:"]; id != "" && !seen[id] {
			seen[id] = true
			size, _ := strconv.ParseUint(info["memlock:"], 10, 64) // the kernel wrote it
			maps += size
		}
	}
	return resident, maps
}

// fields are the lines of a file by their first words.
func fields(path string) map[string]string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // closed meanwhile
	}
	list := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			list[f[0]] = f[1]
		}
	}
	return list
}
