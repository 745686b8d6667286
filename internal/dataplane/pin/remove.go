package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Remove detaches and unpins everything that Open and Attach pinned at
// pinPath, and what closes interfaces until then. Nothing there is not an
// error; anything of somebody else's there is (ErrForeign), and then nothing is
// removed. A running daemon keeps its pins (ErrInUse).
func Remove(pinPath string) error {
	path := filepath.Clean(pinPath)
	if err := CheckPath(path); err != nil {
		return err
	}
	return errors.Join(removePins(path), removePins(path+newSuffix), removePins(path+ClosedSuffix))
}

// removePins removes one directory of pins, by exact names, links first.
func removePins(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := listPins(path); err != nil {
		return err
	}
	p, err := lock(path)
	if err != nil {
		return err
	}
	return errors.Join(p.remove(), p.Close())
}

// remove removes what is in the directory, and that itself.
func (p *Dir) remove() error {
	found, err := listPins(p.path)
	if err != nil {
		return err
	}
	for _, name := range found {
		if filepath.Dir(name) == dirLinks {
			if err := detachPinned(p.at(name)); err != nil {
				return fmt.Errorf("unpin %s: %w", name, err)
			}
		}
		if err := os.Remove(p.at(name)); err != nil {
			return fmt.Errorf("unpin: %w", err)
		}
	}
	return nil
}

// detachPinned detaches now. Without the pin the kernel would do it later.
func detachPinned(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	if !Alive(l) {
		return nil
	}
	return l.Detach()
}

func foreign(path, why string) error {
	return fmt.Errorf("%w: %s: %s: choose another pin path, or remove what is there with the tool that made it", ErrForeign, path, why)
}

// listPins lists what is below path in the order of removal, and fails on
// anything that we would not have made.
func listPins(path string) ([]string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	if !info.IsDir() {
		return nil, foreign(path, "it is not a directory")
	}
	checks := map[string]func(string) error{
		dirLinks: checkLink, dirPrograms: checkProgram, dirMaps: checkMap,
		dirLayout: func(path string) error { _, err := os.Readlink(path); return err },
	}
	order := []string{dirLinks, dirPrograms, dirMaps, dirLayout}
	top, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	for _, e := range top {
		if !slices.Contains(order, e.Name()) || !e.IsDir() {
			return nil, foreign(path, "has "+e.Name())
		}
	}
	var out []string
	for _, dir := range order {
		entries, err := os.ReadDir(filepath.Join(path, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // made, but not finished
		}
		if err != nil {
			return nil, fmt.Errorf("read pins: %w", err)
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			if err := checks[dir](filepath.Join(path, name)); err != nil {
				return nil, foreign(path, fmt.Sprintf("%s: %v", name, err))
			}
			out = append(out, name)
		}
		out = append(out, dir)
	}
	return append(out, ""), nil
}

func checkLink(path string) error {
	if _, ok := parseLinkName(filepath.Base(path)); !ok {
		return errors.New("is not a name that culvert gives")
	}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	return l.Close()
}

var programTypes = map[string]ebpf.ProgramType{abi.ProgCulvertXdp: ebpf.XDP, abi.ProgCulvertN4: ebpf.XDP, abi.ProgCulvertN4First: ebpf.XDP, abi.ProgCulvertN4Port: ebpf.XDP, abi.ProgCulvertClosed: ebpf.XDP,
	abi.ProgCulvertPod: ebpf.SchedCLS, abi.ProgCulvertUplink: ebpf.SchedCLS, abi.ProgCulvertForward: ebpf.Netfilter}

func checkProgram(path string) error {
	name := strings.TrimSuffix(filepath.Base(path), newSuffix)
	want, ok := programTypes[name]
	if !ok {
		return errors.New("is not a name that culvert gives")
	}
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return err
	}
	if info.Type != want || kernelName(info.Name) != kernelName(name) {
		return fmt.Errorf("is program %s of type %s", info.Name, info.Type)
	}
	return nil
}

// kernelName is what the kernel keeps of a name. The library completes a program's from its BTF,
// which the kernel shows only to who has CAP_SYS_ADMIN: the daemon has not.
func kernelName(name string) string {
	const kept = 15 // BPF_OBJ_NAME_LEN without the last octet, which is 0
	return name[:min(len(name), kept)]
}

func checkMap(path string) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return err
	}
	if info.Name != filepath.Base(path) {
		return fmt.Errorf("is map %s", info.Name)
	}
	return nil
}
