package cost

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
	"github.com/culvert-net/culvert/internal/smf"
)

// SetUp starts the daemon on a node of its own and fills its tables. The node's
// interfaces have a queue for each of `queues` CPUs.
func SetUp(ctx context.Context, p Plan, queues int) (_ *Bench, err error) {
	b := &Bench{Plan: p}
	defer b.OnError(&err)
	if b.CPU, err = proc.Chosen(b.CPU); err != nil {
		return nil, err
	}
	tables := catalog.Configuration(p.Functions, p.tables())
	p.upfConfiguration(tables)
	if err := enoughMemory(tables, "/proc"); err != nil {
		return nil, err
	}
	b.Name = cmp.Or(b.Name, node.RunName())
	if b.Node, err = rig.New(b.Name, queues); err != nil {
		return nil, err
	}
	b.Later(b.Node.Close)
	lines := catalog.RouteLines(b.Routes)
	for _, f := range b.Functions {
		lines = append(lines, f.Routes...)
	}
	if err := b.Node.Net.Node.Script(lines...); err != nil {
		return nil, err
	}
	if !b.Open {
		if err := b.Node.Sink((*progrun.Bench).SinkXDP); err != nil {
			return nil, err
		}
	}
	pins := filepath.Join(b.BPFFS, b.Name)
	if b.Daemon, err = node.Start(ctx, b.Binary, pins, b.Node.Net.Node, tables); err != nil {
		return nil, err
	}
	b.Later(b.Daemon.Close)
	if b.program, err = progrun.OpenPinned(filepath.Join(pins, "programs", "culvert_xdp")); err != nil {
		return nil, err
	}
	b.Later(b.program.Close)
	if err := b.setUpSessions(ctx); err != nil || b.Open {
		return b, err
	}
	err = b.Node.Net.Node.Do(func() (err error) {
		b.l2, err = b.Node.Bench.Baseline(b.Node.Hop())
		return err
	})
	if err != nil {
		return nil, err
	}
	l2 := catalog.Baseline(catalog.ShortSize)
	return b, b.Node.Warm(b.CPU, rig.Load{Port: node.PortIn, Frame: l2.Frame(1, 1), Program: b.l2, Want: rig.WantLike(l2.Data)})
}

// setUpSessions has an SMF set up the sessions of the functions that have some.
func (b *Bench) setUpSessions(ctx context.Context) error {
	var groups []Group
	for _, g := range b.groups() {
		groups = append(groups, Group{g.SMFSpec(b.tables()), g.Dialect})
	}
	if len(groups) == 0 {
		return nil
	}
	// A UPF asks its peers whether they are there.
	err := b.Node.Net.Node.Do(func() error { return b.Node.Bench.Silence(b.Node.Index[node.PortOut]) })
	if err != nil {
		return err
	}
	if b.Control, err = StartControl(ctx, b.Node.Net.Node, groups...); err != nil {
		return fmt.Errorf("set up sessions: %w: %s", err, b.Daemon.Tail())
	}
	b.Later(b.Control.Close)
	b.LearnTEIDs()
	return nil
}

// LearnTEIDs has frames for the sessions that there are now: each establishment chooses TEIDs anew.
func (b *Bench) LearnTEIDs() {
	b.teids = map[[2]uint32][]uint32{}
	for i, g := range b.groups() {
		if g.SMFSpec(b.tables()).Local == nil {
			b.teids[g.ID()] = chosenTEIDs(b.Control.Groups[i])
		}
	}
}

func chosenTEIDs(g *smf.Group) (teids []uint32) {
	for i := range g.Count() {
		teids = append(teids, g.Info(i).Access.TEID)
	}
	return teids
}

// SetUpKernel makes a second node, which Linux alone forwards on.
func (b *Bench) SetUpKernel() (err error) {
	if !slices.ContainsFunc(b.Functions, func(f catalog.Function) bool { return f.Kernel != nil }) {
		return nil
	}
	if b.kernel, err = rig.New(b.Name+"-k", 1); err != nil {
		return err
	}
	b.Later(b.kernel.Close)
	if err := b.kernel.Sink((*progrun.Bench).SinkSKB); err != nil {
		return err
	}
	for _, f := range b.Functions {
		if f.Kernel == nil || len(f.Kernel.Routes) == 0 {
			continue
		}
		if err := b.kernel.Net.Node.Script(f.Kernel.Routes...); err != nil {
			return fmt.Errorf("%s of the kernel: %w", f.Name, err)
		}
	}
	err = b.kernel.Net.Node.Do(func() error { return b.kernel.Bench.OpenReceive(b.kernel.Index[node.PortIn]) })
	if err != nil {
		return err
	}
	l2 := catalog.Baseline(catalog.ShortSize)
	return b.kernel.Warm(b.CPU, rig.Load{Port: node.PortIn, Frame: l2.Frame(1, 1), Program: b.kernel.Bench.Pass(), Want: l2.Want})
}

// bytesOfEntry is what the daemon and the benchmark hold for a SID, a tunnel or
// a steering entry while they come, as measured.
const bytesOfEntry = 4 << 10

// enoughMemory refuses tables that would make the kernel end a process in the
// middle of a run.
func enoughMemory(c *config.Config, folder string) error {
	available, _, err := proc.Available(folder)
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
