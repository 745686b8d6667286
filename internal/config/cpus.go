package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// machineCPUs are the CPUs of a machine.
type machineCPUs struct {
	present, online CPUs
	allowed         CPUs // to the process, by its control group
}

// readCPUs reads them below root, where /proc and /sys are.
func readCPUs(root fs.FS) (m machineCPUs, err error) {
	if m.present, err = readCPUList(root, "sys/devices/system/cpu/present"); err != nil {
		return m, err
	}
	if m.online, err = readCPUList(root, "sys/devices/system/cpu/online"); err != nil {
		return m, err
	}
	m.allowed, err = readCPUSet(root)
	return m, err
}

func readCPUList(root fs.FS, name string) (c CPUs, err error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	return c, c.UnmarshalText(bytes.TrimSpace(text))
}

// readCPUSet looks in the process's control group, and in those around it, for the cpuset
// that holds there: of version 2, or of version 1. Without any, all CPUs are allowed.
func readCPUSet(root fs.FS) (CPUs, error) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // 0::PATH, or N:cpuset:PATH
		if len(part) < 3 || part[1] != "" && part[1] != "cpuset" {
			continue
		}
		base, file := "sys/fs/cgroup", "cpuset.cpus.effective"
		if part[1] != "" {
			base, file = "sys/fs/cgroup/cpuset", "cpuset.effective_cpus"
		}
		for group := path.Clean("/" + part[2]); ; group = path.Dir(group) {
			c, err := readCPUList(root, path.Join(base, group, file))
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return c, err
			}
			if group == "/" {
				break
			}
		}
	}
	return nil, nil
}

// usable are those on which the process may have packets handled.
func (m machineCPUs) usable() CPUs {
	return slices.DeleteFunc(slices.Clone(m.online), func(cpu int) bool { return m.allowed != nil && !slices.Contains(m.allowed, cpu) })
}

// check says of the first CPU of c that cannot be used what is wrong with it, and the fix.
func (m machineCPUs) check(c CPUs) (problem, fix string) {
	for _, cpu := range c {
		switch {
		case !slices.Contains(m.present, cpu):
			return fmt.Sprintf("CPU %d does not exist", cpu), "name some of " + m.usable().String()
		case !slices.Contains(m.online, cpu):
			return fmt.Sprintf("CPU %d is offline", cpu),
				fmt.Sprintf("write 1 to /sys/devices/system/cpu/cpu%d/online, or name some of %s", cpu, m.usable())
		case !slices.Contains(m.usable(), cpu):
			return fmt.Sprintf("CPU %d is not in the cpuset of the daemon's control group, %s", cpu, m.allowed),
				fmt.Sprintf("name some of %s, or let the daemon have it (AllowedCPUs in systemd)", m.usable())
		}
	}
	return "", ""
}

// Usable are the CPUs of c, which all are of the machine that the process runs on and
// which it may use; of none, all such CPUs.
func (c CPUs) Usable() (CPUs, error) {
	m, err := readCPUs(os.DirFS("/"))
	if err != nil {
		return nil, fmt.Errorf("spread.cpus: %w", err)
	}
	if len(c) == 0 {
		return m.usable(), nil
	}
	if problem, fix := m.check(c); problem != "" {
		return nil, Errors{{Field: "spread.cpus", Problem: problem, Fix: fix}}
	}
	return c, nil
}
