// Package labtest serves tests that bring up laboratories.
package labtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// WantNothingOf fails the test if anything of a laboratory is left: a namespace, a running
// directory or pins whose name holds its name.
func WantNothingOf(tb testing.TB, name string) {
	tb.Helper()
	for _, dir := range []string{namespace.NamespaceDir, instance.StateDir, instance.PinDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Error(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), name) {
				tb.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
			}
		}
	}
}
