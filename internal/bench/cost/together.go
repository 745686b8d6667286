package cost

import (
	"errors"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/rig"
)

// pace is what one run took: CPU ns of a packet, and ns until all were out.
type pace struct{ CPU, Wall float64 }

// Together sends a row's frames on all of some CPUs at once, as many on each: of any entries.
func (b *Bench) Together(r *Row, cpus []int) (pace, error) {
	return b.together(b.load(r), cpus)
}

// Apart does so with entries of its own on each CPU, as if a card chose the queue by the entry.
func (b *Bench) Apart(r *Row, cpus []int) (pace, error) {
	l := b.load(r)
	l.Frame.CPUs = cpus
	return b.together(l, cpus)
}

func (b *Bench) together(l rig.Load, cpus []int) (pace, error) {
	if err := b.Node.Bench.Prepare(l.Frame, l.Program); err != nil {
		return pace{}, err
	}
	if err := b.Node.Bench.ResetSinks(); err != nil {
		return pace{}, err
	}
	var ready, done sync.WaitGroup
	took, errs := make([]pace, len(cpus)), make([]error, len(cpus))
	ready.Add(len(cpus))
	for i, cpu := range cpus {
		done.Go(func() {
			arrive := sync.OnceFunc(ready.Done)
			defer arrive() // or the others would wait for one that failed
			errs[i] = b.Node.OnCPU(cpu, func(c proc.Clock) error {
				arrive()
				ready.Wait()
				begin := time.Now()
				spent, err := c.During(func() error { return b.Node.Bench.RunLive(l.Frame, b.Node.Index[l.Port], b.Packets) })
				took[i] = pace{float64(spent.Nanoseconds()), float64(time.Since(begin).Nanoseconds())}
				return err
			})
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return pace{}, err
	}
	var sum pace
	for _, t := range took {
		sum = pace{sum.CPU + t.CPU/float64(b.Packets)/float64(len(cpus)), max(sum.Wall, t.Wall)}
	}
	return sum, b.Node.Sunk(uint64(len(cpus))*uint64(b.Packets), l.Want)
}
