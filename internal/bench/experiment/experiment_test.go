package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// fake measures numbers that its seed decides, and what a test does meanwhile.
type fake struct {
	Letters []string `json:"letters"`
	Once    string   `json:"once,omitempty"`  // the letter that is measured in the first round only
	Pause   Duration `json:"pause,omitempty"` // not used
	Share   float64  `json:"share,omitempty"`

	before func(id string, round int) error // each Measure
	opened int
	closed int
}

func (f *fake) Flags(s *pflag.FlagSet) {
	s.StringSliceVar(&f.Letters, "letters", f.Letters, "what to measure")
}
func (f *fake) Quick()                         { f.Letters = f.Letters[:1] }
func (f *fake) CPUs(chosen int) ([]int, error) { return []int{chosen}, nil }

func (f *fake) Validate() error {
	var list Problems
	for i, l := range f.Letters {
		if len(l) != 1 {
			list = append(list, Problem(fmt.Sprintf("with.letters[%d]", i), "one letter", "%q is too long", l))
		}
	}
	return Check(list)
}

func (f *fake) Plan() (Plan, error) {
	p := Plan{SetUp: time.Second}
	for _, l := range f.Letters {
		point := Point{ID: l, Takes: 10 * time.Second}
		if l == f.Once {
			point.Rounds = 1
		}
		p.Points = append(p.Points, point)
	}
	return p, nil
}

func (f *fake) Open(context.Context, Setting) (Bench, error) { f.opened++; return f, nil }
func (f *fake) Close() error                                 { f.closed++; return nil }
func (f *fake) Environment(context.Context) (result.Environment, error) {
	return result.Environment{Version: "v1", DataPath: "abc"}, nil
}

func (f *fake) Measure(ctx context.Context, p Point, round int) ([]Sample, error) {
	if f.before != nil {
		if err := f.before(p.ID, round); err != nil {
			return nil, err
		}
	}
	beside := 100.0
	return []Sample{
		{Metric: "letter", Labels: result.Labels{"letter": p.ID}, Unit: "ns", Value: float64(p.ID[0]), Baseline: &beside},
		{Metric: "round", Labels: result.Labels{"letter": p.ID}, Value: float64(round),
			Histogram: &result.Histogram{Unit: "ns", Lower: []uint64{uint64(round)}, Upper: []uint64{uint64(round) + 1}, Count: []uint64{2}}},
	}, ctx.Err()
}

func (f *fake) Figures() []result.Figure {
	return []result.Figure{{ID: "letters", Title: "Letters", Kind: result.Bars, Metric: "letter", X: "letter"}}
}
func (f *fake) Claims(*result.Run) []string { return []string{"letters are cheap"} }

var kinds = []Kind{{Name: "fake", New: func() Experiment { return &fake{} }, NoiseLimit: 0.2}}

const good = `name: letters
kind: fake
title: What letters cost
rounds: 3
seed: 11
with:
  letters: [a, b, c, d, e, f]
  once: c
  pause: 1s
  share: 0.5
`

func parse(t *testing.T) (*File, *fake) {
	t.Helper()
	f, err := Parse([]byte(good), kinds)
	if err != nil {
		t.Fatal(err)
	}
	return f, f.With.(*fake)
}

func options(dir string) Options {
	return Options{
		Dir: dir, Setting: Setting{CPU: -1}, Command: "culvert bench run letters.yaml", Out: io.Discard,
		Environment: func() (result.Environment, error) { return result.Environment{Kernel: "6.18"}, nil },
		Noise:       func(context.Context, int) (float64, error) { return 0.01, nil },
		Draw:        func(string) error { return nil },
	}
}

// The file that a run leaves says the same as the one that it was made from.
func TestFile(t *testing.T) {
	f, with := parse(t)
	if f.Rounds != 3 || f.Seed != 11 || with.Share != 0.5 || time.Duration(with.Pause) != time.Second || len(with.Letters) != 6 {
		t.Errorf("%+v, %+v", f, with)
	}
	text, err := f.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text, kinds)
	if err != nil || !reflect.DeepEqual(f, again) {
		t.Errorf("%v, %+v\n%s", err, again, text)
	}
}

