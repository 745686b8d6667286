package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// plan says what is measured, and how long.
type plan struct {
	functions []function
	entries   []uint32
	repeat    int
	packets   uint32 // of a live run, and runs of a test run
	cpu       int
}

// row is one function with a number of its entries in use, and its samples: one
// of each for every round.
type row struct {
	function
	entries uint32
	beside  bool // the kernel

	live, baseline []float64 // ns of CPU for a packet, with the baseline's beside
	linux          []float64 // the kernel's, where it is measured
	testRun, front []float64 // ns of the program with the front, and of the front
}

// rows are what a plan measures: a function that cannot have as many entries
// as asked for is left out, but never wholly.
func (p plan) rows() []*row {
	var out []*row
	for _, f := range p.functions {
		entries := slices.DeleteFunc(slices.Clone(p.entries), func(n uint32) bool { return n > f.most })
		switch {
		case f.key.offset == 0:
			entries = []uint32{1}
		case len(entries) == 0:
			entries = []uint32{f.most}
		}
		for i, n := range entries {
			out = append(out, &row{function: f, entries: n, beside: i == 0 && f.kernel != nil})
		}
	}
	return out
}

// tables is how many entries there are of each function, in use or not.
func (p plan) tables() uint32 { return slices.Max(p.entries) }

// bench is everything that a run needs.
type bench struct {
	plan
	node, kernel *rig
	daemon       *daemon
	control      *control // of a UPF
	program, l2  *progrun.Program
	step         func() // after each row of each round
}

// run measures every row in every round. Rounds are interleaved, so that what
// else the machine does meets all rows alike.
func (b *bench) run(ctx context.Context) ([]*row, error) {
	rows := b.rows()
	for range b.repeat {
		for _, r := range rows {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := b.round(ctx, r); err != nil {
				return nil, fmt.Errorf("%s with %d entries: %w", r.name, r.entries, err)
			}
			b.step()
		}
	}
	for _, r := range rows {
		b.node.without(r.live, b.packets)
		b.node.without(r.baseline, b.packets)
		if r.beside {
			b.kernel.without(r.linux, b.packets)
		}
	}
	return rows, nil
}

func (b *bench) round(ctx context.Context, r *row) error {
	before, err := b.daemon.outcomes(ctx)
	if err != nil {
		return err
	}
	own := load{r.portName(), r.frame(r.entries, b.tables()), b.program, r.wanted(false)}
	if r.name == baselineName {
		own.program = b.l2
	}
	if err := b.node.onCPU(b.cpu, func(c clock) error { return b.measure(c, r, own) }); err != nil {
		return err
	}
	if r.beside {
		if err := b.measureKernel(r); err != nil {
			return fmt.Errorf("the kernel's: %w", err)
		}
	}
	after, err := b.daemon.outcomes(ctx)
	if err != nil {
		return err
	}
	sent := uint64(2 * b.packets) // live, and test runs
	if len(r.live) == 1 {
		sent += warmUp
	}
	if r.name == baselineName {
		sent = 0
	}
	return checkOutcomes(before, after, sent)
}

// measure takes one sample of each figure of the node.
func (b *bench) measure(c clock, r *row, own load) error {
	if len(r.live) == 0 {
		if err := b.node.warm(c, own); err != nil {
			return err
		}
	}
	l2 := load{own.port, own.frame, b.l2, wantLike(own.frame.Data)}
	beside, err := b.node.live(c, l2, b.packets)
	if err != nil {
		return fmt.Errorf("the baseline: %w", err)
	}
	ns, err := b.node.live(c, own, b.packets)
	if err != nil {
		return err
	}
	testRun, front, err := b.node.testRun(own, b.packets)
	if err != nil {
		return err
	}
	r.baseline, r.live = append(r.baseline, beside), append(r.live, ns)
	r.testRun, r.front = append(r.testRun, testRun), append(r.front, front)
	return nil
}

func (b *bench) measureKernel(r *row) error {
	frame := r.frame(1, 0)
	l := load{portIn, frame, b.kernel.bench.Pass(), r.wanted(true)}
	return b.kernel.onCPU(b.cpu, func(c clock) error {
		if len(r.linux) == 0 {
			if err := b.kernel.warm(c, l); err != nil {
				return err
			}
		}
		ns, err := b.kernel.live(c, l, b.packets)
		r.linux = append(r.linux, ns)
		return err
	})
}

// checkOutcomes compares how journeys ended with how many frames were sent.
func checkOutcomes(before, after map[string]uint64, sent uint64) error {
	for reason, n := range after {
		n -= before[reason]
		switch reason {
		case "forwarded":
			if n != sent {
				return fmt.Errorf("the data path forwarded %d of %d frames", n, sent)
			}
		case "passed": // what the kernels around say to each other
		default:
			if n != 0 {
				return fmt.Errorf("%d frames ended as %q", n, reason)
			}
		}
	}
	return nil
}
