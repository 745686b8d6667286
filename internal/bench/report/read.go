package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// folder is one that was named: of a run, or with runs in folders below it.
type folder struct {
	dir  string
	many bool
	runs []source
}

// readFolder reads a folder's run, or those below it, the first that was
// measured first. A file of raw data is as good as its folder.
func readFolder(dir string) (folder, error) {
	f := folder{dir: dir}
	if filepath.Ext(dir) == ".json" {
		run, err := readRun(dir, result.ReadFile)
		f.runs = []source{{run: run, dir: filepath.Dir(dir)}}
		return f, err
	}
	if _, err := os.Stat(filepath.Join(dir, result.File)); err == nil {
		run, err := readRun(dir, result.Read)
		f.runs = []source{{run: run, dir: dir}}
		return f, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, fmt.Errorf("no folder of a run: %w", err)
	}
	for _, e := range entries {
		below := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(below, result.File)); errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		run, err := readRun(below, result.Read)
		if err != nil {
			return f, err
		}
		f.runs = append(f.runs, source{run: run, dir: below})
	}
	if len(f.runs) == 0 {
		return f, fmt.Errorf("%s: there is no %s in it, nor in the folders below it: name the folder that a run of `culvert bench` has written", dir, result.File)
	}
	f.many = true
	slices.SortStableFunc(f.runs, func(a, b source) int { return a.run.Begun.Compare(b.run.Begun) })
	return f, nil
}

func readRun(dir string, read func(string) (*result.Run, error)) (*result.Run, error) {
	run, err := read(dir)
	if err != nil {
		return nil, err
	}
	if len(run.Measurements) == 0 {
		return nil, fmt.Errorf("%s: nothing was measured in this run", dir)
	}
	if len(run.Figures) == 0 {
		return nil, fmt.Errorf("%s: this run says of no figure how to draw it (figures in %s)", dir, result.File)
	}
	return run, nil
}

// named gives each of some folders the shortest name that tells it from the
// others.
func named(dirs []string) []string {
	names := make([]string, len(dirs))
	dirs = slices.Clone(dirs)
	for i, dir := range dirs {
		if filepath.Base(dir) == result.File {
			dirs[i] = filepath.Dir(dir)
		}
	}
	for depth := 1; ; depth++ {
		for i, dir := range dirs {
			names[i] = ending(dir, depth)
		}
		if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) == len(names) || depth > 8 {
			return names
		}
	}
}

// ending is the last elements of a path.
func ending(dir string, depth int) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	name := filepath.Base(dir)
	for range depth - 1 {
		dir = filepath.Dir(dir)
		name = filepath.Join(filepath.Base(dir), name)
	}
	return name
}
