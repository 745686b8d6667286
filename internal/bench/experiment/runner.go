package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// definition is the experiment in a run's folder, with all that flags changed: a
// run that is taken up again reads it.
const definition = "experiment.yaml"

// noiseEvery is after how much time, by the plan, the loop of known length runs again
// within a round.
const noiseEvery = 10 * time.Second

// Options are how an experiment is run.
type Options struct {
	Setting
	Dir     string // the run's folder
	Resume  bool   // go on with what is there
	Command string // that repeats the run
	Out     io.Writer
	// Environment is the machine, and the build of this program.
	Environment func() (result.Environment, error)
	// Noise is the share of time that others take on a CPU at this moment.
	Noise func(ctx context.Context, cpu int) (float64, error)
	// Draw draws the report of a folder.
	Draw func(dir string) error
}

// ErrStopped is of a run that was ended before it was complete.
var ErrStopped = errors.New("the run was stopped")

// run is one under way.
type run struct {
	Options
	file      *File
	plan      Plan
	journal   *journal
	progress  *progress
	unchecked time.Duration // by the plan, since the loop of known length ran
}

// Run measures what a file says, and leaves the run's folder with its report.
// What was measured is kept whatever ends it; the run that is returned says
// whether it is complete.
func Run(ctx context.Context, f *File, o Options) (_ *result.Run, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	plan, err := f.With.Plan()
	if err != nil {
		return nil, err
	}
	if len(plan.Points) == 0 {
		return nil, fmt.Errorf("%s: there is nothing to measure", f.Name)
	}
	r := &run{Options: o, file: f, plan: plan}
	if err := r.openFolder(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.journal.file.Close()) }()
	return r.finish(r.measure(ctx))
}

// openFolder makes the run's folder, or finds out what is there already.
func (r *run) openFolder() (err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	if r.journal, err = openJournal(r.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.journal.file.Close())
		}
	}()
	if len(r.journal.entries) > 0 {
		if !r.Resume {
			return fmt.Errorf("%s holds a run already: go on with it by --resume %[1]s, or give another folder with --dir", r.Dir)
		}
		return nil
	}
	return r.file.keep(r.Dir)
}

// keep writes what is measured into the run's folder.
func (f *File) keep(dir string) error {
	text, err := f.Text()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, definition), text, 0o644)
}

// LoadFolder reads the experiment of a run that was begun.
func LoadFolder(dir string, kinds []Kind) (*File, error) {
	path := filepath.Join(dir, definition)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%s is no folder of a run that could be taken up again: %w", dir, err)
	}
	return Load(path, kinds)
}

// left are the points that are missing, round by round.
func (r *run) left() (rounds [][]Point) {
	for round := range r.file.Rounds {
		var points []Point
		// The seed decides the order, so that it is the same again after a stop.
		for _, i := range rand.New(rand.NewPCG(r.file.Seed, uint64(round))).Perm(len(r.plan.Points)) {
			p := r.plan.Points[i]
			done := func(e entry) bool { return e.Point != nil && e.Point.ID == p.ID && e.Point.Round == round }
			if round < p.rounds(r.file.Rounds) && !slices.ContainsFunc(r.journal.entries, done) {
				points = append(points, p)
			}
		}
		rounds = append(rounds, points)
	}
	return rounds
}

// measure takes all samples that are missing.
func (r *run) measure(ctx context.Context) (err error) {
	left, takes := r.left(), r.plan.SetUp
	if len(slices.Concat(left...)) == 0 {
		return r.end()
	}
	for _, p := range slices.Concat(left...) {
		takes += p.Takes
	}
	r.progress = announce(r.Out, r.file, takes, r.Dir)
	defer func() { _ = r.progress.bar.Finish() }()
	if err := r.noise(ctx); err != nil {
		return err
	}
	set := r.Setting
	set.Seed, set.Warn = r.file.Seed, r.warn
	bench, err := r.file.With.Open(ctx, set)
	if err != nil {
		return err
	}
	err = r.rounds(ctx, bench, left)
	if err := errors.Join(err, bench.Close()); err != nil {
		return err
	}
	return r.end()
}

