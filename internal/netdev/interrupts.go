package netdev

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Interrupt is that of a receive queue.
type Interrupt struct {
	Number int
	CPUs   []int // that the kernel lets get it, rising
}

// Interrupts returns the interrupts of a device's receive queues, by queue, from procfs
// and sysfs, which are mounted there. Nothing: the device has none, or its driver gives
// them names of its own.
func Interrupts(procfs, sysfs, device string) (map[int]Interrupt, error) {
	text, err := os.ReadFile(filepath.Join(procfs, "interrupts"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", device, err)
	}
	names := interruptNames(device, busName(sysfs, device))
	out := map[int]Interrupt{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":"))
		match := names.FindStringSubmatch(fields[len(fields)-1])
		if err != nil || match == nil {
			continue
		}
		queue, err := strconv.Atoi(match[1] + match[2] + match[3])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", device, match[0], err)
		}
		cpus, err := affinity(procfs, number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", device, err)
		}
		out[queue] = Interrupt{number, cpus}
	}
	return out, nil
}

// busName is how a device's bus calls it, such as virtio2 or 0000:3b:00.0; "" if it is
// on none.
func busName(sysfs, device string) string {
	target, err := os.Readlink(filepath.Join(sysfs, "class/net", device, "device"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// interruptNames matches what drivers call the interrupts of a device's receive queues:
// eth1-TxRx-0 after the driver's name or alone, eth1-rx-0, eth1-0; virtio2-input.0;
// mlx5_comp0@pci:0000:3b:00.0.
func interruptNames(device, bus string) *regexp.Regexp {
	if bus == "" {
		bus = "/" // which is in no name
	}
	d, b := regexp.QuoteMeta(device), regexp.QuoteMeta(bus)
	return regexp.MustCompile(`^(?:[a-z0-9_]+-)?` + d + `(?i:-txrx|-tx-rx|-rxtx|-rx)?-([0-9]+)$` +
		`|^` + b + `-input\.([0-9]+)$|^[a-z0-9]+_comp([0-9]+)@pci:` + b + `$`)
}

// affinity is which CPUs get an interrupt: the kernel chooses among those that the
// operator allows.
func affinity(procfs string, number int) ([]int, error) {
	dir := filepath.Join(procfs, "irq", strconv.Itoa(number))
	list, err := os.ReadFile(filepath.Join(dir, "effective_affinity_list"))
	if err != nil || len(bytes.TrimSpace(list)) == 0 {
		list, err = os.ReadFile(filepath.Join(dir, "smp_affinity_list"))
	}
	if err != nil {
		return nil, err
	}
	set, err := cpuset.Parse(string(bytes.TrimSpace(list)))
	if err != nil || set.IsEmpty() {
		return nil, fmt.Errorf("interrupt %d: %q are not numbers of CPUs", number, list)
	}
	return set.List(), nil
}
