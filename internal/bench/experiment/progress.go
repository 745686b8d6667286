package experiment

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
)

// progress tells who waits how far a run is: a bar in a terminal, a line for
// each round elsewhere.
type progress struct {
	out         io.Writer
	bar         *progressbar.ProgressBar
	total, done time.Duration
	terminal    bool
	round       int // that was told last
}

// announce says before a run starts what it will take.
func announce(out io.Writer, f *File, total time.Duration, dir string) *progress {
	fmt.Fprintf(out, "%s: %d rounds, seed %d; takes about %s; into %s\n", f.Name, f.Rounds, f.Seed, total.Round(time.Second), dir)
	p := &progress{out: out, total: total, round: -1, terminal: isTerminal(out)}
	p.bar = progressbar.NewOptions64(int64(total),
		progressbar.OptionSetWriter(out), progressbar.OptionSetVisibility(p.terminal), progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// at is told before a point is measured.
func (p *progress) at(round, rounds int, point Point) {
	p.bar.Describe(fmt.Sprintf("round %d of %d: %s", round+1, rounds, point.ID))
	if !p.terminal && round != p.round {
		fmt.Fprintf(p.out, "round %d of %d, about %s left\n", round+1, rounds, max(0, p.total-p.done).Round(time.Second))
	}
	p.round = round
}

// spent is told when something is done that takes so long by the plan.
func (p *progress) spent(d time.Duration) {
	p.done += d
	_ = p.bar.Set64(int64(p.done)) // a bar that cannot be drawn stops no run
}

func (p *progress) close() { _ = p.bar.Finish() }
