package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Memory returns a process's own memory (RSS less mapped files), and that of the
// BPF maps that it has open, in octets.
func Memory(pid int) (resident, maps uint64, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	s, err := p.NewStatus()
	if err != nil {
		return 0, 0, err
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		info := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 {
				info[f[0]] = f[1]
			}
		}
		if id := info["map_id:"]; id != "" && !seen[id] {
			seen[id] = true
			size, _ := strconv.ParseUint(info["memlock:"], 10, 64) // the kernel wrote it
			maps += size
		}
	}
	return s.VmRSS - s.RssFile, maps, nil
}

// Available returns the machine's available memory and all of it, in octets, as
// the file meminfo of a folder says; that of the kernel is /proc.
func Available(folder string) (available, total uint64, err error) {
	fs, err := procfs.NewFS(folder)
	if err != nil {
		return 0, 0, err
	}
	m, err := fs.Meminfo()
	if err != nil {
		return 0, 0, err
	}
	if m.MemAvailableBytes == nil || m.MemTotalBytes == nil {
		return 0, 0, fmt.Errorf("%s/meminfo does not say MemAvailable and MemTotal", folder)
	}
	return *m.MemAvailableBytes, *m.MemTotalBytes, nil
}
