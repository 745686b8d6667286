package check

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestInventory(t *testing.T) {
	before := inventory{"x: routes": {"a", "b"}, "x: pods": {"p"}}
	if err := before.compare(inventory{"x: routes": {"a", "c"}, "x: pods": {"p"}}); err != nil {
		t.Errorf("as many, with other names: %v", err)
	}
	wantError(t, before.compare(inventory{"x: routes": {"a", "b", "c"}, "x: pods": {"p"}}), "x: routes", "2 before, 3 after", `came ["c"]`)
	wantError(t, before.compare(inventory{"x: routes": {"a", "b"}}), "x: pods", `went ["p"]`)
	if err := (inventory)(nil).compare(before); err != nil {
		t.Error(err)
	}
}

func TestFilesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/b/c"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := filesBelow(dir)
	if err != nil || !slices.Equal(got, []string{"/a/b/c"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := filesBelow(filepath.Join(dir, "none")); len(got) > 0 || err != nil {
		t.Errorf("a folder that is not there: %q, %v", got, err)
	}
}
