package report

import (
	"fmt"
	"io"
)

// Progress tells a waiting person what is going on.
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
