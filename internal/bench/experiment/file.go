package experiment

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
)

// mostRounds is as many as anybody waits for.
const mostRounds = 10_000

// File is what a YAML file says of an experiment.
type File struct {
	// Name names the run's folder, and the experiment in its report.
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Title   string `json:"title"`
	Summary string `json:"summary,omitempty"` // a sentence or two for who reads the report
	Rounds  int    `json:"rounds,omitempty"`  // 5 unless set
	Seed    uint64 `json:"seed,omitempty"`    // 1 unless set
	// NoiseLimit is the share of a CPU's time, 0 to 1, that others may take before a
	// run claims nothing: the kind's unless set.
	NoiseLimit float64 `json:"noise_limit,omitempty"`
	// With is what the kind wants to know.
	With Experiment `json:"with,omitempty"`
}

// Parse reads a file, sets what it leaves open, and validates it. Whatever there
// is to say about it is in the Problems that it returns.
func Parse(text []byte, kinds []Kind) (*File, error) {
	kind, err := kindOf(text, kinds)
	if err != nil {
		return nil, err
	}
	f := &File{Rounds: 5, Seed: 1, NoiseLimit: kind.NoiseLimit, With: kind.New()}
	lines, err := config.Unmarshal(text, f)
	if err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, lines.Of(err)
	}
	return f, nil
}

// kindOf finds out what `with` will be read into, before all is read.
func kindOf(text []byte, kinds []Kind) (Kind, error) {
	var head struct {
		Kind yamlnode.Node `yaml:"kind"`
	}
	var broken *yamlnode.TypeError
	if err := yamlnode.Unmarshal(text, &head); err != nil && !errors.As(err, &broken) {
		_, said := config.Unmarshal(text, &struct{}{}) // in its words, with the line
		var list config.Errors
		errors.As(said, &list)
		return Kind{}, slices.DeleteFunc(list, func(e config.Error) bool { return !strings.HasPrefix(e.Problem, "not YAML") })
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		if names[i] = k.Name; k.Name == head.Kind.Value {
			return k, nil
		}
	}
	p := Problem("kind", "one of: "+strings.Join(names, ", "), "there is no kind %q", head.Kind.Value)
	if p.Line = head.Kind.Line; p.Line == 0 {
		p.Problem = "it is missing"
	}
	return Kind{}, Problems{p}
}

// Load is Parse of a file.
func Load(path string, kinds []Kind) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("experiment: %w", err)
	}
	f, err := Parse(text, kinds)
	if err != nil {
		return nil, fmt.Errorf("experiment %s:\n%w", path, err)
	}
	return f, nil
}

// Validate says everything that is wrong with a file, as Problems.
func (f *File) Validate() error {
	var list Problems
	want := wantField(&list, "")
	want(f.Name != "" && strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == "",
		"name", "small letters, digits, - and _", "%q cannot name a folder", f.Name)
	want(f.Title != "", "title", "say in a line what is measured", "it is missing")
	want(f.Rounds >= 1 && f.Rounds <= mostRounds, "rounds", fmt.Sprintf("1 to %d", mostRounds), "%d is out of range", f.Rounds)
	want(f.NoiseLimit > 0 && f.NoiseLimit <= 1,
		"noise_limit", "a share of a CPU's time, above 0 and up to 1", "%v is out of range", f.NoiseLimit)
	if err := f.With.Validate(); err != nil {
		more, ok := errors.AsType[Problems](err)
		if !ok {
			return err
		}
		list = append(list, more...)
	}
	return Check(list)
}

// Text is the file that says the same as f, with everything that was left open.
func (f *File) Text() ([]byte, error) { return yaml.Marshal(f) }

// Takes is how long a plan takes in a number of rounds, its set-up included.
func (p Plan) Takes(rounds int) time.Duration {
	total := p.SetUp
	for _, point := range p.Points {
		total += point.Takes * time.Duration(point.rounds(rounds))
	}
	return total
}

// rounds is in how many of a run's rounds a point is measured.
func (p Point) rounds(all int) int {
	if p.Rounds == 0 {
		return all
	}
	return min(p.Rounds, all)
}
