package report

import (
	"fmt"
	"strings"
)

// Outcome is what a check's traffic came to.
type Outcome struct {
	Sent, Received int

	Detail   []string
	Problems []string
}

// Say adds a detail.
func (o *Outcome) Say(format string, args ...any) {
	o.Detail = append(o.Detail, fmt.Sprintf(format, args...))
}

// Fail adds a problem: the check has failed.
func (o *Outcome) Fail(format string, args ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, args...))
}

// OneLine joins what is to be said; an error of several lines becomes one.
func OneLine(list []string) string {
	return strings.ReplaceAll(strings.Join(list, "; "), "\n", "; ")
}
