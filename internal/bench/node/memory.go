package node

import (
	"fmt"
	"os"
)

// Memory is the daemon's, resident, and that of the tables that it holds.
func (d *Daemon) Memory() (resident, tables uint64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	if resident, err = field(string(status), "VmRSS:"); err != nil {
		return 0, 0, err
	}
	shared, err := field(string(status), "RssFile:")
	if err != nil {
		return 0, 0, err
	}
	tables, err = lockedBy(d.Cmd.Process.Pid)
	return (resident - shared) << 10, tables, err
}

// lockedBy sums the memory of the BPF maps that a process has open.
func lockedBy(pid int) (uint64, error) {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	seen, sum := map[uint64]bool{}, uint64(0)
	for _, e := range entries {
		text, err := os.ReadFile(dir + "/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		id, err := field(string(text), "map_id:")
		if err != nil || seen[id] {
			continue
		}
		seen[id] = true
		size, err := field(string(text), "memlock:")
		if err != nil {
			return 0, err
		}
		sum += size
	}
	return sum, nil
}
