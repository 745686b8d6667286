package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
)

// bytesOfEntry is what the daemon and the benchmark hold for a SID, a tunnel or
// a steering entry while they come, as measured.
const bytesOfEntry = 4 << 10

// enoughMemory refuses tables that would make the kernel end a process in the
// middle of a run.
func enoughMemory(c *config.Config, meminfo string) error {
	available, err := availableMemory(meminfo)
	if err != nil {
		return err
	}
	entries := uint64(len(c.SIDs) + len(c.Tunnels) + len(c.Steering))
	if need := entries * bytesOfEntry; need > available {
		return fmt.Errorf("%d entries need about %d MB of memory, and %d MB are available: give fewer with --entries or --tunnels",
			entries, need>>20, available>>20)
	}
	return nil
}

func availableMemory(meminfo string) (uint64, error) { return meminfoField(meminfo, "MemAvailable:") }

func totalMemory(meminfo string) (uint64, error) { return meminfoField(meminfo, "MemTotal:") }

// meminfoField is in octets.
func meminfoField(meminfo, name string) (uint64, error) {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, err
	}
	kb, err := field(string(text), name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", meminfo, err)
	}
	return kb << 10, nil
}

// memory is the daemon's, resident, and that of the tables that it holds.
func (d *daemon) memory() (resident, tables uint64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
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
	tables, err = lockedBy(d.cmd.Process.Pid)
	return (resident - shared) << 10, tables, err
}

func field(status, name string) (uint64, error) {
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			return strconv.ParseUint(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not say %s", name)
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
