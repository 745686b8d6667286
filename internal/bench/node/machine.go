package node

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Machine is what a run says of where it was measured, and by which build.
func Machine() (e result.Environment, err error) {
	e.CPUs, e.Commit = runtime.NumCPU(), commit()
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
	e.CPU = cpuModel(string(info))
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return e, err
	}
	e.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	memory, err := totalMemory("/proc/meminfo")
	e.MemoryMB = int(memory >> 20)
	return e, err
}

func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// commit is what this program was built from, if the build says it.
func commit() string {
	revision, dirty := "", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return revision + dirty
}

// AvailableMemory returns MemAvailable of a meminfo file, in octets.
func AvailableMemory(meminfo string) (uint64, error) { return meminfoField(meminfo, "MemAvailable:") }

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

func field(status, name string) (uint64, error) {
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			return strconv.ParseUint(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not say %s", name)
}
