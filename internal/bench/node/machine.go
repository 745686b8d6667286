package node

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// Machine is what a run says of where it was measured, and by which build.
func Machine() (e result.Environment, err error) {
	e.CPUs = runtime.NumCPU()
	build := map[string]string{} // what this program was built from, if the build says it
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			build[s.Key] = s.Value
		}
	}
	if e.Commit = build["vcs.revision"]; build["vcs.modified"] == "true" {
		e.Commit += "-dirty"
	}
	e.Version = e.Commit
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return e, fmt.Errorf("uname: %w", err)
	}
	e.Kernel = unix.ByteSliceToString(u.Release[:])
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return e, err
	}
	e.CPU = runtime.GOARCH
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			e.CPU = strings.TrimSpace(value)
			break
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return e, err
	}
	e.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	_, memory, err := proc.Available("/proc")
	e.MemoryMB = int(memory >> 20)
	return e, err
}
