package suite

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// State is which tests have passed, in a file: of one build, which is whatever its owner
// says. What passed of another build is forgotten with the first test that passes.
type State struct {
	file string
	mu   sync.Mutex
	is   passed
}

type passed struct {
	Build  string              `json:"build"`
	Passed map[string][]string `json:"passed"` // by suite
}

// Open reads the state, if there is one of this build.
func Open(file, build string) (*State, error) {
	s := &State{file: file}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &s.is)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if s.is.Build != build || s.is.Passed == nil {
		s.is = passed{build, map[string][]string{}}
	}
	return s, err
}

// Passed says whether a test has passed.
func (s *State) Passed(suite, test string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.is.Passed[suite], test)
}

// Add remembers tests that passed.
func (s *State) Add(suite string, tests []string) error {
	if len(tests) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.is.Passed[suite] = append(s.is.Passed[suite], tests...)
	text, err := json.MarshalIndent(s.is, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.file+".new", s.file)
}

// hash of texts.
func hash(texts ...string) []byte {
	h := sha256.New()
	for _, t := range texts {
		h.Write([]byte(t + "\n"))
	}
	return h.Sum(nil)[:6]
}
