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
		return fmt.Errorf("%d entries need about %d MB of memory, and %d MB are available: give fewer with --entries",
			entries, need>>20, available>>20)
	}
	return nil
}

func availableMemory(meminfo string) (uint64, error) {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kb, err := strconv.ParseUint(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s does not say MemAvailable", meminfo)
}
