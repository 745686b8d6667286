package config

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestCPUsOfMachine: a CPU that is not there, is offline, or is in nobody's cpuset but
// others' is told apart from those that can be used.
func TestCPUsOfMachine(t *testing.T) {
	const present, online = "sys/devices/system/cpu/present", "sys/devices/system/cpu/online"
	v2 := map[string]string{"proc/self/cgroup": "0::/system.slice/culvert.service\n", "sys/fs/cgroup/system.slice/cpuset.cpus.effective": "0-3\n", "sys/fs/cgroup/cpuset.cpus.effective": "0-6"}
	v1 := map[string]string{"proc/self/cgroup": "4:memory:/x\n3:cpuset:/pod/a\n0::/\n", "sys/fs/cgroup/cpuset/pod/a/cpuset.effective_cpus": "0-3\n"}
	for name, row := range map[string]struct {
		files          map[string]string
		cpus           CPUs
		problem, fix   string
		usable, broken string
	}{
		"all are there":       {nil, CPUs{0, 6}, "", "", "0-6", ""},
		"none is there":       {nil, CPUs{1, 8}, "CPU 8 does not exist", "name some of 0-6", "0-6", ""},
		"offline":             {nil, CPUs{7}, "CPU 7 is offline", "write 1 to /sys/devices/system/cpu/cpu7/online, or name some of 0-6", "0-6", ""},
		"in the cpuset":       {v2, CPUs{0, 3}, "", "", "0-3", ""},
		"not in the cpuset":   {v2, CPUs{3, 4}, "CPU 4 is not in the cpuset of the daemon's control group, 0-3", "name some of 0-3, or let the daemon have it", "0-3", ""},
		"nor in an older one": {v1, CPUs{4}, "CPU 4 is not in the cpuset", "name some of 0-3", "0-3", ""},
		"no cpuset":           {map[string]string{"proc/self/cgroup": "0::/\n"}, CPUs{6}, "", "", "0-6", ""},
		"garbage":             {map[string]string{"proc/self/cgroup": "x\n", online: "none"}, nil, "", "", "", "are not numbers of CPUs"},
	} {
		root := fstest.MapFS{present: {Data: []byte("0-7\n")}, online: {Data: []byte("0-6\n")}}
		for file, text := range row.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		m, err := readCPUs(root)
		if row.broken != "" {
			if err == nil || !strings.Contains(err.Error(), row.broken) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		problem, fix := m.check(row.cpus)
		if err != nil || !strings.HasPrefix(problem, row.problem) || (problem == "") != (row.problem == "") || !strings.HasPrefix(fix, row.fix) || m.usable().String() != row.usable {
			t.Errorf("%s: %v, %q, %q; usable %s", name, err, problem, fix, m.usable())
		}
	}
	if all, err := CPUs(nil).Usable(); err != nil || len(all) == 0 {
		t.Errorf("of this machine: %v, %v", all, err)
	}
	if _, err := (CPUs{4000}).Usable(); err == nil || !strings.Contains(err.Error(), "spread.cpus: CPU 4000 does not exist") {
		t.Errorf("of this machine: %v", err)
	}
}
