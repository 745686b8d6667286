package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// setUp starts the daemon on a node of its own and fills its tables. The node's
// interfaces have a queue for each of `queues` CPUs.
func setUp(ctx context.Context, p plan, queues int) (_ *bench, err error) {
	b := &bench{plan: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.tearDown())
		}
	}()
	if b.cpu, err = chosenCPU(b.cpu); err != nil {
		return nil, err
	}
	tables := configuration(p.functions, p.tables())
	p.upfConfiguration(tables)
	if err := enoughMemory(tables, "/proc/meminfo"); err != nil {
		return nil, err
	}
	b.name = cmp.Or(b.name, runName())
	if b.node, err = newRig(b.name, queues); err != nil {
		return nil, err
	}
	if b.routes > 0 {
		if err := b.node.net.node.script(routeLines(b.routes)...); err != nil {
			return nil, err
		}
	}
	if !b.open {
		if err := b.node.sink((*progrun.Bench).SinkXDP); err != nil {
			return nil, err
		}
	}
	pins := filepath.Join(b.bpffs, b.name)
	if b.daemon, err = startDaemon(ctx, b.binary, pins, b.node.net.node, tables); err != nil {
		return nil, err
	}
	if b.program, err = progrun.OpenPinned(filepath.Join(pins, "programs", "culvert_xdp")); err != nil {
		return nil, err
	}
	if err := b.setUpSessions(ctx); err != nil || b.open {
		return b, err
	}
	return b, b.setUpBaseline()
}

// setUpSessions has an SMF set up the sessions of the functions that have some.
func (b *bench) setUpSessions(ctx context.Context) error {
	if len(b.groups()) == 0 {
		return nil
	}
	// A UPF asks its peers whether they are there.
	err := b.node.net.node.do(func() error { return b.node.bench.Silence(b.node.index[portOut]) })
	if err != nil {
		return err
	}
	if b.control, err = startControl(ctx, b.node.net.node, b.plan); err != nil {
		return fmt.Errorf("set up sessions: %w: %s", err, b.daemon.tail())
	}
	return nil
}

// setUpBaseline loads L2 forwarding and measures what a run costs by itself.
func (b *bench) setUpBaseline() error {
	err := b.node.net.node.do(func() (err error) {
		b.l2, err = b.node.bench.Baseline(b.node.hop())
		return err
	})
	if err != nil {
		return err
	}
	l2 := baseline(shortSize)
	return b.node.warm(b.cpu, load{portIn, l2.frame(1, 1), b.l2, wantLike(l2.data)})
}

// setUpKernel makes a second node, which Linux alone forwards on.
func (b *bench) setUpKernel() (err error) {
	if !slices.ContainsFunc(b.functions, func(f function) bool { return f.kernel != nil }) {
		return nil
	}
	if b.kernel, err = newRig(b.name+"-k", 1); err != nil {
		return err
	}
	if err := b.kernel.sink((*progrun.Bench).SinkSKB); err != nil {
		return err
	}
	for _, f := range b.functions {
		if f.kernel == nil || len(f.kernel.routes) == 0 {
			continue
		}
		if err := b.kernel.net.node.script(f.kernel.routes...); err != nil {
			return fmt.Errorf("%s of the kernel: %w", f.name, err)
		}
	}
	err = b.kernel.net.node.do(func() error { return b.kernel.bench.OpenReceive(b.kernel.index[portIn]) })
	if err != nil {
		return err
	}
	l2 := baseline(shortSize)
	return b.kernel.warm(b.cpu, load{portIn, l2.frame(1, 1), b.kernel.bench.Pass(), l2.wanted(true)})
}

func (b *bench) tearDown() error {
	var errs []error
	if b.control != nil {
		errs = append(errs, b.control.client.Close())
	}
	if b.program != nil {
		errs = append(errs, b.program.Close())
	}
	if b.daemon != nil {
		errs = append(errs, b.daemon.stop())
	}
	for _, r := range []*rig{b.node, b.kernel} {
		if r != nil {
			errs = append(errs, r.close())
		}
	}
	return errors.Join(errs...)
}

// bytesOfEntry is what the daemon and the benchmark hold for a SID, a tunnel or
// a steering entry while they come, as measured.
const bytesOfEntry = 4 << 10

// enoughMemory refuses tables that would make the kernel end a process in the
// middle of a run.
func enoughMemory(c *config.Config, meminfo string) error {
	available, err := availableMemory(meminfo)
	if err != nil {
		return err
	}
	entries := uint64(len(c.SIDs) + len(c.Tunnels) + len(c.Steering))
	if need := entries * bytesOfEntry; need > available {
		return fmt.Errorf("%d entries need about %d MB of memory, and %d MB are available: give fewer with --entries or --tunnels",
			entries, need>>20, available>>20)
	}
	return nil
}
