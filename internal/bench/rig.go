package bench

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// rig is a node, and the programs around it that make frames and sink them.
type rig struct {
	net   *network
	bench *progrun.Bench
	index map[string]int // of the node's interfaces
	apart float64        // ns that a run costs besides its packets
}

func newRig(name string, queues int) (_ *rig, err error) {
	r := &rig{index: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.net, err = newNetwork(name, queues); err != nil {
		return nil, err
	}
	if r.bench, err = progrun.Load(); err != nil {
		return nil, err
	}
	for _, port := range []string{portIn, portFrames, portOut} {
		if r.index[port], err = r.net.node.ifindex(port); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// hop is where the node sends frames.
func (r *rig) hop() progrun.NextHop {
	return progrun.NextHop{Ifindex: r.index[portOut], Dst: macOf(4), Src: macOf(3)}
}

// sink counts what comes out, of XDP or of the kernel.
func (r *rig) sink(attach func(*progrun.Bench, int) error) error {
	index, err := r.net.around.ifindex("s0")
	if err != nil {
		return err
	}
	return r.net.around.do(func() error { return attach(r.bench, index) })
}

func (r *rig) close() error {
	var errs []error
	if r.bench != nil {
		errs = append(errs, r.bench.Close())
	}
	if r.net != nil {
		errs = append(errs, r.net.delete())
	}
	return errors.Join(errs...)
}

// live sends `packets` of a function's frames through a program and returns
// the CPU time of one in ns, without what a run costs besides.
// Every frame must come out, as the function wants it.
func (r *rig) live(c clock, l load, packets uint32) (float64, error) {
	if err := r.bench.Prepare(l.frame, l.program); err != nil {
		return 0, err
	}
	if err := r.bench.ResetSinks(); err != nil {
		return 0, err
	}
	spent, err := c.during(func() error { return r.bench.RunLive(l.frame, r.index[l.port], packets) })
	if err != nil {
		return 0, err
	}
	return (float64(spent) - r.apart) / float64(packets), r.sunk(uint64(packets), l.want)
}

// Two lengths of runs show what a run costs besides its packets: making pages,
// changing the dispatcher of XDP programs.
const (
	fewPackets  = 64
	morePackets = 16 * fewPackets
	warmRuns    = 9
)

// warm finds that out.
func (r *rig) warm(cpu int, l load) error {
	return r.onCPU(cpu, func(c clock) error {
		var fixed []float64
		for range warmRuns {
			few, err := r.live(c, l, fewPackets)
			if err != nil {
				return err
			}
			more, err := r.live(c, l, morePackets)
			if err != nil {
				return err
			}
			fixed = append(fixed, (few-more)*fewPackets*morePackets/(morePackets-fewPackets))
		}
		r.apart = max(0, stats.Median(fixed))
		return nil
	})
}

// load is what goes through a rig.
type load struct {
	port    string
	frame   progrun.Frame
	program *progrun.Program
	want    want
}

// sunk checks that the sink got `packets` frames, and what the first one is.
func (r *rig) sunk(packets uint64, w want) error {
	s, err := r.bench.Sunk()
	if err != nil {
		return err
	}
	if s.Packets != packets {
		return fmt.Errorf("%d of %d frames came out", s.Packets, packets)
	}
	if err := w.check(s.First, s.Length); err != nil {
		return fmt.Errorf("the first frame that came out: %w: %x", err, s.First)
	}
	return nil
}

// testRun returns the ns of one run of a program after the front, and of the
// front alone.
func (r *rig) testRun(l load, runs uint32) (ns, front float64, err error) {
	if err := r.bench.Prepare(l.frame, r.bench.Nothing()); err != nil {
		return 0, 0, err
	}
	if _, front, err = r.bench.Run(l.frame, r.index[l.port], runs); err != nil {
		return 0, 0, err
	}
	if err := r.bench.Prepare(l.frame, l.program); err != nil {
		return 0, 0, err
	}
	verdict, ns, err := r.bench.Run(l.frame, r.index[l.port], runs)
	if err == nil && verdict != progrun.Redirect {
		err = fmt.Errorf("the program's verdict is %d, want %d (XDP_REDIRECT)", verdict, progrun.Redirect)
	}
	return ns, front, err
}

// onCPU runs f in the node's namespace on one CPU.
func (r *rig) onCPU(cpu int, f func(clock) error) error {
	c, err := newClock(cpu)
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread keeps its CPU, and ends
		err := pin(cpu)
		if err == nil {
			err = r.net.node.do(func() error { return f(c) })
		}
		done <- err
	}()
	return <-done
}
