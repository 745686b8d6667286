package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// spread connects to a Service again and again, and wants so many of the pods
// behind it to be reached.
func spread(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	s := r.Service(c.ToName)
	if s == nil {
		return fmt.Errorf("to_name: %q is no Service", c.ToName)
	}
	doors, err := openDoors(r, s, topology.FamilyOf(c.To))
	defer func() {
		for _, d := range doors {
			d.listener.Close()
		}
	}()
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(c.To, s.Port).String()
	for range max(c.Count, 1) {
		o.Sent++
		if err := knock(ctx, r, r.Node(c.From), to); err != nil {
			o.Fail("%v", err)
			break
		}
		o.Received++
	}
	reached := 0
	for _, d := range doors {
		d.listener.Close()
		if n := <-d.came; n > 0 {
			reached++
			o.Say("%s: %d connections", d.pod, n)
		}
	}
	if reached != c.Expect.Pods {
		o.Fail("%d pods were reached: want %d", reached, c.Expect.Pods)
	}
	return nil
}

// door is where a pod takes connections, and closes them.
type door struct {
	pod      string
	listener net.Listener
	came     chan int // how many, when it is closed
}

// openDoors at all pods behind a Service.
func openDoors(r *disturb.Runner, s *topology.Service, family string) (doors []door, err error) {
	for _, name := range s.Pods() {
		a, err := r.Address(name, family)
		if err != nil {
			return doors, err
		}
		d := door{pod: name, came: make(chan int, 1)}
		err = r.Namespace(r.Node(name)).Do(func() (err error) {
			d.listener, err = net.Listen("tcp", netip.AddrPortFrom(a, s.TargetPort).String())
			return err
		})
		if err != nil {
			return doors, err
		}
		doors = append(doors, d)
		go func() {
			for n := 0; ; n++ {
				c, err := d.listener.Accept()
				if err != nil {
					d.came <- n
					return
				}
				c.Close()
			}
		}()
	}
	return doors, nil
}

// knock makes a connection, and waits until the other side has closed it.
func knock(ctx context.Context, r *disturb.Runner, from *topology.Node, to string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return r.Namespace(from).Do(func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", to)
		if err != nil {
			return err
		}
		defer c.Close()
		end, _ := ctx.Deadline()
		if err := c.SetReadDeadline(end); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return fmt.Errorf("%s does not close: %w", to, err)
		}
		return nil
	})
}
