package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInAnchor    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Whoever follows a link in a document comes to a file that exists, and to a heading of it.
func TestLinks(t *testing.T) {
	for _, file := range documents(t) {
		for _, m := range linkPattern.FindAllStringSubmatch(read(t, file), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") { // of another site
				continue
			}
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", file, m[1], err)
			} else if anchor != "" && strings.HasSuffix(target, ".md") && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: link %s: no such heading", file, m[1])
			}
		}
	}
}

// The index of decisions has each of them.
func TestDecisionsAreListed(t *testing.T) {
	pages, err := filepath.Glob("adr/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d decisions: %v", len(pages), err)
	}
	index := read(t, "README.md")
	for _, page := range pages {
		if !strings.Contains(index, "]("+page+")") {
			t.Errorf("README.md: %s is missing", page)
		}
	}
}

// documents are those of this directory and of the root.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../*.md", "../dist/*/*.md", "*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}

// anchors are the names of a document's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range headingPattern.FindAllStringSubmatch(text, -1) {
		name := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
