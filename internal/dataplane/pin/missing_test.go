package pin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What somebody removes of the maps and programs is missing; links come and go.
func TestMissing(t *testing.T) {
	p := &Dir{path: t.TempDir()}
	for _, name := range []string{"maps/pdr", "maps/drops", "programs/culvert_xdp", "links/xdp_2_native"} {
		path := filepath.Join(p.path, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Remember(); err != nil || p.Missing() != nil {
		t.Fatalf("%v, missing %q", err, p.Missing())
	}
	for _, name := range []string{"maps/pdr", "links/xdp_2_native"} {
		if err := os.Remove(filepath.Join(p.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.Missing(), []string{filepath.Join(p.path, "maps/pdr")}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
}
