package report

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// writeAll writes files into a folder: first all of them into one of its own
// beside their places, then each takes its place. A full disk leaves what was
// there before.
func writeAll(out string, files map[string][]byte) (err error) {
	made, err := makeFolder(out)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, dir := range made {
				if os.Remove(dir) != nil {
					break // something is in it, so in those above too
				}
			}
			err = fmt.Errorf("the report is not written: %w", err)
		}
	}()
	beside, err := os.MkdirTemp(out, ".report-*")
	if err != nil {
		return err
	}
	defer func() {
		if err2 := os.RemoveAll(beside); err == nil {
			err = err2
		}
	}()
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := writeSynced(filepath.Join(beside, name), files[name]); err != nil {
			return err
		}
	}
	for _, name := range names {
		to := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(beside, name), to); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder makes a folder and those above it, and returns the ones that it had
// to make, the deepest first.
func makeFolder(dir string) (made []string, err error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	return made, os.MkdirAll(dir, 0o755)
}

func writeSynced(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	return err
}
