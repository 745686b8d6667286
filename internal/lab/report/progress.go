package report

import (
	"fmt"
	"io"
)

// Progress tells a waiting person what is going on.
type Progress struct{ W io.Writer }

func (p *Progress) Say(format string, args ...any) {
	fmt.Fprintf(p.W, format+"\n", args...)
}

func (p *Progress) Begin(i, n int, name string) {
	fmt.Fprintf(p.W, "[%2d/%d] %s ... ", i, n, name)
}

func (p *Progress) End(r Result) {
	word := "ok"
	if !r.Pass {
		word = "FAILED: " + r.Detail
	}
	fmt.Fprintf(p.W, "%s (%.1f s)\n", word, r.Seconds)
}
