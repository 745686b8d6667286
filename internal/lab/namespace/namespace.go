package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NamespaceDir is where iproute2 looks for named network namespaces.
const NamespaceDir = "/run/netns"

// ErrForeign says that a namespace of the lab's name is not the
// lab's.
var ErrForeign = errors.New("was not made by this lab")

// Named is a named network namespace.
type Named struct{ Name string }

// Path is the file of the namespace.
func (n Named) Path() string { return filepath.Join(NamespaceDir, n.Name) }

// Create makes the namespace, with mark as the alias of its loopback device.
// The mark is there before the name is: a namespace without it is never ours.
func (n Named) Create(mark string) error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		if _, err := Output(exec.Command("ip", "link", "set", "lo", "up", "alias", mark)); err != nil {
			return err
		}
		err := n.bind("/proc/thread-self/ns/net", os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("namespace %s %w: remove it with `ip netns delete %s`, or give this lab another name with --as", n.Name, ErrForeign, n.Name)
		}
		return err
	})
}

// bind gives the network namespace of a file this name. flags are those of open(2)
// beside O_CREAT.
func (n Named) bind(file string, flags int) error {
	f, err := os.OpenFile(n.Path(), os.O_CREATE|flags, 0)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unix.Mount(file, n.Path(), "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s at %s: %w", file, n.Path(), err), os.Remove(n.Path()))
	}
	return nil
}

// shareNamespaceDir makes the directory a mount point that shares its mounts, as
// `ip netns add` does. Were it left to that, namespaces of ours would be below
// the new mount, and could not be removed.
func shareNamespaceDir() error {
	if err := os.MkdirAll(NamespaceDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", NamespaceDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // it is no mount point yet
		if err = unix.Mount(NamespaceDir, NamespaceDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share mounts of %s: %w", NamespaceDir, err)
	}
	return nil
}

// Mark returns the alias of the namespace's loopback device; ok is false if
// there is no such namespace.
func (n Named) Mark() (mark string, ok bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(n.Path(), &st); errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	if st.Type != unix.NSFS_MAGIC { // a file that create left when it was killed, or anything else
		return "", true, nil
	}
	var links []struct {
		Alias string `json:"ifalias"`
	}
	if err := n.JSON(&links, "ip", "-j", "link", "show", "dev", "lo"); err != nil || len(links) != 1 {
		return "", true, errors.Join(fmt.Errorf("namespace %s has %d devices lo", n.Name, len(links)), err)
	}
	return links[0].Alias, true, nil
}

// Delete removes the namespace if it carries mark; one that is not there is
// no error, one that carries another mark is errForeignNamespace.
func (n Named) Delete(mark string) error {
	found, ok, err := n.Mark()
	if err != nil || !ok {
		return err
	}
	if found == "" && n.isEmptyFile() { // create was killed before its mount
		return os.Remove(n.Path())
	}
	if found != mark {
		return fmt.Errorf("namespace %s %w: left alone", n.Name, ErrForeign)
	}
	if err := unix.Unmount(n.Path(), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", n.Path(), err)
	}
	return os.Remove(n.Path())
}

func (n Named) isEmptyFile() bool {
	var st unix.Statfs_t
	info, err := os.Lstat(n.Path())
	return err == nil && info.Mode().IsRegular() && info.Size() == 0 &&
		unix.Statfs(n.Path(), &st) == nil && st.Type != unix.NSFS_MAGIC
}

// Adopt makes the network namespace of a file one of this name, with the mark.
func (n Named) Adopt(file, mark string) error {
	if err := n.bind(file, 0); err != nil {
		return err
	}
	_, err := n.Output("ip", "link", "set", "lo", "alias", mark)
	return err
}
