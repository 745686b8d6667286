package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// suite is the distribution.
const suite = "bookworm"

// included is what the tree has beside Debian's smallest: what boots, and what culvert-lab
// depends on, because the machine reaches no archive.
var included = []string{"systemd", "systemd-sysv", "dbus", "procps", "iproute2", "ethtool", "man-db"}

// cached is where the bare tree is, by all that it is made of.
func cached() string {
	cache, err := os.UserCacheDir()
	if err != nil { // neither HOME nor XDG_CACHE_HOME
		cache = os.TempDir()
	}
	return filepath.Join(cache, "culvert", "machine", suite+"-"+runtime.GOARCH+"-"+strings.Join(included, "+")+".tar")
}

// bareTree returns the archive of the tree, which it makes if it is not there.
func bareTree(ctx context.Context, say func(format string, args ...any)) (string, error) {
	archive := cached()
	if _, err := os.Stat(archive); !errors.Is(err, fs.ErrNotExist) {
		return archive, err
	}
	say("a fresh Debian %s, once: minutes, and %s", suite, archive)
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return "", err
	}
	made := archive + ".new.tar" // by its name mmdebstrap knows what to write
	cmd := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=minbase", "--include="+strings.Join(included, ","), suite, made)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) } // it cleans up
	if _, err := namespace.Output(cmd); err != nil {
		return "", errors.Join(err, os.RemoveAll(made))
	}
	return archive, os.Rename(made, archive)
}

// unpack makes a tree in a folder that is not there yet.
func unpack(ctx context.Context, archive, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	_, err := namespace.Output(exec.CommandContext(ctx, "tar", "-C", root, "--numeric-owner", "-xf", archive))
	return err
}

// HavePrograms wants what a machine is made with to be installed.
func HavePrograms() error {
	programs := []string{"systemd-nspawn", "dpkg-deb", "nsenter", "tar"}
	if _, err := os.Stat(cached()); err != nil {
		programs = append(programs, "mmdebstrap")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed: tools/need.sh e2e installs it", name)
		}
	}
	return nil
}
