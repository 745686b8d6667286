// Package napi makes what receives an interface's packets a kernel thread on a
// CPU of the caller's choice. A device whose packets are received in the softirq
// of the CPU that sends them is never too slow: the sender waits for it. With a
// thread on another CPU the interface's queue overflows as a network card's
// would. Everything behind it that is handed on within softirqs, as veth pairs
// do, runs in that thread too.
package napi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// Of the generic netlink family netdev (Documentation/netlink/specs/netdev.yaml
// of Linux 6.8).
const (
	familyNetdev  = "netdev"
	familyVersion = 1
	cmdNAPIGet    = 11
	attrIfindex   = 1
	attrPID       = 4
)

// Threads receive the packets of an interface, one for each of its queues.
type Threads struct {
	PIDs []int

	namespace, device string
}

// Start makes the interface's receiving threads and binds them to a CPU, where
// they go before other programs: nothing else is to look like a device that is too
// slow. With any nice value they would wait for the slice of whoever runs (3 ms), which
// fills a veth's queue at 100000 packets/s. The namespace is a path; "" is that of the
// calling process.
func Start(namespace, device string, cpu int) (_ *Threads, err error) {
	t := &Threads{namespace: namespace, device: device}
	if err := set(namespace, device, "threaded", "1"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Stop())
		}
	}()
	if t.PIDs, err = t.find(); err != nil {
		return nil, fmt.Errorf("threads of interface %s: %w", device, err)
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, pid := range t.PIDs {
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			return nil, fmt.Errorf("bind thread %d of interface %s to CPU %d: %w", pid, device, cpu, err)
		}
		if err := proc.GoRealtime(pid, proc.Realtime); err != nil {
			return nil, fmt.Errorf("interface %s: %w", device, err)
		}
	}
	return t, nil
}

// Stop ends the threads: packets are received in softirqs again.
func (t *Threads) Stop() error { return set(t.namespace, t.device, "threaded", "0") }

// deferred is for how long after a poll an interface's packets wait for the next one, and
// deferrals how often, before they interrupt again: a timer ends each wait, so that many
// would take the CPU of a device that has nothing to do.
const (
	deferred  = 20 * time.Microsecond
	deferrals = 10
)

// Defer leaves the interface's packets to a program that polls for them
// (SO_PREFER_BUSY_POLL): while it does, they interrupt nobody.
func Defer(namespace, device string) error {
	return errors.Join(set(namespace, device, "napi_defer_hard_irqs", strconv.Itoa(deferrals)),
		set(namespace, device, "gro_flush_timeout", strconv.Itoa(int(deferred))))
}

// Steer has what an interface receives handled on a CPU, whichever received it (receive packet
// steering).
func Steer(namespace, device string, cpu int) error {
	words := make([]string, 1+cpu/32) // of 32 bits, the most significant first
	for i := range words {
		words[i] = "0"
	}
	words[0] = strconv.FormatUint(1<<(cpu%32), 16)
	return set(namespace, device, "queues/rx-0/rps_cpus", strings.Join(words, ","))
}

// set writes a setting of an interface. /sys shows the interfaces of the namespace
// that it was mounted in, so this namespace's is mounted, where nobody sees it.
func set(namespace, device, setting, value string) error {
	return proc.Inside(namespace, func() error {
		sys, err := mountSys()
		if err != nil {
			return fmt.Errorf("/sys of the namespace: %w", err)
		}
		defer sys.Close()
		path := filepath.Join("class/net", device, setting)
		fd, err := unix.Openat(int(sys.Fd()), path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("interface %s (/sys/%s, Linux 5.12): %w", device, path, err)
		}
		f := os.NewFile(uintptr(fd), path)
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
}

// mountSys is /sys of the calling thread's network namespace, mounted at no
// place.
func mountSys() (*os.File, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sysfs"), nil
}

// find asks for the threads' numbers. They are there once the kernel has started
// them.
func (t *Threads) find() (pids []int, err error) {
	err = proc.Inside(t.namespace, func() error {
		i, err := net.InterfaceByName(t.device)
		if err != nil {
			return err
		}
		for end := time.Now().Add(time.Second); len(pids) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if pids, err = threadsOf(i.Index); err != nil {
				return err
			}
		}
		if len(pids) == 0 {
			return errors.New("the kernel names none: is the interface up, with an XDP program or GRO?")
		}
		return nil
	})
	return pids, err
}

// threadsOf are the threads of an interface of the calling thread's namespace.
func threadsOf(ifindex int) ([]int, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("generic netlink: %w", err)
	}
	defer conn.Close()
	family, err := conn.GetFamily(familyNetdev)
	if err != nil {
		return nil, fmt.Errorf("generic netlink family %s (Linux 6.8): %w", familyNetdev, err)
	}
	e := netlink.NewAttributeEncoder()
	e.Uint32(attrIfindex, uint32(ifindex))
	data, err := e.Encode()
	if err != nil {
		return nil, err
	}
	request := genetlink.Message{Header: genetlink.Header{Command: cmdNAPIGet, Version: familyVersion}, Data: data}
	answers, err := conn.Execute(request, family.ID, netlink.Request|netlink.Dump)
	if err != nil {
		return nil, fmt.Errorf("ask for NAPI instances: %w", err)
	}
	var pids []int
	for _, m := range answers {
		d, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return nil, err
		}
		for d.Next() {
			if d.Type() == attrPID {
				pids = append(pids, int(d.Uint32()))
			}
		}
		if err := d.Err(); err != nil {
			return nil, err
		}
	}
	return pids, nil
}
