package culvert_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// claimed are the tests that the section about security names: `LAB: how a check's name begins`
// or `TestName`.
var claimed = regexp.MustCompile("`(?:([a-z-]+): ([^`]+)|(Test[A-Za-z0-9]+))`")

// TestSecurityClaims holds the section about security to what shows it: each check and each test
// that it names exists, and each row has one.
func TestSecurityClaims(t *testing.T) {
	text, err := os.ReadFile("dist/kubernetes/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Security\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tests, labs := testsOf(t, "internal"), map[string]*topology.Topology{}
	for _, m := range claimed.FindAllStringSubmatch(section, -1) {
		switch lab, check, test := m[1], m[2], m[3]; {
		case test != "":
			if !tests[test] {
				t.Errorf("no test is called %s", test)
			}
		default:
			if labs[lab] == nil {
				if labs[lab], err = topology.Load(lab); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.ContainsFunc(labs[lab].Checks, func(c topology.Check) bool { return strings.HasPrefix(c.Name, check) }) {
				t.Errorf("no check of the laboratory %s begins with %q", lab, check)
			}
		}
	}
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == " who" {
			continue
		}
		if rows++; !claimed.MatchString(cells[len(cells)-1]) {
			t.Errorf("nothing shows this: %s", line)
		}
	}
	if rows < 10 {
		t.Errorf("the table has %d rows", rows)
	}
}

// testsOf are the names of tests in the files below a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names, form := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(folder, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range form.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
