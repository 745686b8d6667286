package cost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// Plan says what is measured, of which binary.
type Plan struct {
	Binary    string // culvert
	BPFFS     string // directory for pins
	Name      string // of the namespaces and pins; runName unless set
	Functions []catalog.Function
	Entries   []uint32
	Packets   uint32 // of a live run, and runs of a test run
	Open      bool   // the sink is somebody else's
	Routes    uint32 // of the customers' table, besides its default
	CPU       int
}

// Row is one function with a number of its entries in use.
type Row struct {
	catalog.Function
	Entries uint32
	Beside  bool // the kernel
}

// Sample is what a round finds of a row.
type Sample struct {
	Live, Baseline float64 // ns of CPU for a packet, with the baseline's beside
	Linux          float64 // the kernel's, where it is measured
	TestRun, Front float64 // ns of the program with the front, and of the front
}

// RowsOf are functions with numbers of entries: a function that cannot have as many
// entries as asked for is left out, but never wholly.
func RowsOf(functions []catalog.Function, numbers []uint32) []*Row {
	var out []*Row
	for _, f := range functions {
		entries := slices.DeleteFunc(slices.Clone(numbers), func(n uint32) bool { return n > f.Most })
		switch {
		case f.Key.Offset == 0:
			entries = []uint32{1}
		case len(entries) == 0:
			entries = []uint32{f.Most}
		}
		for i, n := range entries {
			out = append(out, &Row{Function: f, Entries: n, Beside: i == 0 && f.Kernel != nil})
		}
	}
	return out
}

// tables is how many entries there are of each function, in use or not.
func (p Plan) tables() uint32 { return slices.Max(p.Entries) }

// Bench is everything that a run needs. Close removes it.
type Bench struct {
	Plan
	node.Undo
	Node, kernel *rig.Rig
	Daemon       *node.Daemon
	Control      *Control               // of a UPF
	teids        map[[2]uint32][]uint32 // that the UPF chose, by the ID of their sessions' group
	program, l2  *progrun.Program
}

// Round takes one sample of each figure of a row.
func (b *Bench) Round(ctx context.Context, r *Row) (s Sample, err error) {
	if err := b.sendNeeded(r); err != nil {
		return s, err
	}
	before, err := b.Daemon.Outcomes(ctx)
	if err != nil {
		return s, err
	}
	err = b.Node.OnCPU(b.CPU, func(c proc.Clock) (err error) {
		own := b.load(r)
		l2 := rig.Load{Port: own.Port, Frame: own.Frame, Program: b.l2, Want: rig.WantLike(own.Frame.Data)}
		if s.Baseline, err = b.Node.Live(c, l2, b.Packets); err != nil {
			return fmt.Errorf("the baseline: %w", err)
		}
		measure := func() error {
			if s.Live, err = b.Node.Live(c, own, b.Packets); err != nil {
				return err
			}
			s.TestRun, s.Front, err = b.Node.TestRun(own, b.Packets)
			return err
		}
		if r.Traced {
			return b.Daemon.Traced(ctx, measure)
		}
		return measure()
	})
	if err != nil {
		return s, err
	}
	if r.Beside {
		l := rig.Load{Port: node.PortIn, Frame: r.Frame(1, 0), Program: b.kernel.Bench.Pass(), Want: *cmp.Or(r.Kernel.Want, &r.Want)}
		err = b.kernel.OnCPU(b.CPU, func(c proc.Clock) (err error) {
			s.Linux, err = b.kernel.Live(c, l, b.Packets)
			return err
		})
		if err != nil {
			return s, fmt.Errorf("the kernel's: %w", err)
		}
	}
	after, err := b.Daemon.Outcomes(ctx)
	if err != nil {
		return s, err
	}
	sent := uint64(2 * b.Packets) // live, and test runs
	if r.Name == catalog.BaselineName {
		sent = 0
	}
	return s, checkOutcomes(before, after, sent)
}

// sendNeeded sends what makes what a row's frames are for.
func (b *Bench) sendNeeded(r *Row) error {
	if r.Needs == nil {
		return nil
	}
	return b.Node.OnCPU(b.CPU, func(c proc.Clock) error {
		_, err := b.Node.Live(c, b.load(&Row{Function: *r.Needs, Entries: r.Entries}), rig.MorePackets)
		return err
	})
}

// load is what goes through the node for a row.
func (b *Bench) load(r *Row) rig.Load {
	program := b.program
	if r.Name == catalog.BaselineName {
		program = b.l2
	}
	frame := r.Frame(r.Entries, b.tables())
	if r.Sessions != nil {
		frame = r.WithTEIDs(frame, b.teids[r.Sessions.ID()])
	}
	return rig.Load{Port: cmp.Or(r.Port, node.PortIn), Frame: frame, Program: program, Want: r.Want}
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

// RunsTake is how long a number of runs takes.
func RunsTake(runs, packets int) time.Duration {
	return time.Duration(runs) * (callTime + time.Duration(packets)*packetTime)
}

// EntryTime is what an entry takes to be set up.
const EntryTime = 30 * time.Microsecond

// The metrics of a row.
const (
	MetricPacket  = "packet_ns"   // CPU time of a packet, generator to sink, beside the baseline
	MetricProgram = "program_ns"  // of the program alone
	MetricFront   = "test_run_ns" // of the program with the front, beside the front
	MetricKernel  = "kernel_ns"   // the kernel's CPU time of a packet, beside ours
)

// SessionTime is what a session takes to be set up, with its gNB's tunnel.
const SessionTime = 80 * time.Microsecond
