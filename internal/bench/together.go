package bench

import (
	"errors"
	"sync"
	"time"
)

// pace is what one run took: CPU ns of a packet, and ns until all were out.
type pace struct{ cpu, wall float64 }

// together sends a row's frames on all of some CPUs at once, as many on each.
func (b *bench) together(r *row, cpus []int) (pace, error) {
	l := load{r.portName(), r.frame(r.entries, b.tables()), b.program, r.want}
	if r.name == baselineName {
		l.program = b.l2
	}
	if err := b.node.bench.Prepare(l.frame, l.program); err != nil {
		return pace{}, err
	}
	if err := b.node.bench.ResetSinks(); err != nil {
		return pace{}, err
	}
	var ready, done sync.WaitGroup
	var mu sync.Mutex
	var sum pace
	var errs []error
	ready.Add(len(cpus))
	for _, cpu := range cpus {
		done.Go(func() {
			arrive := sync.OnceFunc(ready.Done)
			defer arrive() // or the others would wait for one that failed
			err := b.node.onCPU(cpu, func(c clock) error {
				arrive()
				ready.Wait()
				begin := time.Now()
				spent, err := c.during(func() error { return b.node.bench.RunLive(l.frame, b.node.index[l.port], b.packets) })
				mu.Lock()
				defer mu.Unlock()
				sum.cpu += float64(spent) / float64(b.packets) / float64(len(cpus))
				sum.wall = max(sum.wall, float64(time.Since(begin).Nanoseconds()))
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return pace{}, err
	}
	return sum, b.node.sunk(uint64(len(cpus))*uint64(b.packets), l.want)
}
