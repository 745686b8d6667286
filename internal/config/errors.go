package config

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one reason to refuse a configuration.
type Error struct {
	Line  int    `json:"line,omitempty"` // of the file; 0 if unknown
	Field string `json:"field"`          // as in sids[3].next_hop
	// Resource names the resource of Field by its key, as in "sid 2001:db8:1::/64".
	// Without a file nobody can count to sids[3].
	Resource string `json:"resource,omitempty"`
	// Rival is the other resource of a conflict, if there is one.
	Rival   string `json:"-"`
	Problem string `json:"problem"`
	Fix     string `json:"fix,omitempty"` // what to write or to change

	rival string // field of Rival
}

// Error returns one line: where, what, and the fix.
func (e Error) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Line == 0 && e.Resource != "" {
			fmt.Fprintf(&b, " of %s", e.Resource)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Problem)
	if e.Fix != "" {
		fmt.Fprintf(&b, " (fix: %s)", e.Fix)
	}
	return b.String()
}

// Errors are all reasons to refuse a configuration.
type Errors []Error

// Error returns a line for each reason.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// problems collects Errors. Its methods take paths such as "sids[3].next_hop".
type problems struct {
	list Errors
}

func (p *problems) add(field, fix, format string, args ...any) {
	p.list = append(p.list, Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

// refuse adds an error if bad.
func (p *problems) refuse(bad bool, field, fix, format string, args ...any) {
	if bad {
		p.add(field, fix, format, args...)
	}
}

// err returns nil or Errors: a nil Errors in an error would not be nil.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return p.list
}

// suggest returns the fix for an unknown name: the known one that it probably stands
// for, or all of a few.
func suggest(name string, known []string) string {
	sorted := slices.Sorted(slices.Values(known))
	best, distance := "", max(1, min(3, len(name)/2))+1
	for _, k := range sorted {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	const most = 12
	if len(known) == 0 || len(known) > most {
		return ""
	}
	return "one of: " + strings.Join(sorted, ", ")
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours.
func editDistance(a, b string) int {
	prior, row, next := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(next[j-1]+1, row[j]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], prior[j-2]+1)
			}
		}
		prior, row, next = row, next, make([]int, len(b)+1)
	}
	return row[len(b)]
}
