package dataplane

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/softrun"
)

// buildSoft compiles culvert-soft.
func buildSoft(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "culvert-soft")
	if out, err := exec.Command("../../bpf/soft/build.sh", binary).CombinedOutput(); err != nil {
		t.Fatalf("build culvert-soft: %v\n%s", err, out)
	}
	return binary
}

// TestGoldenSoft runs the rows of TestGolden through culvert-soft, on the pinned tables:
// verdicts, bytes, counters, records and events are the same.
func TestGoldenSoft(t *testing.T) {
	binary, path, files := buildSoft(t), pinPath(t), goldenFiles(t)
	inNamespace(t, allPorts(files), func() {
		r := newRigAt(t, path)
		soft, err := softrun.OpenFrames(binary, path)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		defer func() {
			if err := soft.Close(); err != nil {
				t.Error(err)
			}
		}()
		r.run = soft.Test
		for _, f := range files {
			r.goldenFile(t, f)
		}
	})
}
