package lab

import (
	"fmt"
	"io"
)

// progress tells a waiting person what is going on.
type progress struct{ w io.Writer }

func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) begin(i, n int, name string) {
	fmt.Fprintf(p.w, "[%2d/%d] %s ... ", i, n, name)
}

func (p *progress) end(r Result) {
	word := "ok"
	if !r.Pass {
		word = "FAILED: " + r.Detail
	}
	fmt.Fprintf(p.w, "%s (%.1f s)\n", word, r.Seconds)
}
