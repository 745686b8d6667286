package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Suite is a part of the tests of an e2e.test.
type Suite struct {
	Name    string
	Program string   // e2e.test
	Flags   []string // how it reaches the cluster
	// Focus chooses tests by their full names, of which Skip leaves some out: regular expressions
	// of Go. The reasons why are the topology's to give.
	Focus, Skip string
	Workers     int    // so many at once
	Dir         string // an existing folder for reports and logs
	State       *State
	// Enter calls a function on a thread from which the cluster is reached.
	Enter func(func() error) error
	// Say tells what goes on.
	Say func(format string, args ...any)
}

// Result counts tests. Skipped ones say themselves that they cannot be made.
type Result struct {
	Passed, Before, Skipped int // Before: of those that passed, in an earlier run
	Failed                  []Failure
}

// Failure is a test that failed.
type Failure struct{ Name, Why string }

// batchSize is how many tests a process makes: each looks at the whole cluster first, which
// takes seconds, and what it has done is known when it ends.
const batchSize = 4

// endTime is what a process gets to clean up when it is ended.
const endTime = 30 * time.Second

// Run makes the tests that have not passed before. A test that fails is no error.
func (s Suite) Run(ctx context.Context) (r Result, err error) {
	list, err := s.list(ctx)
	if err != nil {
		return r, err
	}
	var together, alone []string
	for _, t := range list {
		switch {
		case s.State.Passed(s.Name, t.name):
			r.Before++
		case t.serial:
			alone = append(alone, t.name)
		default:
			together = append(together, t.name)
		}
	}
	r.Passed = r.Before
	s.Say("%s: %d tests, %d of which passed before", s.Name, len(list), r.Before)
	for _, part := range []struct {
		names         []string
		workers, size int
	}{{together, s.Workers, batchSize}, {alone, 1, 1}} {
		if err := s.each(ctx, part.names, part.workers, part.size, &r); err != nil {
			return r, err
		}
	}
	slices.SortFunc(r.Failed, func(a, b Failure) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// each makes tests in batches, by so many workers.
func (s Suite) each(ctx context.Context, names []string, workers, size int, r *Result) error {
	batches := make(chan []string)
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	done := 0
	for range workers {
		all.Go(func() {
			for batch := range batches {
				specs, err := s.batch(ctx, batch)
				mu.Lock()
				err = errors.Join(err, s.count(specs, r))
				done += len(batch)
				s.Say("%s: %d of %d made, %d failed", s.Name, done, len(names), len(r.Failed))
				if errs = append(errs, err); err != nil {
					ctx = canceled(ctx, err)
				}
				mu.Unlock()
			}
		})
	}
	for batch := range slices.Chunk(names, size) {
		if ctx.Err() != nil {
			break
		}
		batches <- batch
	}
	close(batches)
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// canceled is a context that has ended.
func canceled(ctx context.Context, why error) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(why)
	return ctx
}

// count adds tests that were made, and remembers those that passed.
func (s Suite) count(specs []spec, r *Result) error {
	var passed []string
	for _, t := range specs {
		switch t.State {
		case "passed":
			r.Passed++
			passed = append(passed, t.name())
		case "skipped":
			r.Skipped++
		default:
			r.Failed = append(r.Failed, Failure{t.name(), t.State + ": " + t.Failure.Message})
		}
	}
	return s.State.Add(s.Name, passed)
}

// test is one that the suite has.
type test struct {
	name   string
	serial bool
}

// list asks for the tests.
func (s Suite) list(ctx context.Context) (list []test, err error) {
	args := []string{"--ginkgo.dry-run", "--ginkgo.focus", s.Focus}
	if s.Skip != "" {
		args = append(args, "--ginkgo.skip", s.Skip)
	}
	specs, err := s.ask(ctx, "list", args)
	if err != nil {
		return nil, err
	}
	for _, t := range specs {
		if t.State == "passed" { // else it is not of this suite
			list = append(list, test{t.name(), t.Serial})
		}
	}
	return list, nil
}

// batch makes some tests, and returns those that were not left out.
func (s Suite) batch(ctx context.Context, names []string) (specs []spec, err error) {
	args := []string{"--ginkgo.timeout", "30m", "--ginkgo.no-color"}
	for _, name := range names {
		args = append(args, "--ginkgo.focus", regexp.QuoteMeta(name)+"$")
	}
	all, err := s.ask(ctx, fmt.Sprintf("%x", hash(names...)), args)
	for _, t := range all {
		if slices.Contains(names, t.name()) {
			specs = append(specs, t)
		}
	}
	if err == nil && len(specs) != len(names) {
		err = fmt.Errorf("%d tests were made, and not %d: %s", len(specs), len(names), strings.Join(names, "; "))
	}
	return specs, err
}

// ask runs e2e.test and reads its report. That tests failed is in the report, and no error.
func (s Suite) ask(ctx context.Context, name string, args []string) ([]spec, error) {
	base := filepath.Join(s.Dir, name)
	report := base + ".json"
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.Program, slices.Concat(args, []string{"--ginkgo.json-report", report}, s.Flags)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it cleans up
	cmd.WaitDelay = endTime
	cmd.Dir = s.Dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var ended error
	if err := s.Enter(func() error { ended = cmd.Run(); return nil }); err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), os.WriteFile(base+".log", out.Bytes(), 0o600)); err != nil {
		return nil, err
	}
	specs, err := read(report)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: see %s.log: %w", cmd.Path, base, err), ended)
	}
	return specs, nil
}