func TestFileRefused(t *testing.T) {
	for _, c := range []struct{ old, new, says string }{
		{"kind: fake", "kind: fakir", `line 2: kind: there is no kind "fakir" (fix: one of: fake)`},
		{"kind: fake\n", "", "kind: it is missing"},
		{"name: letters", "name: My Letters", `line 1: name: "My Letters" cannot name a folder`},
		{"title: What letters cost", "title: ''", "line 3: title: it is missing"},
		{"rounds: 3", "rounds: 0", "line 4: rounds: 0 is out of range (fix: 1 to 10000)"},
		{"rounds: 3", "runds: 3", `line 4: runds: unknown field (fix: did you mean "rounds"?)`},
		{"once: c", "onse: c", `line 8: with.onse: unknown field (fix: did you mean "once"?)`},
		{"[a, b, c, d, e, f]", "[a, bc]", `line 7: with.letters[1]: "bc" is too long (fix: one letter)`},
		{"pause: 1s", "pause: fast", `line 9: with.pause: "fast" is no duration: write one such as`},
		{"share: 0.5", "share: half", `line 10: with.share: must be a number, is the text "half"`},
		{"with:", "with: {", "line 6: with: not YAML"},
		{"kind: fake", "\tkind: fake", "line 2: name: not YAML"},
		{"seed: 11", "seed: -7", "line 5: seed: -7 is out of range"},
		{"seed: 11", "noise_limit: 10", "line 5: noise_limit: 10 is out of range (fix: a share of a CPU's time, above 0 and up to 1)"},
	} {
		if strings.Count(good, c.old) != 1 {
			t.Fatalf("%q does not stand once in the good file", c.old)
		}
		_, err := Parse([]byte(strings.Replace(good, c.old, c.new, 1)), kinds)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(c.says, "not YAML") && strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%q: %v, want %q", c.new, err, c.says)
		}
	}
}

