package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/printer"
)

// Write prints the checks, with what was sent, received and lost.
func Write(w io.Writer, r *Report, format printer.Format) error {
	return format.Write(w, r, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "CHECK\tSENT\tRECEIVED\tLOST\tRESULT\tDETAIL")
		passed := 0
		for _, c := range r.Checks {
			word := "FAIL"
			if c.Pass {
				word = "pass"
				passed++
			}
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\n", c.Name, c.Sent, c.Received, c.Lost, word, c.Detail)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if err := writeClasses(w, r.Checks); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\n%s: %d of %d checks passed in %.0f s (Linux %s)\n", r.Lab, passed, len(r.Checks), r.Seconds, r.Kernel)
		return err
	})
}

// writeClasses prints what each class of traffic met, where checks have classes.
func writeClasses(w io.Writer, checks []Result) error {
	var names []string
	for _, c := range checks {
		for _, class := range c.Classes {
			if !slices.Contains(names, class.Name) {
				names = append(names, class.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(t, "\nWHILE")
	for _, name := range names {
		fmt.Fprintf(t, "\t%s LOST\t99 %% IN", strings.ToUpper(name))
	}
	fmt.Fprintln(t, "\tLOSS FOR\tBUSIEST LINK\tACTED AFTER")
	for _, c := range checks {
		if len(c.Classes) == 0 {
			continue
		}
		fmt.Fprint(t, c.Name)
		for _, name := range names {
			i := slices.IndexFunc(c.Classes, func(x Class) bool { return x.Name == name })
			if i < 0 {
				fmt.Fprint(t, "\t-\t-")
				continue
			}
			fmt.Fprintf(t, "\t%d of %d\t%.1f ms", c.Classes[i].Lost, c.Classes[i].Sent, c.Classes[i].P99)
		}
		fmt.Fprintf(t, "\t%s\t%s\t%s\n", measured(c.LossFor, "%.0f ms"), measured(c.Busiest, "%.1f %%"), measured(c.ActedAfter, "%.0f ms"))
	}
	return t.Flush()
}

// measured is a value in words; 0 was not measured.
func measured(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// Result is what became of a check.
type Result struct {
	Name     string  `json:"name"`
	Pass     bool    `json:"pass"`
	Detail   string  `json:"detail"`
	Sent     int     `json:"sent"`
	Received int     `json:"received"`
	Lost     int     `json:"lost"`
	Seconds  float64 `json:"seconds"`
	Measured
}

// Measured is what a check of several classes of traffic measured; 0: it did not.
type Measured struct {
	Classes []Class `json:"classes,omitempty"`
	// Busiest is how full the fullest link with a rate was, in percent.
	Busiest float64 `json:"busiest,omitempty"`
	// LossFor is from the first packet that was lost to the last, ActedAfter from the first event
	// to when engine and headend had answered it, both in milliseconds.
	LossFor    float64 `json:"loss_for,omitempty"`
	ActedAfter float64 `json:"acted_after,omitempty"`
}

// Class is what became of the packets of a class.
type Class struct {
	Name string  `json:"name"`
	Sent int     `json:"sent"`
	Lost int     `json:"lost"`
	P99  float64 `json:"p99"` // of its slowest stream, in milliseconds
}

// Report is what `culvert lab run` says.
type Report struct {
	Lab     string   `json:"lab"`
	Pass    bool     `json:"pass"`
	Checks  []Result `json:"checks"`
	Kernel  string   `json:"kernel"`
	Culvert string   `json:"culvert"` // the binary that was run
	Seconds float64  `json:"seconds"`
}

// Outcome is what a check's traffic came to.
type Outcome struct {
	Sent, Received int
	Measured

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

// Progress shows what a command does at the moment.
type Progress struct{ W io.Writer }

// Say prints a line.
func (p *Progress) Say(format string, args ...any) {
	fmt.Fprintf(p.W, format+"\n", args...)
}

// Begin prints that check i of n begins.
func (p *Progress) Begin(i, n int, name string) {
	fmt.Fprintf(p.W, "[%2d/%d] %s ... ", i, n, name)
}

// End prints how the check ended.
func (p *Progress) End(r Result) {
	word := "ok"
	if !r.Pass {
		word = "FAILED: " + r.Detail
	}
	fmt.Fprintf(p.W, "%s (%.1f s)\n", word, r.Seconds)
}
