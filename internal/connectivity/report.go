package connectivity

import (
	"fmt"
	"slices"
	"strings"
)

// Row is one check between two places, in one family.
type Row struct {
	Check    string `json:"check"`
	From     string `json:"from"`
	To       string `json:"to"`
	Family   Family `json:"family,omitempty"`
	Sent     int    `json:"sent"`     // packets, or KiB of TCP
	Received int    `json:"received"` // the same
	Lost     int    `json:"lost"`
	Result   Result `json:"result"`
	Detail   string `json:"detail,omitempty"`
}

// Result of a check.
type Result string

// Results. A check that could not be tried is left out; Detail says why.
const (
	Pass    Result = "pass"
	Fail    Result = "FAIL"
	LeftOut Result = "left out"
)

// Report is the result of a test.
type Report struct {
	Pass    bool    `json:"pass"`
	Nodes   int     `json:"nodes"`
	Seconds float64 `json:"seconds"`
	Checks  []Row   `json:"checks"`
	// Hints say what failures have in common, and what nodes say of themselves.
	Hints []string `json:"hints,omitempty"`
}

// fail sets the row's result to Fail and adds the reason to the detail.
func (r *Row) fail(format string, args ...any) {
	r.Result = Fail
	r.say(format, args...)
}

// say adds to the detail.
func (r *Row) say(format string, args ...any) {
	if r.Detail != "" {
		r.Detail += "; "
	}
	r.Detail += fmt.Sprintf(format, args...)
}

// Folded returns the rows, with one row in place of several that passed the same
// check in the same family. Rows that did not pass are unchanged.
func (r *Report) Folded() (out []Row) {
	for i := 0; i < len(r.Checks); {
		first := r.Checks[i]
		n := 1
		for i+n < len(r.Checks) && r.Checks[i+n].Check == first.Check {
			n++
		}
		of := r.Checks[i : i+n]
		i += n
		for _, family := range []Family{"", IPv4, IPv6} {
			passed := filter(of, func(r Row) bool { return r.Family == family && r.Result == Pass })
			if len(passed) > 0 {
				out = append(out, fold(passed))
			}
			out = append(out, filter(of, func(r Row) bool { return r.Family == family && r.Result != Pass })...)
		}
	}
	return out
}

func filter[T any](list []T, f func(T) bool) (out []T) {
	for _, v := range list {
		if f(v) {
			out = append(out, v)
		}
	}
	return out
}

func failed(r Row) bool { return r.Result == Fail }

// fold adds up rows of one check.
func fold(rows []Row) Row {
	sum := rows[0]
	if len(rows) == 1 {
		return sum
	}
	froms, tos, details := map[string]bool{}, map[string]bool{}, map[string]bool{}
	sum.Sent, sum.Received, sum.Lost = 0, 0, 0
	for _, r := range rows {
		sum.Sent, sum.Received, sum.Lost = sum.Sent+r.Sent, sum.Received+r.Received, sum.Lost+r.Lost
		froms[r.From], tos[r.To], details[r.Detail] = true, true, true
	}
	sum.From, sum.To = places(froms), places(tos)
	if len(details) > 1 {
		sum.Detail = ""
	}
	return sum
}

func places(set map[string]bool) string {
	if len(set) > 1 {
		return fmt.Sprintf("%d nodes", len(set))
	}
	for one := range set {
		return one
	}
	return ""
}

// common says what failures have in common that passed rows do not: a node, or a
// family.
func common(rows []Row) (hints []string) {
	bad := filter(rows, func(r Row) bool { return failed(r) && r.From != "" })
	if len(bad) < 2 {
		return nil
	}
	var nodes []string
	for _, r := range rows {
		for _, name := range []string{r.From, r.To} {
			if name != "" && !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
	}
	all := func(f func(Row) bool) bool { return !slices.ContainsFunc(bad, func(r Row) bool { return !f(r) }) }
	for _, n := range nodes {
		switch {
		case len(nodes) < 3:
		case all(func(r Row) bool { return r.From == n }):
			hints = append(hints, fmt.Sprintf("all that failed is from %s", n))
		case all(func(r Row) bool { return r.To == n }):
			hints = append(hints, fmt.Sprintf("all that failed is to %s", n))
		case all(func(r Row) bool { return r.From == n || r.To == n }):
			hints = append(hints, fmt.Sprintf("all that failed is from or to %s", n))
		}
	}
	for _, f := range Families() {
		other := filter(rows, func(r Row) bool { return r.Family != f && r.Family != "" })
		if len(other) > 0 && all(func(r Row) bool { return r.Family == f }) {
			hints = append(hints, fmt.Sprintf("all that failed is %s", f))
		}
	}
	for _, word := range []string{string(TCP), string(UDP), string(Ping)} {
		if all(func(r Row) bool { return strings.HasSuffix(r.Check, ", "+word) }) {
			hints = append(hints, fmt.Sprintf("all that failed is %s", word))
		}
	}
	return hints
}
