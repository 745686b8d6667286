package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Why Open and Remove leave pins alone.
var (
	// ErrForeign says that the pins were made by something else.
	ErrForeign = errors.New("not culvert's pins")
	// ErrIncompatible says that the pinned maps do not fit these limits.
	ErrIncompatible = errors.New("pinned maps do not fit")
	// ErrInUse says that another daemon owns the pins.
	ErrInUse = errors.New("pins are in use by another culvert")
)

// Dir is our directory in a bpffs:
//
//	maps/NAME          each map of the data path
//	layout/NAME        a symbolic link to a hash of that map's types, or to the
//	                   build and the id of that program
//	programs/NAME      the programs that links run
//	links/xdp_IFINDEX_MODE
//	links/tcx_IFINDEX_HOOK
//
// The directory is locked while a daemon has it.
type Dir struct {
	path  string
	dir   *os.File
	links string // where links are; empty: in the directory
	// kept are the maps and programs, in the directory, which stay as long as the data path.
	kept []string
}

const (
	dirMaps     = "maps"
	dirLayout   = "layout"
	dirPrograms = "programs"
	dirLinks    = "links"

	// newSuffix is what has not yet the name that it is to have. (A bpffs
	// takes no dots.)
	newSuffix = "_new"

	// ClosedSuffix is of the directory beside, with the links of interfaces that are closed
	// until the data path is on them.
	ClosedSuffix = "_closed"
)

func (p *Dir) at(elem ...string) string {
	if elem[0] == dirLinks && p.links != "" {
		return filepath.Join(append([]string{p.links}, elem[1:]...)...)
	}
	return filepath.Join(append([]string{p.path}, elem...)...)
}

// lock opens the directory and takes its lock, which the kernel drops
// when the process ends, however it ends.
func lock(path string) (*Dir, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open pins: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s: stop it first", ErrInUse, path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &Dir{path: path, dir: dir}, nil
}

// Remember has Missing look for the maps and programs that are pinned now.
func (p *Dir) Remember() error {
	p.kept = nil
	for _, folder := range []string{dirMaps, dirPrograms} {
		files, err := os.ReadDir(p.at(folder))
		if err != nil {
			return fmt.Errorf("list pins: %w", err)
		}
		for _, f := range files {
			p.kept = append(p.kept, filepath.Join(folder, f.Name()))
		}
	}
	return nil
}

// Missing returns the pins that somebody has removed since Remember. Without them the data path
// ends with the daemon.
func (p *Dir) Missing() (paths []string) {
	for _, name := range p.kept {
		path := p.at(name)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			paths = append(paths, path)
		}
	}
	return paths
}

// XDPInterfaces are the indices of interfaces that have an XDP link pinned in a directory, which
// need not exist.
func XDPInterfaces(path string) (map[int]bool, error) {
	entries, err := os.ReadDir(filepath.Join(path, dirLinks))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	out := map[int]bool{}
	for _, e := range entries {
		if n, ok := parseLinkName(e.Name()); ok && n.Kind == "xdp" {
			out[n.Ifindex] = true
		}
	}
	return out, nil
}

// Path is where the directory is.
func (p *Dir) Path() string { return p.path }

// Close gives the lock back.
func (p *Dir) Close() error { return p.dir.Close() }

