package experiment

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// fakeLibrary has two experiments; `before` is called before each measurement.
func fakeLibrary(before func(letter string) error, drawn *[]string) *Library {
	text := func(name string, letters string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("name: " + name + "\nkind: fake\ntitle: " + name + "\nrounds: 1\nwith: {letters: " + letters + "}\n")}
	}
	return &Library{
		Kinds: []Kind{{Name: "fake", NoiseLimit: 0.2, New: func() Experiment {
			return &fake{before: func(id string, _ int) error { return before(id) }}
		}}},
		Names:       []string{"first", "second"},
		Suite:       []string{"first", "second"},
		Files:       fstest.MapFS{"first.yaml": text("first", "[a, b]"), "second.yaml": text("second", "[x, y]")},
		Environment: func() (result.Environment, error) { return result.Environment{Kernel: "6.18"}, nil },
		Draw:        func(dir string) error { *drawn = append(*drawn, dir); return nil },
	}
}

func call(ctx context.Context, l *Library, args ...string) (string, error) {
	root := &cobra.Command{Use: "bench", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(l.Commands()...)
	root.AddCommand(l.Command("first", &cobra.Command{}, PrintTable, PrintJSON))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append(args, "--culvert", "/bin/true")) // nothing here runs it
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

// A suite goes on behind an experiment that fails, stops where it is stopped, and
// is taken up again where it was left; its last line is the report's path.
func TestSuite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as every run does")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	broken := errors.New("a frame came out wrong")
	var drawn, measured []string
	l := fakeLibrary(func(letter string) error {
		measured = append(measured, letter)
		switch letter {
		case "b":
			return broken
		case "y":
			cancel()
		}
		return nil
	}, &drawn)
	out, err := call(ctx, l, "suite", "--dir", dir)
	if err == nil || !strings.Contains(err.Error(), "first: b: a frame came out wrong") || !strings.Contains(err.Error(), "second: the run was stopped") {
		t.Errorf("%v", err)
	}
	if want := filepath.Join(dir, "report.html") + "\n"; out != want {
		t.Errorf("said %q, want %q", out, want)
	}
	if !slices.Equal(drawn[len(drawn)-1:], []string{dir}) {
		t.Errorf("drawn: %v, want %s at the end", drawn, dir)
	}
	before := len(measured)
	l = fakeLibrary(func(letter string) error { measured = append(measured, letter); return nil }, &drawn)
	if _, err := call(t.Context(), l, "suite", "--resume", dir); err != nil {
		t.Fatal(err)
	}
	again := measured[before:]
	slices.Sort(measured)
	if got := strings.Join(slices.Compact(measured), ""); got != "abxy" || slices.Contains(again, "x") && slices.Index(measured[:before], "x") >= 0 && strings.Count(strings.Join(again, ""), "x") > 1 {
		t.Errorf("measured %s, then %v", got, again)
	}
	for _, name := range l.Names {
		if run, err := result.Read(filepath.Join(dir, name)); err != nil || !run.Complete || run.Command != "culvert bench run "+name {
			t.Errorf("%s: %+v, %v", name, run, err)
		}
	}
}

// What goes on after a stop is the suite that was begun, with its flags; two suites
// are not mixed.
func TestSuiteIsTheSameAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as every run does")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var drawn, measured []string
	l := fakeLibrary(func(string) error { cancel(); return nil }, &drawn)
	if _, err := call(ctx, l, "suite", "--dir", dir, "--experiments", "second", "--rounds", "3"); err == nil {
		t.Error("it was stopped, and does not say so")
	}
	l = fakeLibrary(func(letter string) error { measured = append(measured, letter); return nil }, &drawn)
	if _, err := call(t.Context(), l, "suite", "--dir", dir, "--experiments", "second"); err == nil || !strings.Contains(err.Error(), "holds a suite already: go on with it by --resume "+dir) {
		t.Errorf("another suite into the same folder: %v", err)
	}
	if _, err := call(t.Context(), l, "suite", "--resume", dir); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(slices.Sorted(slices.Values(measured)), ""); got != "xxxyyy" {
		t.Errorf("measured %s, want three rounds of x and y", got)
	}
	run, err := result.Read(filepath.Join(dir, "second"))
	if err != nil || !run.Complete || run.Command != "culvert bench run second/experiment.yaml" {
		t.Errorf("%+v, %v", run, err)
	}
	if _, err := call(t.Context(), l, "suite", "--resume", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no folder of a suite") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A stop between two experiments is one too.
func TestSuiteStoppedBetween(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as every run does")
	}
	var drawn []string
	l := fakeLibrary(func(string) error { return nil }, &drawn)
	ctx, cancel := context.WithCancel(t.Context())
	l.Draw = func(string) error { cancel(); return nil } // when the first one is complete
	dir := t.TempDir()
	if _, err := call(ctx, l, "suite", "--dir", dir); !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "culvert bench suite --resume "+dir) {
		t.Errorf("%v, want that it was stopped", err)
	}
}

// Flags change what the built-in file says, and the run says how to repeat it.
func TestCommand(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as every run does")
	}
	var drawn []string
	l := fakeLibrary(func(string) error { return nil }, &drawn)
	dir := filepath.Join(t.TempDir(), "run")
	out, err := call(t.Context(), l, "first", "--letters", "q,r", "--repeat", "2", "--seed", "9", "--dir", dir)
	if err != nil || !strings.Contains(out, "letter=q") {
		t.Errorf("%v: %s", err, out)
	}
	run, err := result.Read(dir)
	if err != nil || run.Command != "culvert bench first --letters=q,r --rounds=2 --seed=9" || run.Seed != 9 || len(run.Measurements[0].Samples) != 2 {
		t.Errorf("%+v, %v", run, err)
	}
	if _, err := call(t.Context(), l, "first", "--dir", dir); err == nil || !strings.Contains(err.Error(), "holds a run already: go on with it by --resume "+dir) {
		t.Errorf("the same folder again: %v", err)
	}
	// The file in the folder repeats it too.
	other := filepath.Join(t.TempDir(), "again")
	if _, err := call(t.Context(), l, "run", filepath.Join(dir, definition), "--dir", other, "-o", "json"); err != nil {
		t.Fatal(err)
	}
	again, err := result.Read(other)
	if err != nil || len(again.Measurements) != len(run.Measurements) || again.Seed != 9 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := call(t.Context(), l, "first", "--letters", "long"); err == nil || !strings.Contains(err.Error(), `--letters: "long" is too long`) {
		t.Errorf("a bad flag: %v", err)
	}
}
