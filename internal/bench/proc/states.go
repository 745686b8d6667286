package proc

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// States is how long a CPU was in each state since the machine started, or in a time: in seconds.
type States struct {
	User, Nice, System, IOWait, Steal, Idle float64
}

// StatesOf are those of a CPU. System includes interrupts and softirqs, in which the kernel
// handles packets.
func StatesOf(cpu int) (States, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return States{}, err
	}
	all, err := fs.Stat()
	if err != nil {
		return States{}, err
	}
	c, ok := all.CPU[int64(cpu)]
	if !ok {
		return States{}, fmt.Errorf("/proc/stat has no CPU %d", cpu)
	}
	return States{User: c.User, Nice: c.Nice, System: c.System + c.IRQ + c.SoftIRQ, IOWait: c.Iowait, Steal: c.Steal, Idle: c.Idle}, nil
}

// Since is the time since an earlier reading.
func (s States) Since(earlier States) States {
	return States{
		User: s.User - earlier.User, Nice: s.Nice - earlier.Nice, System: s.System - earlier.System,
		IOWait: s.IOWait - earlier.IOWait, Steal: s.Steal - earlier.Steal, Idle: s.Idle - earlier.Idle,
	}
}

// Shares are those of each state but idle, in %, by name, and of all of them together.
func (s States) Shares() map[string]float64 {
	busy := s.User + s.Nice + s.System + s.IOWait + s.Steal
	shares := map[string]float64{"user": s.User, "nice": s.Nice, "system": s.System, "iowait": s.IOWait, "steal": s.Steal, "total": busy}
	for name, seconds := range shares {
		shares[name] = 100 * seconds / (busy + s.Idle)
	}
	return shares
}
