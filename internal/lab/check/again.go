package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// firstPort is the first of those that connections come from: below the ports that the kernel
// chooses.
const firstPort = 20000

// again makes two connections from the same port, by TCP and by UDP: to a Service and to
// the pod behind it, or the pod first.
func again(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	s := r.Service(c.ToName)
	if s == nil {
		return fmt.Errorf("to_name: %q is no Service", c.ToName)
	}
	pod, err := r.Address(s.Pod, topology.FamilyOf(c.To))
	if err != nil {
		return err
	}
	direct, service := netip.AddrPortFrom(pod, s.TargetPort), netip.AddrPortFrom(c.To, s.Port)
	stop, err := echoes(r, s.Pod, direct)
	if err != nil {
		return err
	}
	defer stop()
	port := firstPort
	for range max(c.Count, 1) {
		for _, order := range [][]netip.AddrPort{{service, direct}, {direct, service}} {
			for _, protocol := range []string{"tcp", "udp"} {
				port++
				for i, to := range order {
					o.Sent++
					if err := r.Namespace(r.Node(c.From)).Do(func() error { return talk(ctx, protocol, port, to) }); err != nil {
						o.Fail("%s from port %d to %v, connection %d: %v", protocol, port, to, i+1, err)
						continue
					}
					o.Received++
				}
			}
		}
	}
	wantAll(o, &topology.Expect{})
	return nil
}

// echoes sends back what a pod gets at an address, by TCP and UDP, until it is stopped. After
// it answered, a connection is the client's to end, so that the server has nothing left of it.
func echoes(r *disturb.Runner, name string, at netip.AddrPort) (stop func(), err error) {
	var listener net.Listener
	var socket net.PacketConn
	err = r.Namespace(r.Node(name)).Do(func() (err error) {
		if listener, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		if socket, err = net.ListenPacket("udp", at.String()); err != nil {
			return errors.Join(err, listener.Close())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				octets := make([]byte, 64)
				for {
					n, err := c.Read(octets)
					if err != nil {
						return
					}
					if _, err := c.Write(octets[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	go func() {
		octets := make([]byte, 64)
		for {
			n, from, err := socket.ReadFrom(octets)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(octets[:n], from) // the client misses it
		}
	}()
	return func() { _, _ = listener.Close(), socket.Close() }, nil
}

// talk connects from a port, and wants an answer.
func talk(ctx context.Context, protocol string, port int, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }), err)
	}}
	if protocol == "tcp" {
		dialer.LocalAddr = &net.TCPAddr{Port: port}
	} else {
		dialer.LocalAddr = &net.UDPAddr{Port: port}
	}
	c, err := dialer.DialContext(ctx, protocol, to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	question := []byte(fmt.Sprintf("from port %d", port))
	if _, err := c.Write(question); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err == nil && string(answer[:n]) != string(question) {
		err = fmt.Errorf("%q came back", answer[:n])
	}
	return err
}

// dead pings a pod that has gone: whoever sends to its address is told at once.
func dead(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) (err error) {
	pod := r.Node(c.ToName)
	if err := cluster.Detach(ctx, r.Instance, pod); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Attach(ctx, r.Instance, pod)) }()
	gone := *c
	gone.Count, gone.Expect = max(c.Count, 3), topology.Expect{Error: probe.Unreachable}
	return ping(ctx, r, &gone, o)
}
