package overlay

import (
	"errors"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/bench/proc"
)

// crowd is many connections that one thread serves in turn.
type crowd struct {
	flows []flow
	next  int
}

func openCrowd(p pods, n int) (_ *crowd, err error) {
	c := &crowd{}
	for range n {
		f, err := openTCP(p)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.flows = append(c.flows, f)
	}
	return c, nil
}

func (c *crowd) turn(a *amount) error {
	c.next = (c.next + 1) % len(c.flows)
	return c.flows[c.next].turn(a)
}

func (c *crowd) packets() (sum uint64, err error) {
	for _, f := range c.flows {
		n, err := f.packets()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func (*crowd) inside() string { return "" }

func (c *crowd) close() (err error) {
	for _, f := range c.flows {
		err = errors.Join(err, f.close())
	}
	return err
}

// halves are two crowds, each of which has a CPU.
type halves struct {
	*crowd
	other *crowd
}

func openFlows(p pods, each int) (flow, error) {
	first, err := openCrowd(p, each)
	if err != nil {
		return nil, err
	}
	second, err := openCrowd(p, each)
	if err != nil {
		return nil, errors.Join(err, first.close())
	}
	return &halves{first, second}, nil
}

// serve serves both at once. The time of the CPUs is that of one of them, so that a rate is that of
// both together.
func (h *halves) serve(first, second core, d time.Duration) (a amount, err error) {
	var other amount
	var errs [2]error
	var group sync.WaitGroup
	group.Go(func() { other, errs[1] = second.serve(h.other, d) })
	a, errs[0] = first.serve(h.crowd, d)
	group.Wait()
	wall, cpu := max(a.wall, other.wall), (a.cpu+other.cpu)/2
	a.add(other)
	a.wall, a.cpu = wall, cpu
	return a, errors.Join(errs[:]...)
}

func (h *halves) close() error { return errors.Join(h.crowd.close(), h.other.close()) }

// beside is a CPU beside another one.
func beside(cpu int) (core, error) {
	all, err := proc.Allowed()
	if err != nil {
		return core{}, err
	}
	for _, other := range all {
		if other != cpu {
			return newCore(other)
		}
	}
	return core{}, errors.New("tcp-flows needs two CPUs: leave it out of --traffic")
}

func newCore(cpu int) (c core, err error) {
	c.cpu = cpu
	c.clock, err = proc.NewClock(cpu)
	return c, err
}
