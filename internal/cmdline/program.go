package cmdline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Program returns the absolute path of another of our programs: the one in the
// directory of this program, else the one in PATH. The error says how to get it.
func Program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s nor in PATH: run `make build` in Culvert's source tree, and copy bin/%[1]s there", name, dir)
	}
	return filepath.Abs(path)
}
