package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/cmdline"
)

// Library is what there is to be run.
type Library struct {
	Kinds []Kind
	// Names are those of the built-in experiments; the file NAME.yaml in Files says
	// what each is. Suite are those that the suite runs unless the user names others: what
	// there is time for.
	Names, Suite []string
	Files        fs.FS
	// Environment is the machine, and the build of this program.
	Environment func() (result.Environment, error)
	// Draw draws the report of a folder: of a run, or of several runs below it.
	Draw func(dir string) error
}

// text is a built-in file.
func (l *Library) text(name string) ([]byte, error) {
	if !slices.Contains(l.Names, name) {
		return nil, fmt.Errorf("there is no experiment %q: built in are %s; a file of your own ends in .yaml", name, strings.Join(l.Names, ", "))
	}
	return fs.ReadFile(l.Files, name+".yaml")
}

// Builtin is a built-in experiment.
func (l *Library) Builtin(name string) (*File, error) {
	text, err := l.text(name)
	if err != nil {
		return nil, err
	}
	return Parse(text, l.Kinds)
}

// choices are the flags that every experiment has.
type choices struct {
	dir, resume, output string
	rounds              int
	seed                uint64
	quick               bool
	culvert, bpffs      string
	cpu                 int
}

// apply changes a file as the flags say.
func (c *choices) apply(f *File) {
	if c.quick {
		f.Rounds = min(f.Rounds, 2)
		f.With.Quick()
	}
	if c.rounds != 0 {
		f.Rounds = c.rounds
	}
	if c.seed != 0 {
		f.Seed = c.seed
	}
}

// noiseLoop is how long the loop of known length runs, before, after and between
// rounds.
const noiseLoop = 200 * time.Millisecond

// folder is where a run goes if nobody says where.
func folder(name string) string {
	return filepath.Join("culvert-bench", name+"-"+time.Now().Format("20060102-150405"))
}

// run runs a file into a folder.
func (l *Library) run(ctx context.Context, f *File, c *choices, dir, command string, resume bool, out io.Writer) (*result.Run, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the benchmarks make network namespaces and load programs: run them as root")
	}
	binary := c.culvert
	if binary == "" {
		var err error
		if binary, err = cmdline.Program("culvert"); err != nil {
			return nil, err
		}
	}
	return Run(ctx, f, Options{
		Setting: Setting{Culvert: binary, BPFFS: c.bpffs, CPU: c.cpu},
		Dir:     dir, Resume: resume, Command: command, Out: out, Environment: l.Environment, Draw: l.Draw,
		Noise: func(ctx context.Context, cpu int) (float64, error) { return stats.Noise(ctx, cpu, noiseLoop) },
	})
}

// begin writes what a suite will measure into its folders, so that what goes on
// after a stop is the same suite.
func (l *Library) begin(names []string, c *choices, dir string) (files []*File, err error) {
	for _, name := range names {
		f, err := l.Builtin(name)
		if err != nil {
			return nil, err
		}
		c.apply(f)
		if err := f.Validate(); err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, name, definition)); err == nil {
			return nil, fmt.Errorf("%s holds a suite already: go on with it by --resume %[1]s, or give another folder with --dir", dir)
		}
		files = append(files, f)
	}
	for _, f := range files {
		if err := f.keep(filepath.Join(dir, f.Name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// begun are the experiments of a suite that was begun.
func (l *Library) begun(dir string) (files []*File, err error) {
	for _, name := range l.Names {
		below := filepath.Join(dir, name)
		if _, err := os.Stat(filepath.Join(below, definition)); err != nil {
			continue
		}
		f, err := LoadFolder(below, l.Kinds)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s is no folder of a suite that could be taken up again: a single run goes on with culvert bench run --resume", dir)
	}
	return files, nil
}

// suite runs all built-in experiments, each into a folder of its own below one.
// One that fails does not keep the others from being run.
func (l *Library) suite(ctx context.Context, names []string, c *choices, dir string, resume bool, out io.Writer) error {
	begin := func() ([]*File, error) { return l.begin(names, c, dir) }
	if resume {
		begin = func() ([]*File, error) { return l.begun(dir) }
	}
	files, err := begin()
	if err != nil {
		return err
	}
	var which []string
	total := time.Duration(0)
	for _, f := range files {
		plan, err := f.With.Plan()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		total += plan.Takes(f.Rounds)
		which = append(which, f.Name)
	}
	fmt.Fprintf(out, "%s: takes about %s in all; into %s\n", strings.Join(which, ", "), total.Round(time.Second), dir)
	var errs []error
	for i, f := range files {
		_, err := l.run(ctx, f, c, filepath.Join(dir, f.Name), l.repeats(f), resume, out)
		if err != nil {
			fmt.Fprintf(out, "%s: %v\n", f.Name, err) // the end is far
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
		if ctx.Err() != nil {
			if err != nil || i < len(files)-1 {
				errs = append(errs, fmt.Errorf("%w; go on with all of it with culvert bench suite --resume %s", ErrStopped, dir))
			}
			break
		}
	}
	return errors.Join(append(errs, l.Draw(dir))...)
}

// repeats is the command that repeats an experiment of a suite, in the suite's folder
// where flags have changed it.
func (l *Library) repeats(f *File) string {
	what := f.Name
	var builtIn []byte
	built, err := l.Builtin(f.Name)
	if err == nil {
		builtIn, err = built.Text()
	}
	if own, err2 := f.Text(); err != nil || err2 != nil || !bytes.Equal(own, builtIn) {
		what = filepath.Join(f.Name, definition)
	}
	return "culvert bench run " + what
}
