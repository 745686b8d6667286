package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// File is the raw data in a run's folder; everything else there is drawn from it.
const File = "run.json"

// Read reads a run's folder.
func Read(dir string) (*Run, error) {
	path := filepath.Join(dir, File)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s is no folder of a run: %w", dir, err)
	}
	return ReadFile(path)
}

// ReadFile reads a run's raw data, wherever they are.
func ReadFile(path string) (*Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Run
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// Write writes a run into its folder, whole or not at all: a full disk or a kill
// leaves what was there before.
func (r *Run) Write(dir string) error {
	if err := r.Check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, File), append(text, '\n'))
}

func writeWhole(path string, text []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