func (r *run) rounds(ctx context.Context, bench Bench, left [][]Point) error {
	if err := r.begin(ctx, bench); err != nil {
		return err
	}
	r.progress.spent(r.plan.SetUp)
	for round, points := range left {
		for i, p := range points {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.progress.at(round, r.file.Rounds, p)
			samples, err := bench.Measure(ctx, p, round)
			if err != nil {
				return fmt.Errorf("%s: %w", p.ID, err)
			}
			if err := r.journal.add(entry{Point: &taken{p.ID, round, samples}}); err != nil {
				return err
			}
			r.progress.spent(p.Takes)
			if r.unchecked += p.Takes; r.unchecked >= noiseEvery || i == len(points)-1 {
				if err := r.noise(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// begin notes where figures come from. What is taken up again must come from the
// same place.
func (r *run) begin(ctx context.Context, bench Bench) error {
	e, err := r.Environment()
	if err != nil {
		return err
	}
	own, err := bench.Environment(ctx)
	if err != nil {
		return err
	}
	// What is not of the machine only the experiment knows.
	e.Version = cmp.Or(own.Version, e.Version)
	e.Commit = cmp.Or(e.Commit, e.Version)
	e.DataPath, e.Offloads, e.GeneratorLimit, e.TimestampNS = own.DataPath, own.Offloads, own.GeneratorLimit, own.TimestampNS
	build := func(e result.Environment) string {
		return fmt.Sprintf("culvert %s (data path %.12s)", e.Version, e.DataPath)
	}
	for _, earlier := range r.journal.entries {
		if earlier.Begin == nil {
			continue
		}
		was := earlier.Begin.Environment
		if was.Kernel != e.Kernel || was.CPU != e.CPU || was.Version != e.Version || was.DataPath != e.DataPath {
			r.warn("one part was measured of %s on Linux %s, and another, after a stop, of %s on Linux %s", build(was), was.Kernel, build(e), e.Kernel)
		}
	}
	return r.journal.add(entry{Begin: &beginning{time.Now().UTC().Truncate(time.Second), r.Command, e}})
}

func (r *run) end() error {
	if slices.ContainsFunc(r.journal.entries, func(e entry) bool { return e.End != nil }) {
		return nil
	}
	at := time.Now().UTC().Truncate(time.Second)
	return r.journal.add(entry{End: &at})
}

// warn keeps a warning. If it cannot be kept, neither can the next sample, whose error
// ends the run.
func (r *run) warn(format string, args ...any) {
	_ = r.journal.add(entry{Warning: fmt.Sprintf(format, args...)})
}

// noise runs the loop on all CPUs that are measured on, and keeps the most noise.
func (r *run) noise(ctx context.Context) error {
	cpus, err := r.file.With.CPUs(r.CPU)
	if err != nil {
		return err
	}
	most := 0.0
	for _, cpu := range cpus {
		share, err := r.Noise(ctx, cpu)
		if err != nil {
			return err
		}
		most = max(most, share)
	}
	r.unchecked = 0
	return r.journal.add(entry{Noise: &most})
}

// finish writes the run and draws its report, complete or not.
func (r *run) finish(measured error) (*result.Run, error) {
	out := collect(r.file, r.plan, r.journal)
	if measured != nil && len(out.Measurements) == 0 {
		// Without its journal the user can fix the problem and run in the same folder again.
		return nil, errors.Join(stopped(measured, "nothing was measured"), os.Remove(r.journal.path))
	}
	if !out.Complete {
		all := 0
		for _, p := range r.plan.Points {
			all += p.rounds(r.file.Rounds)
		}
		out.Warnings = append(out.Warnings, fmt.Sprintf("the run was stopped before it was complete: %d of %d samples of points are missing",
			len(slices.Concat(r.left()...)), all))
	}
	judge(out, r.file.With)
	err := out.Write(r.Dir)
	if err == nil {
		err = r.Draw(r.Dir)
	}
	if measured != nil {
		kept := fmt.Sprintf("what was measured is kept: go on with culvert bench run --resume %s", r.Dir)
		return out, errors.Join(stopped(measured, kept), err)
	}
	return out, err
}

func stopped(why error, then string) error {
	if errors.Is(why, context.Canceled) {
		why = ErrStopped
	}
	return fmt.Errorf("%w; %s", why, then)
}

// judge says whether the machine let the run claim anything, and lets the
// experiment claim.
func judge(out *result.Run, with Experiment) {
	if n := out.Environment.Noise; n > out.NoiseLimit {
		out.Warnings = slices.Insert(out.Warnings, 0, fmt.Sprintf(
			"others took %.0f %% of a CPU's time from a loop of known length, more than the %.0f %% up to which such figures hold: this run claims nothing",
			100*n, 100*out.NoiseLimit))
		return
	}
	if out.Complete {
		out.Claims = with.Claims(out)
	}
}
