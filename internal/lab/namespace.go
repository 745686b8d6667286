package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namespaceDir is where iproute2 looks for named network namespaces.
const namespaceDir = "/run/netns"

// errForeignNamespace says that a namespace of the lab's name is not the
// lab's.
var errForeignNamespace = errors.New("was not made by this lab")

// namespace is a named network namespace.
type namespace struct{ name string }

func (n namespace) path() string { return filepath.Join(namespaceDir, n.name) }

// create makes the namespace, with mark as the alias of its loopback device.
// The mark is there before the name is: a namespace without it is never ours.
func (n namespace) create(mark string) error {
	if err := shareNamespaceDir(); err != nil {
		return err
	}
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		if _, err := output(exec.Command("ip", "link", "set", "lo", "up", "alias", mark)); err != nil {
			return err
		}
		f, err := os.OpenFile(n.path(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("namespace %s %w: remove it with `ip netns delete %s`, or give this lab another name with --as", n.name, errForeignNamespace, n.name)
		}
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := unix.Mount("/proc/thread-self/ns/net", n.path(), "", unix.MS_BIND, ""); err != nil {
			return errors.Join(fmt.Errorf("mount %s: %w", n.path(), err), os.Remove(n.path()))
		}
		return nil
	})
}

// shareNamespaceDir makes the directory a mount point that shares its mounts, as
// `ip netns add` does. Were it left to that, namespaces of ours would be below
// the new mount, and could not be removed.
func shareNamespaceDir() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", namespaceDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // it is no mount point yet
		if err = unix.Mount(namespaceDir, namespaceDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share mounts of %s: %w", namespaceDir, err)
	}
	return nil
}

// mark returns the alias of the namespace's loopback device; ok is false if
// there is no such namespace.
func (n namespace) mark() (mark string, ok bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(n.path(), &st); errors.Is(err, fs.ErrNotExist) {
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
	out, err := n.output("ip", "-j", "link", "show", "dev", "lo")
	if err != nil {
		return "", true, err
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return "", true, fmt.Errorf("namespace %s: ip link shows %q", n.name, out)
	}
	return links[0].Alias, true, nil
}

// delete removes the namespace if it carries mark; one that is not there is
// no error, one that carries another mark is errForeignNamespace.
func (n namespace) delete(mark string) error {
	found, ok, err := n.mark()
	if err != nil || !ok {
		return err
	}
	if found == "" && n.isEmptyFile() { // create was killed before its mount
		return os.Remove(n.path())
	}
	if found != mark {
		return fmt.Errorf("namespace %s %w: left alone", n.name, errForeignNamespace)
	}
	if err := unix.Unmount(n.path(), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", n.path(), err)
	}
	return os.Remove(n.path())
}

func (n namespace) isEmptyFile() bool {
	var st unix.Statfs_t
	info, err := os.Lstat(n.path())
	return err == nil && info.Mode().IsRegular() && info.Size() == 0 &&
		unix.Statfs(n.path(), &st) == nil && st.Type != unix.NSFS_MAGIC
}

// Do calls f on a thread that is in the namespace. Sockets that f opens stay
// there.
func (n namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		ns, err := os.Open(n.path())
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.name, err)
		}
		return f()
	})
}

// onOwnThread calls f on a thread that ends with it, so that no other
// goroutine ever runs in the namespace that f entered.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		done <- f()
	}()
	return <-done
}

// output runs a command in the namespace and returns what it printed.
func (n namespace) output(name string, args ...string) (out []byte, err error) {
	err = n.Do(func() error {
		out, err = output(exec.Command(name, args...))
		return err
	})
	return out, err
}

// batch runs lines of ip commands in the namespace.
func (n namespace) batch(lines []string, options ...string) error {
	if len(lines) == 0 {
		return nil
	}
	return n.Do(func() error { return ipBatch(lines, options...) })
}

// ipBatch runs lines of ip commands on this thread's namespace.
func ipBatch(lines []string, options ...string) error {
	return pipe(strings.Join(lines, "\n")+"\n", "ip", append(options, "-batch", "-")...)
}

// pipe gives a command its input, which is quoted where it fails.
func pipe(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("%w, of:\n%s", err, strings.TrimSpace(input))
	}
	return nil
}

// output runs cmd; its standard error becomes the error's text.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s is not installed: the lab needs it", cmd.Args[0])
	}
	if err != nil {
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// sysctl writes one value below /proc/sys in the namespace.
func (n namespace) sysctl(name, value string) error {
	return n.Do(func() error {
		f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("sysctls: %w", err)
		}
		_, err = f.WriteString(value)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("sysctls: %s = %s: %w", name, value, err)
		}
		return nil
	})
}
