package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// Packages are folders with a deb of culvert and one of culvert-lab for this architecture.
type Packages struct {
	After string // what is upgraded to, and tested
	// Before has what is installed first. Where it is empty, a copy of After is: an older
	// version, with another build of the data path, which Rebuild makes of a program.
	Before  string
	Rebuild func(program []byte) int
}

// names are those of the packages.
var names = []string{"culvert", "culvert-lab"}

// Default is the folder that `make packages` fills, beside a program.
func Default() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "packages"), err
}

// in returns the one deb of that name in a folder.
func in(folder, name string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, name+"_*_"+runtime.GOARCH+".deb"))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%s has %d packages %s for %s: want one; `make packages` builds them", folder, len(files), name, runtime.GOARCH)
	}
	return files[0], nil
}

// Check wants the packages to be there.
func (p Packages) Check() error {
	folders := map[string]string{"--packages": p.After}
	if p.Before != "" {
		folders["--packages-before"] = p.Before
	}
	for flag, folder := range folders {
		for _, name := range names {
			if _, err := in(folder, name); err != nil {
				return fmt.Errorf("%s: %w", flag, err)
			}
		}
	}
	return nil
}

// put writes the packages to folders before and after of one.
func (p Packages) put(ctx context.Context, folder string) error {
	for to, from := range map[string]string{"after": p.After, "before": p.Before} {
		to = filepath.Join(folder, to)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, name := range names {
			if err := p.putOne(ctx, name, from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// putOne copies a package; from is empty for the one that is made older.
func (p Packages) putOne(ctx context.Context, name, from, to string) error {
	if from == "" {
		file, err := in(p.After, name)
		if err != nil {
			return err
		}
		return p.older(ctx, file, to)
	}
	file, err := in(from, name)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o644)
}

var (
	versionLine = regexp.MustCompile(`(?m)^Version: (.*)$`)
	equalDepend = regexp.MustCompile(`\(= ([^)]*)\)`)
)

// older packs a package again as an older version (deb-version(7): ~ sorts before nothing), with
// another build of the data path in its programs.
func (p Packages) older(ctx context.Context, file, to string) (err error) {
	tree, err := os.MkdirTemp("", "culvert-deb-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	if _, err := namespace.Output(exec.CommandContext(ctx, "dpkg-deb", "-R", file, tree)); err != nil {
		return err
	}
	control := filepath.Join(tree, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	text = versionLine.ReplaceAll(equalDepend.ReplaceAll(text, []byte("(= $1~before)")), []byte("Version: $1~before"))
	// The sums are those of the other programs.
	if err := errors.Join(os.WriteFile(control, text, 0o644), os.Remove(filepath.Join(tree, "DEBIAN/md5sums"))); err != nil {
		return err
	}
	program := filepath.Join(tree, "usr/bin/culvert")
	if octets, err := os.ReadFile(program); err == nil {
		if p.Rebuild(octets) == 0 {
			return fmt.Errorf("%s: %s holds no eBPF object", file, program)
		}
		if err := os.WriteFile(program, octets, 0o755); err != nil {
			return err
		}
	}
	base := bytes.TrimSuffix([]byte(filepath.Base(file)), []byte(".deb"))
	_, err = namespace.Output(exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, filepath.Join(to, string(base)+"-before.deb")))
	return err
}
