package agent

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
)

// sample is what is made of counters that are read again and again.
type sample struct {
	taken   time.Time
	before  []uint64 // packets of each bucket then
	rates   []uint64 // packets per second of each bucket
	times   map[int]cpuClock
	loads   map[int]float64 // busy part of each CPU's time
	blind   error           // why loads has none
	last    []datapath.Bucket
	arrived map[int]uint64 // buckets that came to a CPU from another one
}

// cpuClock is what a CPU did since the machine started, in seconds.
type cpuClock struct{ busy, all float64 }

// cpuClocks reads those of all CPUs that are online. Time that a hypervisor gave to others counts as busy.
func cpuClocks() (map[int]cpuClock, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("load of CPUs: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil, fmt.Errorf("load of CPUs: %w", err)
	}
	out := map[int]cpuClock{}
	for cpu, t := range stat.CPU {
		busy := t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
		out[int(cpu)] = cpuClock{busy: busy, all: busy + t.Idle + t.Iowait}
	}
	return out, nil
}

// follow counts buckets that came to a CPU since the last call.
func (s *sample) follow(all []datapath.Bucket) {
	if s.arrived == nil {
		s.arrived = map[int]uint64{}
	}
	for i, was := range s.last {
		if is := all[i]; is.CPU >= 0 && is.CPU != was.CPU && (was.CPU >= 0 || was.Split) {
			s.arrived[is.CPU]++
		}
	}
	s.last = all
}

// take makes rates and loads of what was counted since the last call.
func (s *sample) take(now time.Time, all []datapath.Bucket, times map[int]cpuClock) {
	elapsed := now.Sub(s.taken).Seconds()
	rates, before := make([]uint64, len(all)), make([]uint64, len(all))
	for i, b := range all {
		before[i] = b.In
		if s.before != nil && b.In > s.before[i] {
			rates[i] = uint64(float64(b.In-s.before[i]) / elapsed)
		}
	}
	loads := map[int]float64{}
	for cpu, t := range times {
		if was, seen := s.times[cpu]; seen && t.all > was.all && t.busy >= was.busy {
			loads[cpu] = (t.busy - was.busy) / (t.all - was.all)
		}
	}
	s.taken, s.before, s.rates, s.times, s.loads = now, before, rates, times, loads
}

// rate is that of a bucket.
func (s *sample) rate(bucket int) uint64 {
	if bucket < len(s.rates) {
		return s.rates[bucket]
	}
	return 0
}
