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
	var receivers []receiver
	for _, pod := range s.Pods() {
		l, err := receive(r, pod, topology.FamilyOf(c.To), s.TargetPort)
		if err != nil {
			return err
		}
		defer l.Close()
		receivers = append(receivers, l)
	}
	to := netip.AddrPortFrom(c.To, s.Port).String()
	for range max(c.Count, 1) {
		o.Sent++
		if err := connect(ctx, r, r.Node(c.From), to); err != nil {
			o.Fail("%v", err)
			break
		}
		o.Received++
	}
	reached := 0
	for _, l := range receivers {
		l.Close()
		if n := <-l.count; n > 0 {
			reached++
			o.Say("%s: %d connections", l.pod, n)
		}
	}
	if reached != c.Expect.Pods {
		o.Fail("%d pods were reached: want %d", reached, c.Expect.Pods)
	}
	return nil
}

// receiver accepts connections in a pod, and closes each at once.
type receiver struct {
	net.Listener
	pod   string
	count chan int // of connections, sent when the listener is closed
}

func receive(r *disturb.Runner, pod, family string, port uint16) (l receiver, err error) {
	at, err := r.Address(pod, family)
	if err != nil {
		return l, err
	}
	l = receiver{pod: pod, count: make(chan int, 1)}
	if err := r.Namespace(r.Node(pod)).Do(func() (err error) {
		l.Listener, err = net.Listen("tcp", netip.AddrPortFrom(at, port).String())
		return err
	}); err != nil {
		return l, err
	}
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				l.count <- n
				return
			}
			c.Close()
		}
	}()
	return l, nil
}

// connect makes a connection, and waits until the other side has closed it.
func connect(ctx context.Context, r *disturb.Runner, from *topology.Node, to string) error {
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
