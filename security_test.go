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

// claimed are the tests that documents about security name: `LAB: how a check's name begins`,
// `TestName`, or `TestGolden/FILE`. attacked are the checks of the laboratory attack behind "lab:".
var (
	claimed  = regexp.MustCompile("`(?:([a-z-]+): ([^`]+)|(Test[A-Za-z0-9]+)(?:/([a-z0-9_]+))?)`")
	attacked = regexp.MustCompile("lab: (`[^`]+`(?:, `[^`]+`)*)")
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// TestSecurityClaims holds documents about security to what shows it: each check and each test
// that they name exists, and each row of their tables has one.
func TestSecurityClaims(t *testing.T) {
	c := claims{t, testsOf(t, "."), map[string]*topology.Topology{}}
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, ofTenants, _ := strings.Cut(read("dist/kubernetes/README.md"), "\n## Security\n")
	ofTenants, _, _ = strings.Cut(ofTenants, "\n## ")
	c.check(ofTenants)
	c.check(read("docs/security.md"))
}

// claims look for what documents name.
type claims struct {
	t     *testing.T
	tests map[string]bool
	labs  map[string]*topology.Topology
}

func (c *claims) check(text string) {
	c.t.Helper()
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		last := cells[len(cells)-1]
		if !strings.HasPrefix(line, "| ") || strings.Contains(last, "shown by") {
			c.tested(line) // prose, or the head of a table
			continue
		}
		if rows++; !claimed.MatchString(last) && !attacked.MatchString(last) && !strings.Contains(last, "culvert lab run ") {
			c.t.Errorf("nothing shows this: %s", line)
		}
		for _, m := range attacked.FindAllStringSubmatch(last, -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				c.checked("attack", name[1])
			}
		}
		last = attacked.ReplaceAllString(last, "")
		c.tested(last)
		for _, m := range claimed.FindAllStringSubmatch(last, -1) {
			if m[1] != "" {
				c.checked(m[1], m[2])
			}
		}
	}
	if rows < 10 {
		c.t.Errorf("the tables have %d rows", rows)
	}
}

// tested wants the tests that a text names, and the files of golden rows.
func (c *claims) tested(text string) {
	c.t.Helper()
	for _, m := range claimed.FindAllStringSubmatch(text, -1) {
		test, file := m[3], m[4]
		if test != "" && !c.tests[test] {
			c.t.Errorf("no test is called %s", test)
		}
		if file == "" {
			continue
		}
		if found, err := filepath.Glob("internal/dataplane/testdata/*/" + file + ".yaml"); err != nil || len(found) != 1 || test != "TestGolden" {
			c.t.Errorf("%s/%s: rows %q, %v", test, file, found, err)
		}
	}
}

// checked wants a check of a laboratory.
func (c *claims) checked(lab, check string) {
	c.t.Helper()
	if c.labs[lab] == nil {
		l, err := topology.Load(lab)
		if err != nil {
			c.t.Fatalf("%s: %v", check, err)
		}
		c.labs[lab] = l
	}
	if !slices.ContainsFunc(c.labs[lab].Checks, func(of topology.Check) bool { return strings.HasPrefix(of.Name, check) }) {
		c.t.Errorf("no check of the laboratory %s begins with %q", lab, check)
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
