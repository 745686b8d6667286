package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shared is what the node has of the machine, to read: its programs, and how they
// are found.
var shared = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/passwd", "/etc/protocols", "/etc/services",
}

// settings are the machine's, and no namespace's: a kubelet wants them to be so,
// and changes them where they are not. The node is shown what it wants to see.
var settings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// mount names what it mounts in its error.
func mount(from, at, kind string, flags uintptr) error {
	if err := unix.Mount(from, at, kind, flags, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, at, err)
	}
	return nil
}

// enterRoot makes the node's root file system that of this process, whose mounts
// are the node's own from here on.
func (s Spec) enterRoot() error {
	if err := mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount(s.Root, s.Root, "", unix.MS_BIND); err != nil {
		return err
	}
	for _, name := range shared {
		if err := s.share(name, name); err != nil {
			return err
		}
	}
	if err := errors.Join(s.share(s.Programs, programDir), s.share(s.Images, imageDir), s.mountSystem()); err != nil {
		return err
	}
	// Stack the new root on the old one and unmount the old one (pivot_root(2)).
	if err := errors.Join(unix.Chdir(s.Root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/")); err != nil {
		return fmt.Errorf("the root file system %s: %w", s.Root, err)
	}
	// Mounts of pods' volumes go to containers and back.
	return mount("none", "/", "", unix.MS_REC|unix.MS_SHARED)
}

// share puts something of the machine into the node, to read. A link, as /bin
// mostly is, is made again; what the machine has not is left out.
func (s Spec) share(from, to string) error {
	at := filepath.Join(s.Root, to)
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return link(target, at)
	}
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else {
		err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644))
	}
	if err != nil {
		return err
	}
	if err := mount(from, at, "", unix.MS_BIND|unix.MS_REC); err != nil {
		return err
	}
	return mount("none", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY)
}

// link makes a symbolic link, unless it is there from an earlier start.
func link(to, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(to, at); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// mountSystem mounts the kernel's file systems. sysfs shows the network
// namespace of who mounts it.
func (s Spec) mountSystem() error {
	for _, m := range []struct {
		from, at, kind string
		flags          uintptr
	}{
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"/sys/fs/cgroup", "sys/fs/cgroup", "", unix.MS_BIND | unix.MS_REC},
		{"bpf", "sys/fs/bpf", "bpf", 0},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC},
		{"tmpfs", "run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		at := filepath.Join(s.Root, m.at)
		if err := errors.Join(os.MkdirAll(at, 0o755), mount(m.from, at, m.kind, m.flags)); err != nil {
			return err
		}
	}
	// As the node sees it, and who looks into the node from outside.
	if err := link("../run", filepath.Join(s.Root, "var/run")); err != nil {
		return err
	}
	for name, value := range settings {
		file := filepath.Join("run/settings", name)
		if err := s.write(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(filepath.Join(s.Root, file), filepath.Join(s.Root, "proc/sys", name), "", unix.MS_BIND); err != nil {
			return err
		}
	}
	return nil
}
