package pin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
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

// The kernel cuts names at 15 octets: those of programs differ in these, and of maps no octet is cut.
func TestKernelTellsNamesApart(t *testing.T) {
	of := map[string]string{}
	for name := range programTypes {
		cut := kernelName(name)
		if other, taken := of[cut]; taken {
			t.Errorf("the kernel calls %s and %s both %s", name, other, cut)
		}
		of[cut] = name
	}
	spec, err := abi.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		if !strings.HasPrefix(name, ".") && kernelName(name) != name {
			t.Errorf("the kernel calls map %s %s", name, kernelName(name))
		}
	}
}
