package rig

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// Rig is a node, and the programs around it that make frames and sink them. Close
// unloads the programs and deletes the namespaces.
type Rig struct {
	node.Undo
	Net   *node.Network
	Bench *progrun.Bench
	Index map[string]int // of the node's interfaces
	apart float64        // ns that a run costs besides its packets
}

// New makes the namespaces NAME-node and NAME-around, and loads the programs.
func New(name string, queues int) (_ *Rig, err error) {
	r := &Rig{Index: map[string]int{}}
	defer r.OnError(&err)
	if r.Net, err = node.NewNetwork(name, queues); err != nil {
		return nil, err
	}
	r.Later(r.Net.Close)
	if r.Bench, err = progrun.Load(); err != nil {
		return nil, err
	}
	r.Later(r.Bench.Close)
	for _, port := range node.Ports {
		if r.Index[port], err = r.Net.Node.Ifindex(port); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Hop is where the node sends frames.
func (r *Rig) Hop() progrun.NextHop {
	return progrun.NextHop{Ifindex: r.Index[node.PortOut], Dst: node.MAC(4), Src: node.MAC(3)}
}

// Sink counts what comes out, of XDP or of the kernel.
func (r *Rig) Sink(attach func(*progrun.Bench, int) error) error {
	index, err := r.Net.Around.Ifindex("s0")
	if err != nil {
		return err
	}
	return r.Net.Around.Do(func() error { return attach(r.Bench, index) })
}

// Live sends `packets` of a function's frames through a program and returns
// the CPU time of one in ns, without what a run costs besides.
// Every frame must come out, as the function wants it.
func (r *Rig) Live(c proc.Clock, l Load, packets uint32) (float64, error) {
	if err := r.Bench.Prepare(l.Frame, l.Program); err != nil {
		return 0, err
	}
	if err := r.Bench.ResetSinks(); err != nil {
		return 0, err
	}
	spent, err := c.During(func() error { return r.Bench.RunLive(l.Frame, r.Index[l.Port], packets) })
	if err != nil {
		return 0, err
	}
	return (float64(spent.Nanoseconds()) - r.apart) / float64(packets), r.Sunk(uint64(packets), l.Want)
}

// Two lengths of runs show what a run costs besides its packets: making pages,
// changing the dispatcher of XDP programs.
const (
	fewPackets  = 64
	MorePackets = 16 * fewPackets
	warmRuns    = 9
)

// Warm finds that out.
func (r *Rig) Warm(cpu int, l Load) error {
	return r.OnCPU(cpu, func(c proc.Clock) error {
		var fixed []float64
		for range warmRuns {
			few, err := r.Live(c, l, fewPackets)
			if err != nil {
				return err
			}
			more, err := r.Live(c, l, MorePackets)
			if err != nil {
				return err
			}
			fixed = append(fixed, (few-more)*fewPackets*MorePackets/(MorePackets-fewPackets))
		}
		r.apart = max(0, stats.Median(fixed))
		return nil
	})
}

// Load is what goes through a rig.
type Load struct {
	Port    string
	Frame   progrun.Frame
	Program *progrun.Program
	Want    Want
}

// Sunk checks that the sink got `packets` frames, and what the first one is.
func (r *Rig) Sunk(packets uint64, w Want) error {
	s, err := r.Bench.Sunk()
	if err != nil {
		return err
	}
	if s.Packets != packets {
		return fmt.Errorf("%d of %d frames came out", s.Packets, packets)
	}
	if err := w.Check(s.First, s.Length); err != nil {
		return fmt.Errorf("the first frame that came out: %w: %x", err, s.First)
	}
	return nil
}

// TestRun returns the ns of one run of a program after the front, and of the
// front alone.
func (r *Rig) TestRun(l Load, runs uint32) (ns, front float64, err error) {
	if err := r.Bench.Prepare(l.Frame, r.Bench.Nothing()); err != nil {
		return 0, 0, err
	}
	if _, front, err = r.Bench.Run(l.Frame, r.Index[l.Port], runs); err != nil {
		return 0, 0, err
	}
	if err := r.Bench.Prepare(l.Frame, l.Program); err != nil {
		return 0, 0, err
	}
	verdict, ns, err := r.Bench.Run(l.Frame, r.Index[l.Port], runs)
	if err == nil && verdict != progrun.Redirect {
		err = fmt.Errorf("the program's verdict is %d, want %d (XDP_REDIRECT)", verdict, progrun.Redirect)
	}
	return ns, front, err
}

// OnCPU runs f in the node's namespace on one CPU.
func (r *Rig) OnCPU(cpu int, f func(proc.Clock) error) error {
	c, err := proc.NewClock(cpu)
	if err != nil {
		return err
	}
	return proc.Inside(r.Net.Node.Path(), func() error {
		if err := proc.Pin(cpu); err != nil {
			return err
		}
		return f(c)
	})
}
