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
	// cause is the field because of which Field must be there. The error has its line where
	// the file has nothing of Field.
	cause string
	// refers is the list in which a resource was looked for that is not there.
	refers string
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

// mostListed is how many mistakes are told at once. Who has more repairs those first.
const mostListed = 1000

// Few returns the first errors, and one that counts the rest if there are very many.
func (e Errors) Few() Errors {
	if len(e) <= mostListed {
		return e
	}
	return append(slices.Clone(e[:mostListed]), Error{Problem: fmt.Sprintf("%d more mistakes are not listed", len(e)-mostListed), Fix: "repair these first"})
}

// problems collects Errors. Its methods take paths such as "sids[3].next_hop".
type problems struct {
	list     Errors
	compared int // names of resources that are missing
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

// because gives the errors that f adds to p a cause.
func because(p *problems, cause string, f func()) {
	known := len(p.list)
	f()
	for i := known; i < len(p.list); i++ {
		p.list[i].cause = cause
	}
}

// missing adds an error about the name of a resource that is not in a list of known ones.
func missing(p *problems, field, name, list string, known []string, format string, args ...any) {
	// To compare each of very many names with each of very many others would take too long.
	const mostCompared, mostKnown = 100, 10000
	fix := ""
	if p.compared < mostCompared && len(known) <= mostKnown {
		p.compared++
		fix = suggest(name, known)
	}
	if fix == "" {
		fix = fmt.Sprintf("add one with name: %s under %s", name, list)
	}
	p.add(field, fix, format, args...)
	p.list[len(p.list)-1].refers = list
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
	const most = 12
	if len(known) > most && nearest(name, known) == "" {
		return ""
	}
	return suggestOf(name, known)
}

// suggestOf is suggest for short lists of names.
func suggestOf(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) == 0 {
		return ""
	}
	return "one of: " + strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", ")
}

// nearest returns the known name that a name probably stands for, or "". Of several it
// is the one with the most similar length: letters are swapped more often than left out.
func nearest(name string, known []string) string {
	best, distance := "", max(1, min(3, len(name)/2))+1
	const shortest = 3 // of a beginning that says which name it is
	for _, k := range slices.Sorted(slices.Values(known)) {
		if long, short := max(name, k), min(name, k); len(short) >= shortest && len(short) < len(long) && strings.HasPrefix(long, short) && distance > 1 {
			best, distance = k, 1
			continue
		}
		if abs(len(k)-len(name)) > distance {
			continue
		}
		d := editDistance(strings.ToLower(name), strings.ToLower(k))
		if d < distance || best != "" && d == distance && abs(len(k)-len(name)) < abs(len(best)-len(name)) {
			best, distance = k, d
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

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
