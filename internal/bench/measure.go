package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// plan says what is measured, of which binary.
type plan struct {
	binary    string // culvert
	bpffs     string // directory for pins
	name      string // of the namespaces and pins; runName unless set
	functions []function
	entries   []uint32
	packets   uint32 // of a live run, and runs of a test run
	open      bool   // the sink is somebody else's
	routes    uint32 // of the customers' table, besides its default
	cpu       int
}

// row is one function with a number of its entries in use.
type row struct {
	function
	entries uint32
	beside  bool // the kernel
}

// sample is what a round finds of a row.
type sample struct {
	live, baseline float64 // ns of CPU for a packet, with the baseline's beside
	linux          float64 // the kernel's, where it is measured
	testRun, front float64 // ns of the program with the front, and of the front
}

// rowsOf are functions with numbers of entries: a function that cannot have as many
// entries as asked for is left out, but never wholly.
func rowsOf(functions []function, numbers []uint32) []*row {
	var out []*row
	for _, f := range functions {
		entries := slices.DeleteFunc(slices.Clone(numbers), func(n uint32) bool { return n > f.most })
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
}

// round takes one sample of each figure of a row.
func (b *bench) round(ctx context.Context, r *row) (s sample, err error) {
	before, err := b.daemon.outcomes(ctx)
	if err != nil {
		return s, err
	}
	own := load{r.portName(), r.frame(r.entries, b.tables()), b.program, r.wanted(false)}
	if r.name == baselineName {
		own.program = b.l2
	}
	err = b.node.onCPU(b.cpu, func(c clock) (err error) {
		s, err = b.measure(c, own)
		return err
	})
	if err != nil {
		return s, err
	}
	if r.beside {
		if s.linux, err = b.measureKernel(r); err != nil {
			return s, fmt.Errorf("the kernel's: %w", err)
		}
	}
	after, err := b.daemon.outcomes(ctx)
	if err != nil {
		return s, err
	}
	sent := uint64(2 * b.packets) // live, and test runs
	if r.name == baselineName {
		sent = 0
	}
	return s, checkOutcomes(before, after, sent)
}

// measure takes one sample of each figure of the node.
func (b *bench) measure(c clock, own load) (s sample, err error) {
	l2 := load{own.port, own.frame, b.l2, wantLike(own.frame.Data)}
	if s.baseline, err = b.node.live(c, l2, b.packets); err != nil {
		return s, fmt.Errorf("the baseline: %w", err)
	}
	if s.live, err = b.node.live(c, own, b.packets); err != nil {
		return s, err
	}
	s.testRun, s.front, err = b.node.testRun(own, b.packets)
	return s, err
}

func (b *bench) measureKernel(r *row) (ns float64, err error) {
	l := load{portIn, r.frame(1, 0), b.kernel.bench.Pass(), r.wanted(true)}
	err = b.kernel.onCPU(b.cpu, func(c clock) (err error) {
		ns, err = b.kernel.live(c, l, b.packets)
		return err
	})
	return ns, err
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

// callTime is what a run costs by the wall besides its packets: the kernel waits
// until nobody uses the old dispatcher. packetTime is what a packet takes.
const (
	callTime   = 25 * time.Millisecond
	packetTime = 250 * time.Nanosecond
)

// entryTime is what an entry takes to be set up.
const entryTime = 30 * time.Microsecond

// resultEnvironment is what a daemon says of itself.
func (b *bench) resultEnvironment(ctx context.Context) (e result.Environment, err error) {
	e.Offloads = b.node.net.node.offloads(portIn)
	e.Version, e.DataPath, err = b.daemon.version(ctx)
	return e, err
}

// The metrics of a row.
const (
	metricPacket  = "packet_ns"   // CPU time of a packet, generator to sink, beside the baseline
	metricProgram = "program_ns"  // of the program alone
	metricFront   = "test_run_ns" // of the program with the front, beside the front
	metricKernel  = "kernel_ns"   // the kernel's CPU time of a packet, beside ours
)

// sessionTime is what a session takes to be set up, with its gNB's tunnel.
const sessionTime = 80 * time.Microsecond
