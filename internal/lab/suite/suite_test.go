package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program stands for e2e.test. It has four tests, one of which is made alone, one fails, and one
// skips itself; it makes those whose names are asked for, and writes down that it was asked.
const program = `#!/bin/sh
focus= dry= report=
while [ $# -gt 0 ]; do
	case "$1" in
	--ginkgo.dry-run) dry=yes ;;
	--ginkgo.focus) focus="$focus|$2"; shift ;;
	--ginkgo.json-report) report=$2; shift ;;
	esac
	shift
done
state() { # name, what comes of it
	if [ -n "$dry" ]; then echo passed; else case "$focus" in *"$1"*) echo "$2" ;; *) echo skipped ;; esac; fi
}
[ -n "$dry" ] || echo "$focus" >>"$(dirname "$0")/made"
[ ! -e "$(dirname "$0")/broken" ] || first=failed
spec() { printf ', {"ContainerHierarchyTexts": ["[net] Services"], "LeafNodeText": "%s", "LeafNodeType": "It", "IsSerial": %s, "State": "%s", "Failure": {"Message": "%s"}}' "$1" "$2" "$3" "$4"; }
{
	printf '[{"SpecReports": [{"LeafNodeType": "SynchronizedBeforeSuite", "State": "%s", "Failure": {"Message": "no nodes"}}' "${first:-passed}"
	spec 'should work' false "$(state 'should work' passed)"
	spec 'should fail (always)' false "$(state 'should fail' failed)" 'it does not'
	spec 'should be alone' true "$(state 'should be alone' passed)"
	spec 'should skip' false "$(state 'should skip' skipped)"
	printf ']}]'
} >"$report"
exit 1
`

func newSuite(t *testing.T, build string) Suite {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "e2e.test")
	if err := os.WriteFile(file, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	s := Suite{Name: "net", Program: file, Focus: "net", Workers: 2, Dir: dir, Enter: func(f func() error) error { return f() }, Say: t.Logf}
	s.open(t, build)
	return s
}

func (s *Suite) open(t *testing.T, build string) {
	t.Helper()
	state, err := Open(filepath.Join(s.Dir, "state", "state.json"), build)
	if err != nil {
		t.Fatal(err)
	}
	s.State = state
}

// made are the tests that each process was asked for.
func (s *Suite) made(t *testing.T) string {
	t.Helper()
	file := filepath.Join(s.Dir, "made")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRun(t *testing.T) {
	s := newSuite(t, "one")
	r, err := s.Run(t.Context())
	const failed = "[{[net] Services should fail (always) failed: it does not}]"
	if err != nil || r.Passed != 2 || r.Before != 0 || r.Skipped != 1 || fmt.Sprint(r.Failed) != failed {
		t.Fatalf("%+v, %v", r, err)
	}
	first := s.made(t)
	if strings.Count(first, "\n") != 2 || !strings.HasSuffix(first, "\n|\\[net\\] Services should be alone$\n") || !strings.Contains(first, `should fail \(always\)$`) {
		t.Errorf("asked for %s", first)
	}

	// What passed is not made again, by whoever comes next, but with another build.
	s.open(t, "one")
	if r, err = s.Run(t.Context()); err != nil || r.Passed != 2 || r.Before != 2 || fmt.Sprint(r.Failed) != failed {
		t.Errorf("%+v, %v", r, err)
	}
	if again := s.made(t); strings.Contains(again, "work") || strings.Contains(again, "alone") {
		t.Errorf("asked again for %s", again)
	}
	s.open(t, "two")
	if r, err = s.Run(t.Context()); err != nil || r.Passed != 2 || r.Before != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What cannot be run says nothing about tests.
func TestRunFails(t *testing.T) {
	s := newSuite(t, "one")
	if err := os.WriteFile(filepath.Join(s.Dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no nodes") {
		t.Errorf("%+v, %v", r, err)
	}
	s.Program = filepath.Join(s.Dir, "none")
	if r, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("%+v, %v", r, err)
	}
	file := filepath.Join(s.Dir, "state.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, "one"); err == nil {
		t.Error("a state that is cut is read")
	}
}
