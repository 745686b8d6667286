package pin

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// What is recorded of each map is read as the types that it has.
func TestRecordsAreRead(t *testing.T) {
	spec, err := abi.Load()
	if err != nil {
		t.Fatal(err)
	}
	p := &Dir{path: t.TempDir()}
	if err := os.Mkdir(p.at(dirLayout), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, of := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		record, err := layoutRecord(spec, name)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := os.Symlink(record, p.at(dirLayout, name)); err != nil {
			t.Fatal(err)
		}
		hash, types, err := p.types(name)
		if err != nil || hash != layoutHash(spec, name) {
			t.Errorf("%s: hash %q, %v", name, hash, err)
		}
		for _, pair := range [][2]btf.Type{{of.Key, types.Key}, {of.Value, types.Value}} {
			var want, got strings.Builder
			if err := writeType(&want, pair[0]); err != nil {
				t.Error(err)
			}
			if err := writeType(&got, pair[1]); err != nil {
				t.Error(err)
			}
			if want.String() != got.String() {
				t.Errorf("%s: read as %s, want %s", name, got.String(), want.String())
			}
		}
	}
	for ring, record := range records {
		var s *btf.Struct
		if err := spec.Types.TypeByName(record, &s); err != nil {
			t.Errorf("records of %s: %v", ring, err)
		}
	}
}

// A record that somebody damaged is refused.
func TestDamagedRecords(t *testing.T) {
	p := &Dir{path: t.TempDir()}
	if err := os.Mkdir(p.at(dirLayout), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"", "i4", "i4;", "i4;i4i4", "i0;i4", "[;i4", "[3];i4", "[99999999999]i4;i4", "s{;i4", "s{8,a;i4", "s{8,a@0;i4",
		"s{8,a@0i4;i4", "s{8,a@xi4};i4", strings.Repeat("[1]", 900), strings.Repeat("a{1,b@0", 500)} {
		path := p.at(dirLayout, "map")
		if err := os.Symlink("0123456789abcdef:"+text, path); err != nil {
			t.Fatal(err)
		}
		if _, types, err := p.types("map"); err == nil || !strings.Contains(err.Error(), "map") {
			t.Errorf("%d: %q is read as %+v, %v", i, text, types, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
