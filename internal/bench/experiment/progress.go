package experiment

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
)

// progress shows the user how far a run is: a bar in a terminal, a line for each
// round elsewhere.
type progress struct {
	out         io.Writer
	bar         *progressbar.ProgressBar
	total, done time.Duration
	terminal    bool
	round       int // that was shown last
}

// announce says before a run starts what it will take.
func announce(out io.Writer, f *File, total time.Duration, dir string) *progress {
	fmt.Fprintf(out, "%s: %d rounds, seed %d; takes about %s; into %s\n", f.Name, f.Rounds, f.Seed, total.Round(time.Second), dir)
	p := &progress{out: out, total: total, round: -1}
	if f, ok := out.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	p.bar = progressbar.NewOptions64(int64(total),
		progressbar.OptionSetWriter(out), progressbar.OptionSetVisibility(p.terminal), progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	return p
}

// at is called before a point is measured.
func (p *progress) at(round, rounds int, point Point) {
	p.bar.Describe(fmt.Sprintf("round %d of %d: %s", round+1, rounds, point.ID))
	if !p.terminal && round != p.round {
		fmt.Fprintf(p.out, "round %d of %d, about %s left\n", round+1, rounds, max(0, p.total-p.done).Round(time.Second))
	}
	p.round = round
}

// spent is called after something that takes so long by the plan.
func (p *progress) spent(d time.Duration) {
	p.done += d
	_ = p.bar.Set64(int64(p.done)) // a bar that cannot be drawn stops no run
}
