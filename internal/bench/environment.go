package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
	"golang.org/x/sys/unix"
)

// environment is where figures come from.
type environment struct {
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	Load     string            `json:"load"` // average, when it began
	Commit   string            `json:"commit"`
	Version  string            `json:"version"`
	DataPath string            `json:"data_path"` // hash of the loaded build
	Offloads map[string]string `json:"offloads"`  // of the receiving interface
	Rounds   int               `json:"rounds"`
	Packets  uint32            `json:"packets"` // of a live run
}

// environmentOf is a run's, whose packets of one run are not in it.
func environmentOf(run *result.Run, packets int) environment {
	e := run.Environment
	return environment{
		Kernel: e.Kernel, CPU: e.CPU, CPUs: e.CPUs, Load: e.Load, Commit: e.Commit, Version: e.Version, DataPath: e.DataPath,
		Offloads: e.Offloads, Rounds: run.Rounds, Packets: uint32(packets),
	}
}

func (e environment) String() string {
	return fmt.Sprintf("%s, Linux %s, %d CPUs, load %s, commit %s", e.CPU, e.Kernel, e.CPUs, e.Load, e.Commit)
}

// machine is what a run says of where it was measured, and by which build.
func machine() (e result.Environment, err error) {
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

// offloads are the features of an interface that change what packets look
// like, if ethtool is there to tell.
func (n namespace) offloads(port string) map[string]string {
	out := map[string]string{}
	var text []byte
	err := n.do(func() (err error) {
		text, err = exec.Command("ethtool", "-k", port).Output()
		return err
	})
	if err != nil {
		return map[string]string{"unknown": err.Error()}
	}
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), ": ")
		switch name {
		case "rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
			"generic-segmentation-offload", "generic-receive-offload", "large-receive-offload":
			if ok {
				out[name] = value
			}
		}
	}
	return out
}
