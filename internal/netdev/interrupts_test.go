package netdev

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// machineFiles is a procfs and sysfs with recorded interrupts, each of which goes to the
// CPUs of its list, and with devices on a bus.
func machineFiles(t *testing.T, interrupts string, affinity, bus map[string]string) (procfs, sysfs string) {
	t.Helper()
	procfs, sysfs = t.TempDir(), t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", interrupts))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"interrupts": string(text)}
	for path, list := range affinity {
		files["irq/"+path] = list + "\n"
	}
	for name, content := range files {
		path := filepath.Join(procfs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for device, on := range bus {
		dir := filepath.Join(sysfs, "class/net", device)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../"+on, filepath.Join(dir, "device")); err != nil {
			t.Fatal(err)
		}
	}
	return procfs, sysfs
}

// TestInterrupts finds the interrupts of receive queues by the names that drivers give
// them, and no neighbour's.
func TestInterrupts(t *testing.T) {
	procfs, sysfs := machineFiles(t, "interrupts-cards", map[string]string{
		"121/effective_affinity_list": "0", "121/smp_affinity_list": "0-3",
		"122/effective_affinity_list": "", "122/smp_affinity_list": "0,2-3", // no interrupt yet
		"123/smp_affinity_list": "3",
		"131/smp_affinity_list": "1", "132/smp_affinity_list": "2", "133/smp_affinity_list": "2",
		"141/smp_affinity_list": "1", "142/smp_affinity_list": "1",
	}, map[string]string{"eth1": "0000:3b:00.0", "eth2": "0000:5e:00.0", "eth3": "0000:5a:00.0"})
	for device, want := range map[string]map[int]Interrupt{
		"eth1":  {0: {121, []int{0}}, 1: {122, []int{0, 2, 3}}},
		"eth10": {0: {123, []int{3}}},
		"eth2":  {0: {131, []int{1}}, 1: {132, []int{2}}},
		"eth3":  {0: {141, []int{1}}},
		"eth":   {},
		"lo":    {},
	} {
		if got, err := Interrupts(procfs, sysfs, device); err != nil || !maps.EqualFunc(got, want, func(a, b Interrupt) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("%s: %v, %v; want %v", device, got, err, want)
		}
	}
	procfs, sysfs = machineFiles(t, "interrupts-virtio", map[string]string{"38/smp_affinity_list": "0-1"}, map[string]string{"eth0": "virtio2"})
	if got, err := Interrupts(procfs, sysfs, "eth0"); err != nil || len(got) != 1 || got[0].Number != 38 || len(got[0].CPUs) != 2 {
		t.Errorf("virtio: %v, %v", got, err)
	}
}

// TestInterruptsThatCannotBeRead: an error names the device, and what is wrong.
func TestInterruptsThatCannotBeRead(t *testing.T) {
	bus := map[string]string{"eth3": "0000:5a:00.0"}
	for want, affinity := range map[string]map[string]string{
		"irq/141/smp_affinity_list":                      nil,
		`interrupt 141: "all\n" are not numbers of CPUs`: {"141/smp_affinity_list": "all"},
		`interrupt 141: "\n" are not numbers of CPUs`:    {"141/smp_affinity_list": ""},
	} {
		procfs, sysfs := machineFiles(t, "interrupts-cards", affinity, bus)
		if got, err := Interrupts(procfs, sysfs, "eth3"); err == nil || !strings.HasPrefix(err.Error(), "eth3: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", got, err, want)
		}
	}
	if _, err := Interrupts(t.TempDir(), t.TempDir(), "eth3"); err == nil {
		t.Error("no error without procfs")
	}
}