// Every point once in a round, in another order each time, which the seed
// decides.
func TestInterleaved(t *testing.T) {
	orders := map[uint64][]string{}
	for _, seed := range []uint64{11, 11, 12} {
		f, with := parse(t)
		f.Seed = seed
		var got []string
		rounds := map[int][]string{}
		with.before = func(id string, round int) error {
			got, rounds[round] = append(got, id), append(rounds[round], id)
			return nil
		}
		run, err := Run(t.Context(), f, options(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		for round, want := range []string{"abcdef", "abdef", "abdef"} {
			if s := strings.Join(slices.Sorted(slices.Values(rounds[round])), ""); s != want {
				t.Errorf("round %d has %s, want %s", round, s, want)
			}
		}
		if slices.Equal(rounds[1], rounds[2]) {
			t.Errorf("both rounds in the order %v", rounds[1])
		}
		if before, ok := orders[seed]; ok && !slices.Equal(before, got) {
			t.Errorf("seed %d: %v, then %v", seed, before, got)
		}
		orders[seed] = got
		if !run.Complete || run.Rounds != 3 || run.Seed != seed || with.opened != 1 || with.closed != 1 {
			t.Errorf("%+v; opened %d, closed %d", run, with.opened, with.closed)
		}
	}
	if slices.Equal(orders[11], orders[12]) {
		t.Error("two seeds, one order")
	}
}

// Measurements are in the order of the plan, samples in that of rounds.
func TestCollected(t *testing.T) {
	f, _ := parse(t)
	dir := t.TempDir()
	if _, err := Run(t.Context(), f, options(dir)); err != nil {
		t.Fatal(err)
	}
	run, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Measurements) != 12 || run.Command == "" || run.Environment.Kernel != "6.18" || run.Environment.Version != "v1" || run.Environment.Commit != "v1" {
		t.Fatalf("%+v", run)
	}
	for i, m := range run.Measurements {
		letter := string("abcdef"[i/2])
		want := []float64{float64(letter[0]), float64(letter[0]), float64(letter[0])}
		if m.Metric == "round" {
			want = []float64{0, 1, 2}
		} else if !slices.Equal(m.Baseline, []float64{100, 100, 100}[:len(m.Samples)]) {
			t.Errorf("%s beside %v", letter, m.Baseline)
		}
		if letter == "c" {
			want = want[:1]
		}
		if m.Labels["letter"] != letter || !slices.Equal(m.Samples, want) {
			t.Errorf("measurement %d: %v %v, want %s %v", i, m.Labels, m.Samples, letter, want)
		}
		if m.Metric == "round" && m.Histogram.Total() != uint64(2*len(want)) {
			t.Errorf("%s: a histogram of %d", letter, m.Histogram.Total())
		}
	}
}

// What stops a run leaves all that was measured, and what is taken up again ends
// with the same samples as a run that nobody stopped.
func TestStopAndResume(t *testing.T) {
	whole, _ := parse(t)
	want, err := Run(t.Context(), whole, options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("a frame came out wrong")
	for name, stop := range map[string]struct {
		how  func(cancel func()) error
		says string
	}{
		"Ctrl-C":      {func(cancel func()) error { cancel(); return nil }, "the run was stopped"},
		"a bad point": {func(func()) error { return broken }, "a frame came out wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			f, with := parse(t)
			drawn, n := 0, 0
			with.before = func(string, int) error {
				if n++; n == 9 {
					return stop.how(cancel)
				}
				return nil
			}
			o := options(dir)
			o.Draw = func(string) error { drawn++; return nil }
			run, err := Run(ctx, f, o)
			if err == nil || !strings.Contains(err.Error(), stop.says) || !strings.Contains(err.Error(), "culvert bench run --resume "+dir) {
				t.Errorf("%v, want %q and how to go on", err, stop.says)
			}
			if run == nil || run.Complete || drawn != 1 || with.closed != 1 || len(run.Claims) > 0 || !strings.Contains(strings.Join(run.Warnings, " "), "8 of 16 samples of points are missing") {
				t.Fatalf("%+v, drawn %d times, closed %d times", run, drawn, with.closed)
			}
			resumed(t, dir, want)
		})
	}
}

func resumed(t *testing.T, dir string, want *result.Run) {
	t.Helper()
	f, err := LoadFolder(dir, kinds)
	if err != nil {
		t.Fatal(err)
	}
	o := options(dir)
	if _, err := Run(t.Context(), f, o); err == nil || !strings.Contains(err.Error(), "holds a run already") {
		t.Errorf("a second run into %s: %v", dir, err)
	}
	o.Resume = true
	got, err := Run(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Complete || !reflect.DeepEqual(got.Measurements, want.Measurements) {
		t.Errorf("complete %v, measurements\n%+v, want\n%+v", got.Complete, got.Measurements, want.Measurements)
	}
	with := f.With.(*fake)
	opened := with.opened
	if _, err := Run(t.Context(), f, o); err != nil || with.opened != opened {
		t.Errorf("a complete run: %v, opened %d times more", err, with.opened-opened)
	}
}

// A kill in the middle of a line costs that line.
func TestTornJournal(t *testing.T) {
	f, _ := parse(t)
	dir := t.TempDir()
	want, err := Run(t.Context(), f, options(dir))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, journalFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{len(text) / 3, len(text) / 2, len(text) - 1} {
		if err := os.WriteFile(path, text[:keep], 0o600); err != nil {
			t.Fatal(err)
		}
		resumed(t, dir, want)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[3] = []byte("{\"point\": nonsense\n")
	if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(dir)
	o.Resume = true
	if _, err := Run(t.Context(), f, o); err == nil || !strings.Contains(err.Error(), "line 4 is damaged") {
		t.Errorf("a damaged journal: %v", err)
	}
}

// Two runs in one folder would spoil each other.
func TestFolderIsHeld(t *testing.T) {
	f, with := parse(t)
	dir := t.TempDir()
	var second error
	with.before = func(string, int) error {
		if second == nil {
			other, _ := parse(t)
			_, second = Run(t.Context(), other, options(dir))
		}
		return nil
	}
	if _, err := Run(t.Context(), f, options(dir)); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(second, errHeld) {
		t.Errorf("the second run: %v", second)
	}
}

// What an experiment was of when it was taken up again is said.
func TestOtherBuild(t *testing.T) {
	f, with := parse(t)
	dir := t.TempDir()
	with.before = func(_ string, round int) error {
		if round == 1 {
			return errors.New("stop")
		}
		return nil
	}
	if _, err := Run(t.Context(), f, options(dir)); err == nil {
		t.Fatal("it did not stop")
	}
	with.before = nil
	o := options(dir)
	o.Resume = true
	o.Environment = func() (result.Environment, error) { return result.Environment{Kernel: "6.19"}, nil }
	run, err := Run(t.Context(), f, o)
	if err != nil || !strings.Contains(strings.Join(run.Warnings, " "), "another, after a stop, of culvert v1 (data path abc) on Linux 6.19") {
		t.Errorf("%v, warnings %q", err, run.Warnings)
	}
}

// A full disk: the run ends, says so, and leaves a journal that can be gone on
// with.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,nr_inodes=16"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	f, with := parse(t)
	f.Rounds = 1000
	measured := 0
	with.before = func(string, int) error { measured++; return nil }
	_, err := Run(t.Context(), f, options(dir))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "what was measured cannot be kept") {
		t.Errorf("%v, want a full disk", err)
	}
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.file.Close()
	kept := slices.DeleteFunc(j.entries, func(e entry) bool { return e.Point == nil })
	if len(kept) != measured-1 || measured < 10 || with.closed != 1 {
		t.Errorf("%d points kept of %d; closed %d times", len(kept), measured, with.closed)
	}
}

// A noisy machine bears out no claim.
func TestClaims(t *testing.T) {
	for noise, claims := range map[float64]int{0.01: 1, 0.5: 0} {
		run := &result.Run{Complete: true, NoiseLimit: 0.2, Environment: result.Environment{Noise: noise}}
		judge(run, &fake{})
		if len(run.Claims) != claims || len(run.Warnings) != 1-claims {
			t.Errorf("noise %v: %d claims, warnings %q", noise, len(run.Claims), run.Warnings)
		}
	}
}

// The plan's time is said before it starts, and what is left of it.
func TestProgress(t *testing.T) {
	f, _ := parse(t)
	var out bytes.Buffer
	o := options(t.TempDir())
	o.Out = &out
	if _, err := Run(t.Context(), f, o); err != nil {
		t.Fatal(err)
	}
	want := "letters: 3 rounds, seed 11; takes about 2m41s; into " + o.Dir + "\n" +
		"round 1 of 3, about 2m40s left\nround 2 of 3, about 1m40s left\nround 3 of 3, about 50s left\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestJournalIsJSON(t *testing.T) {
	f, _ := parse(t)
	dir := t.TempDir()
	if _, err := Run(t.Context(), f, options(dir)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if !json.Valid(line) {
			t.Errorf("%s", line)
		}
	}
}
