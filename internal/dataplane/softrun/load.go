package softrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// kernel is what culvert-soft has in the kernel (bpf/soft/kernel.c), in the order in which
// the process inherits it.
type kernel struct {
	Call    *ebpf.Program `ebpf:"soft_call"`
	Pass    *ebpf.Program `ebpf:"soft_pass"`
	Receive *ebpf.Program `ebpf:"soft_receive"`
	Sockets *ebpf.Map     `ebpf:"soft_sockets"`
	First   *ebpf.Map     `ebpf:"soft_first"`
	Before  *ebpf.Map     `ebpf:"soft_before"`
}

// load loads it on top of what a daemon pinned at a path.
func load(pins string) (*kernel, error) {
	spec, err := loadSoft()
	if err != nil {
		return nil, err
	}
	used := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range used {
			m.Close()
		}
	}()
	for _, name := range []string{"outcomes", "sid_counter", "list_counter", "class_counter", "slice_counter", "slow_path", "session_events", "trace_events"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "maps", name), nil)
		if err != nil {
			return nil, fmt.Errorf("open pinned map %s: %w", name, err)
		}
		used[name] = m
		spec.Maps[name].MaxEntries, spec.Maps[name].Flags = m.MaxEntries(), m.Flags()
	}
	k := &kernel{}
	if err := spec.LoadAndAssign(k, &ebpf.CollectionOptions{MapReplacements: used}); err != nil {
		return nil, fmt.Errorf("load the programs of culvert-soft: %w", err)
	}
	return k, nil
}

// Close unloads the programs.
func (k *kernel) Close() error {
	return errors.Join(k.Call.Close(), k.Pass.Close(), k.Receive.Close(), k.Sockets.Close(), k.First.Close(), k.Before.Close())
}

// inherit gives the process what is in the kernel: files for exec.Cmd, and the arguments that
// say their numbers.
func (k *kernel) inherit() (files []*os.File, arguments []string, err error) {
	for _, o := range []struct {
		name string
		fd   int
	}{
		{"call", k.Call.FD()}, {"pass", k.Pass.FD()}, {"receive", k.Receive.FD()},
		{"sockets", k.Sockets.FD()}, {"first", k.First.FD()}, {"before", k.Before.FD()},
	} {
		fd, err := unix.FcntlInt(uintptr(o.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			closeAll(files)
			return nil, nil, fmt.Errorf("duplicate a file: %w", err)
		}
		arguments = append(arguments, "--"+o.name, strconv.Itoa(3+len(files)))
		files = append(files, os.NewFile(uintptr(fd), o.name))
	}
	return files, arguments, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
