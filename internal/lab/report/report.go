package report

import (
	"fmt"
	"io"
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
		_, err := fmt.Fprintf(w, "\n%s: %d of %d checks passed in %.0f s (Linux %s)\n", r.Lab, passed, len(r.Checks), r.Seconds, r.Kernel)
		return err
	})
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