// CheckPath refuses a path that cannot be a directory of pins.
func CheckPath(path string) error {
	parent := filepath.Dir(path)
	if strings.Contains(filepath.Base(path), ".") {
		return fmt.Errorf("pin path %s: a bpffs takes no dots in names", path)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(parent, &s); err != nil {
		return fmt.Errorf("pin path %s: %s: %w", path, parent, err)
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("pin path %s: %s is not in a bpffs: mount one, for example `mount -t bpf bpf /sys/fs/bpf`", path, parent)
	}
	return nil
}

// Unused is what a map is like whose use is switched off.
type Unused struct {
	Entries uint32 // that it has then
	// Stays: a map with more entries than it is to have stays, and goes on being read.
	Stays bool
}

// Pinned are maps that are pinned, by name.
type Pinned struct {
	Maps  map[string]*ebpf.Map
	Types map[string]Types // of those of which they are recorded
	// Differ says why a map cannot be used by this build: its entries have other fields,
	// or there is another number of them. Where this is empty all can be used.
	Differ map[string]string
}

// Close closes the maps.
func (p *Pinned) Close() {
	for _, m := range p.Maps {
		m.Close()
	}
	p.Maps = nil
}

// LoadMaps opens the pinned maps that this build has. Those that are unused hold nothing,
// and ring buffers with other records hold nothing that can be read: they give way to new
// ones. spec gets the sizes of those that stay.
func (p *Dir) LoadMaps(spec *ebpf.CollectionSpec, unused map[string]Unused) (out Pinned, err error) {
	out = Pinned{map[string]*ebpf.Map{}, map[string]Types{}, map[string]string{}}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	var empty []string
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) { // of several faults always the same one
		ms := spec.Maps[name]
		m, err := ebpf.LoadPinnedMap(p.at(dirMaps, name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("open pinned map %s: %w", name, err)
		}
		u, optional := unused[name]
		hash, types, err := p.types(name)
		if err != nil {
			m.Close()
			return out, err
		}
		same := hash == layoutHash(spec, name)
		if optional && m.MaxEntries() == u.Entries && u.Entries != ms.MaxEntries || ms.Type == ebpf.RingBuf && !same {
			empty = append(empty, name)
			m.Close()
			continue
		}
		if u.Stays {
			ms.MaxEntries = max(ms.MaxEntries, m.MaxEntries())
		}
		out.Maps[name], out.Types[name] = m, types
		if err := ms.Compatible(m); err != nil {
			out.Differ[name] = strings.TrimSuffix(err.Error(), ": "+ebpf.ErrMapIncompatible.Error())
		} else if !same {
			out.Differ[name] = "its fields, or the flags of its programs, changed"
		}
	}
	for _, name := range empty {
		if err := p.removeMap(name); err != nil {
			return out, err
		}
	}
	return out, nil
}

// programRecord has the program's id in the kernel, so that it says nothing of
// one that a culvert without records pins later.
func programRecord(info *ebpf.ProgramInfo, build string) string {
	id, _ := info.ID()
	return fmt.Sprintf("%s_%d", build, id)
}

// SameProgram is the pinned program of that name, if it is what this build would load on top
// of these maps, else nil: to load it again is the most of what a start takes.
func (p *Dir) SameProgram(name string, spec *ebpf.CollectionSpec, pinned map[string]*ebpf.Map, build string) *ebpf.Program {
	prog, err := ebpf.LoadPinnedProgram(p.at(dirPrograms, name), nil)
	if err != nil {
		return nil
	}
	info, err := prog.Info()
	record, unrecorded := os.Readlink(p.at(dirLayout, name))
	// The kernel's tag would not do in place of the record: programs have the same
	// one that differ in which map they ask.
	isSame := err == nil && unrecorded == nil && build != "" && record == programRecord(info, build)
	if !isSame || !uses(info, spec, pinned) {
		prog.Close()
		return nil
	}
	return prog
}

// uses says whether all maps of the build are pinned, and the program asks no
// others.
func uses(info *ebpf.ProgramInfo, spec *ebpf.CollectionSpec, pinned map[string]*ebpf.Map) bool {
	there := map[ebpf.MapID]bool{}
	for name := range spec.Maps {
		m := pinned[name]
		if m == nil {
			return false
		}
		info, err := m.Info()
		if err != nil {
			return false
		}
		id, _ := info.ID()
		there[id] = true
	}
	ids, available := info.MapIDs()
	return available && !slices.ContainsFunc(ids, func(id ebpf.MapID) bool { return !there[id] })
}

// RemoveObsolete removes maps that only an earlier build had.
func (p *Dir) RemoveObsolete(spec *ebpf.CollectionSpec) error {
	entries, err := os.ReadDir(p.at(dirMaps))
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		if spec.Maps[e.Name()] != nil {
			continue
		}
		if err := p.removeMap(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (p *Dir) removeMap(name string) error {
	for _, dir := range []string{dirMaps, dirLayout} {
		if err := os.Remove(p.at(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an obsolete pin: %w", err)
		}
	}
	return nil
}

// Take locks the directory that an earlier daemon made for the links of a program, if all
// of it is ours.
func Take(path, program string) (*Dir, error) {
	if _, err := listPins(path); err != nil {
		return nil, err
	}
	if err := checkProgram(filepath.Join(path, dirPrograms, program)); err != nil {
		return nil, foreign(path, err.Error())
	}
	p, err := lock(path)
	if err != nil {
		return nil, err
	}
	if err := finish(path); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Create makes the directory beside its final name, so that nobody ever sees a
// part of it. Publish gives it that name.
func Create(path string) (*Dir, error) {
	fresh := path + newSuffix
	if err := removePins(fresh); err != nil { // of a daemon that died here
		return nil, err
	}
	for _, dir := range []string{"", dirMaps, dirLayout, dirPrograms, dirLinks} {
		if err := os.Mkdir(filepath.Join(fresh, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make pins: %w", err)
		}
	}
	return lock(fresh)
}

// Publish renames what Create made.
func (p *Dir) Publish(path string) error {
	if err := os.Rename(p.path, path); err != nil {
		return fmt.Errorf("make pins: %w", err)
	}
	p.path = path
	return nil
}

// Renew makes a directory that is to replace this one: its maps and programs are new, and
// the links are those of this one.
func (p *Dir) Renew() (*Dir, error) {
	fresh, err := Create(p.path)
	if err == nil {
		fresh.links = p.at(dirLinks)
	}
	return fresh, err
}

// Replace puts the directory that Renew made in the place of the former one, which is
// removed. The links run what the new one has pinned.
func (p *Dir) Replace(former *Dir) error {
	path := former.path
	if err := unix.Renameat2(unix.AT_FDCWD, p.path, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("replace pins: %w", err)
	}
	p.path, former.path, p.links = path, p.path, ""
	return errors.Join(moveLinks(former.path, path), former.remove())
}

// moveLinks gives links that are pinned in one directory the same names in another.
func moveLinks(from, to string) error {
	entries, err := os.ReadDir(filepath.Join(from, dirLinks))
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(from, dirLinks, e.Name()), filepath.Join(to, dirLinks, e.Name())); err != nil {
			return fmt.Errorf("replace pins: %w", err)
		}
	}
	return nil
}

// finish goes on where a daemon died between the exchange and the end of Replace: the
// directory beside path has links, which those that Renew makes never have.
func finish(path string) error {
	beside := path + newSuffix
	if _, err := os.Lstat(beside); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := listPins(beside); err != nil {
		return err
	}
	if err := moveLinks(beside, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removePins(beside)
}

// PutMap pins a map of a build and records its layout, unless it belongs to its build.
func (p *Dir) PutMap(spec *ebpf.CollectionSpec, name string, m *ebpf.Map) error {
	if strings.HasPrefix(name, ".") { // constants belong to a build
		return nil
	}
	record, err := layoutRecord(spec, name)
	if err != nil {
		return err
	}
	if err := os.Symlink(record, p.at(dirLayout, name)); err != nil {
		return fmt.Errorf("make pins: %w", err)
	}
	if err := m.Pin(p.at(dirMaps, name)); err != nil {
		return fmt.Errorf("make pins: %w", err)
	}
	return nil
}

// Record records the layouts of maps that an earlier build pinned, which fit this one.
func (p *Dir) Record(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) error {
	for name := range maps {
		record, err := layoutRecord(spec, name)
		if err != nil {
			return err
		}
		path := p.at(dirLayout, name)
		if now, err := os.Readlink(path); err == nil && now == record {
			continue
		}
		next := path + newSuffix
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("record a layout: %w", err)
		}
		if err := os.Symlink(record, next); err != nil {
			return fmt.Errorf("record a layout: %w", err)
		}
		if err := os.Rename(next, path); err != nil {
			return fmt.Errorf("record a layout: %w", err)
		}
	}
	return nil
}

// PutProgram pins the program of that name in place of the one that is there, and
// records its build.
func (p *Dir) PutProgram(prog *ebpf.Program, name, build string) error {
	next := p.at(dirPrograms, name+newSuffix)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace the pinned program: %w", err)
	}
	if err := prog.Pin(next); err != nil {
		return fmt.Errorf("replace the pinned program: %w", err)
	}
	if err := os.Rename(next, p.at(dirPrograms, name)); err != nil {
		return fmt.Errorf("replace the pinned program: %w", err)
	}
	info, err := prog.Info()
	if err != nil {
		return fmt.Errorf("record the pinned program: %w", err)
	}
	path := p.at(dirLayout, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record the pinned program: %w", err)
	}
	if err := os.Symlink(programRecord(info, build), path); err != nil {
		return fmt.Errorf("record the pinned program: %w", err)
	}
	return nil
}
