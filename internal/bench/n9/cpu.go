package n9

import (
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/lab"
)

// core is the CPU that all nodes' packets are handled on.
type core struct {
	cpu      int
	softirqd int // its ksoftirqd
	threads  []*napi.Threads
}

// newCore makes threads of what receives at some interfaces, each the first of
// what follows in its softirqs.
func newCore(network *lab.Network, cpu int, interfaces [][2]string) (_ *core, err error) {
	c := &core{cpu: cpu}
	if c.softirqd, err = proc.Softirqd(cpu); err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		t, err := napi.Start(network.Namespace(i[0]), i[1], cpu)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", i[0], err), c.stop())
		}
		c.threads = append(c.threads, t)
	}
	return c, nil
}

// stop ends the threads.
func (c *core) stop() error {
	var errs []error
	for _, t := range c.threads {
		errs = append(errs, t.Stop())
	}
	return errors.Join(errs...)
}

// spent is the CPU time of the threads, and of what goes on where they left off.
func (c *core) spent() (time.Duration, error) {
	sum, err := proc.Time(c.softirqd)
	if err != nil {
		return 0, err
	}
	for _, t := range c.threads {
		one, err := t.CPUTime()
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// chooseCPUs are those that the nodes run on and the generator sends on: what is
// asked for (below 0: the last), and the first other.
func chooseCPUs(wanted int) (nodes, generator int, err error) {
	allowed, err := proc.Allowed()
	if err != nil {
		return 0, 0, err
	}
	return pick(wanted, allowed)
}

func pick(wanted int, allowed []int) (nodes, generator int, err error) {
	if len(allowed) < 2 {
		return 0, 0, errors.New("one CPU sends, another is the network's: this process may use one only (fix: give it two)")
	}
	if nodes = wanted; wanted < 0 {
		nodes = allowed[len(allowed)-1]
	}
	for _, cpu := range allowed {
		if cpu != nodes {
			generator = cpu
			break
		}
	}
	for _, cpu := range allowed {
		if cpu == nodes {
			return nodes, generator, nil
		}
	}
	return 0, 0, fmt.Errorf("--cpu %d: this process may use %v", wanted, allowed)
}
