package experiment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/config"
)

// Kind is a sort of experiment: what the field `kind` of a file names.
type Kind struct {
	Name string
	// New makes an experiment of this kind with its defaults: a pointer to a
	// struct whose fields have JSON names, those of the file's section `with`. It
	// may hold text, truth values, whole numbers, float64, Duration, structs,
	// pointers, lists, and what has UnmarshalText.
	New func() Experiment
	// NoiseLimit is the share of time taken by others, 0 to 1, up to which runs of
	// this kind claim anything, where a file does not say. docs/how-to/measure.md says how
	// it was found.
	NoiseLimit float64
}

// What others may take of a CPU's time before figures say nothing
// (docs/how-to/measure.md): NoiseOfRatios of CPU time beside a baseline, NoiseOfRates of
// rates, losses and latencies.
const (
	NoiseOfRatios = 0.5
	NoiseOfRates  = 0.1
)

// Experiment is one with all its parameters. It may also have a
// Glossary() map[string]string, what values of its labels mean.
type Experiment interface {
	// Flags offers parameters as flags; their defaults are what the experiment
	// holds when it is called.
	Flags(*pflag.FlagSet)
	// Quick makes it as short as shows that it works: seconds.
	Quick()
	// Validate says what is wrong with the parameters, as Problems. It changes
	// nothing, and needs no root.
	Validate() error
	// Plan is what will be measured, and how long it takes. It may look at the
	// machine, and changes nothing on it. It is the same each time.
	Plan() (Plan, error)
	// CPUs are those that it measures on, where Setting.CPU is `chosen`: that is where
	// noise matters.
	CPUs(chosen int) ([]int, error)
	// Open sets up what is measured. What it made is gone after an error.
	Open(context.Context, Setting) (Bench, error)
	// Figures show what is measured.
	Figures() []result.Figure
	// Claims are sentences that the measurements of a run bear out. They are asked
	// for where nothing forbids claims.
	Claims(*result.Run) []string
}

// Plan is what will be measured.
type Plan struct {
	Points []Point
	SetUp  time.Duration // before the first point
}

// Point is measured once in each round. Points are measured in an order that
// differs from round to round: none may depend on another.
type Point struct {
	// ID tells points apart, in the journal and to who watches: "end, 1000
	// entries". It is the same in each run of the same experiment.
	ID    string
	Takes time.Duration // of one round
	// Rounds are in how many rounds it is measured; 0: in all.
	Rounds int
}

// Setting is where an experiment runs.
type Setting struct {
	Culvert string // the binary that is measured
	BPFFS   string // directory for pins
	CPU     int    // to measure on; below 0: the last that may be used
	Seed    uint64 // of everything that is drawn at random
	// Warn keeps a reason to doubt the figures; the same one is kept once.
	Warn func(format string, args ...any)
}

// Bench is an experiment that is set up.
type Bench interface {
	// Environment is what only the experiment knows of it: DataPath, Offloads,
	// GeneratorLimit, TimestampNS, Version. The rest is filled in.
	Environment(context.Context) (result.Environment, error)
	// Measure takes a sample of each quantity at a point. Rounds count from 0. An
	// error ends the run; what was measured before is kept.
	Measure(ctx context.Context, p Point, round int) ([]Sample, error)
	// Close removes everything that Open made.
	Close() error
}

// Sample is one value of a measurement. Those of the same metric and labels,
// of any points and rounds, make a result.Measurement.
type Sample struct {
	Metric string        `json:"metric"`
	Labels result.Labels `json:"labels"`
	Unit   string        `json:"unit"`
	Value  float64       `json:"value"`
	// Baseline is what stood beside it in the same round. A measurement has one
	// beside each of its samples or none.
	Baseline  *float64          `json:"baseline,omitempty"`
	Histogram *result.Histogram `json:"histogram,omitempty"`
}

// Problems are everything that is wrong with parameters: what the configuration
// says of its own, with fields below `with`.
type Problems = config.Errors

// Problem is one of them: where, what, and what to write instead. Fields of the
// file's section `with` are named as in "with.sizes[1]".
func Problem(field, fix, format string, args ...any) config.Error {
	return config.Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix}
}

// Want reports a problem with a field unless the field is right.
type Want func(right bool, field, fix, format string, args ...any)

// WantInto returns a Want that adds problems with fields of `with` to a list.
func WantInto(list *Problems) Want { return wantField(list, "with.") }

func wantField(list *Problems, section string) Want {
	return func(right bool, field, fix, format string, args ...any) {
		if !right {
			*list = append(*list, Problem(section+field, fix, format, args...))
		}
	}
}

// Each wants all values of a field to be right. The problem's format is of the value.
func Each[T any](want Want, field, fix, problem string, values []T, right func(T) bool) {
	for i, v := range values {
		want(right(v), fmt.Sprintf("%s[%d]", field, i), fix, problem, v)
	}
}

// Chosen wants a field to be some of a list, each of them once.
func Chosen(want Want, field string, values, from []string) {
	fix := "give some of " + strings.Join(from, ", ")
	want(len(values) > 0, field, fix, "none is chosen")
	for i, v := range values {
		at, known := fmt.Sprintf("%s[%d]", field, i), slices.Contains(from, v)
		want(known, at, fix, "there is no %q", v)
		want(!known || !slices.Contains(values[:i], v), at, "give it once", "%q is there twice", v)
	}
}

// Check returns the problems as an error, or nil if the list is empty.
func Check(list Problems) error {
	if len(list) == 0 {
		return nil
	}
	return list
}

// Duration is a time.Duration that files write as "1m30s".
type Duration time.Duration

// UnmarshalText reads what time.ParseDuration does, from 0 up.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no duration: write one such as 500ms, 2s or 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it as it is read.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }
