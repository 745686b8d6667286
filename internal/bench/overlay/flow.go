package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/lab"
)

// flow goes from one pod to another. Its two sockets are served in turn by one
// thread on one CPU, and the kernel handles a packet on the CPU that sent it: so this
// CPU does all the work of sender, nodes and receiver, never waits for another, and
// its time is what a packet costs.
type flow interface {
	// turn sends some, and takes all that has come in.
	turn(*amount) error
	// packets that were sent so far, as they are on the wire.
	packets() (uint64, error)
	// inside is the network namespace of the thread that serves it; "": any.
	inside() string
	close() error
}

// amount is what went through a flow.
type amount struct {
	octets  uint64 // of payload, received
	packets uint64
	lost    int64 // sent, and not received
	wall    time.Duration
	cpu     time.Duration
	took    []time.Duration // each of the requests, until its response
}

// rate in bit/s of the CPU's time: what comes through in a second if nobody else has
// the CPU.
func (a amount) rate() float64 { return 8 * float64(a.octets) / a.cpu.Seconds() }

// byWall is the rate by the clock on the wall.
func (a amount) byWall() float64 { return 8 * float64(a.octets) / a.wall.Seconds() }

// perPacket is the CPU time of a packet, in ns.
func (a amount) perPacket() float64 { return float64(a.cpu.Nanoseconds()) / float64(a.packets) }

// latency is a quantile of what requests took, in ns.
func (a amount) latency(quantile float64) float64 {
	ns := make([]float64, len(a.took))
	for i, d := range a.took {
		ns[i] = float64(d)
	}
	slices.Sort(ns)
	return stats.Quantile(ns, quantile)
}

// add adds what went through at another time.
func (a *amount) add(b amount) {
	a.octets, a.packets, a.lost = a.octets+b.octets, a.packets+b.packets, a.lost+b.lost
	a.wall, a.cpu, a.took = a.wall+b.wall, a.cpu+b.cpu, append(a.took, b.took...)
}

// warmUp goes before each trial: a connection that was idle begins slowly.
const warmUp = 20 * time.Millisecond

// ahead is the nice value of the thread that sends.
const ahead = -10

// core is where flows are served.
type core struct {
	cpu   int
	clock proc.Clock
}

// serve serves a flow for some time, on a thread that ends with it.
func (c core) serve(f flow, d time.Duration) (a amount, err error) {
	err = proc.Inside(f.inside(), func() error {
		if err := proc.Pin(c.cpu); err != nil {
			return err
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, ahead); err != nil {
			return fmt.Errorf("set the priority: %w", err)
		}
		if err := turns(f, warmUp, new(amount)); err != nil {
			return err
		}
		first, err := f.packets()
		if err != nil {
			return err
		}
		if a.cpu, err = c.clock.During(func() error { return turns(f, d, &a) }); err != nil {
			return err
		}
		last, err := f.packets()
		a.packets = last - first
		if err == nil && (a.octets == 0 || a.packets == 0 || a.cpu == 0) {
			err = errors.New("nothing came through")
		}
		return err
	})
	return a, err
}

func turns(f flow, d time.Duration, a *amount) error {
	begun := time.Now()
	for ; a.wall < d; a.wall = time.Since(begun) {
		if err := f.turn(a); err != nil {
			return err
		}
	}
	return nil
}

// pods are the two ends of a flow, by the names of their nodes.
type pods struct {
	network  *lab.Network
	from, at string
	to       netip.Addr
}

// address is that of the receiving pod, with its family and no port.
func (p pods) address() (family int, to unix.Sockaddr) {
	if p.to.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: p.to.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: p.to.As16()}
}

// bound is a socket of the receiving pod, at a port that the kernel chose.
func (p pods) bound(kind int) (fd int, to unix.Sockaddr, err error) {
	family, own := p.address()
	err = p.network.Do(p.at, func() error {
		if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, own); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		to, err = unix.Getsockname(fd)
		return err
	})
	return fd, to, err
}

// connected is a socket of the sending pod.
func (p pods) connected(kind int, to unix.Sockaddr, prepare ...func(fd int) error) (fd int, err error) {
	family, _ := p.address()
	err = p.network.Do(p.from, func() error {
		if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		for _, step := range append(prepare, func(fd int) error { return unix.Connect(fd, to) }) {
			if err := step(fd); err != nil {
				return errors.Join(err, unix.Close(fd))
			}
		}
		return nil
	})
	return fd, err
}

// sockets are the two of a flow.
type sockets struct {
	send, receive int
	out, in       []byte
}

func (*sockets) inside() string { return "" }

func (s *sockets) close() error { return errors.Join(unix.Close(s.send), unix.Close(s.receive)) }

// drain reads what is there, and says in how many pieces: each but the last one of a
// stream is as long as the buffer.
func (s *sockets) drain() (octets uint64, pieces int64, err error) {
	for {
		n, err := unix.Read(s.receive, s.in)
		if errors.Is(err, unix.EAGAIN) {
			return octets, pieces, nil
		}
		if err != nil {
			return octets, pieces, fmt.Errorf("receive: %w", err)
		}
		octets, pieces = octets+uint64(n), pieces+1
		if n < len(s.in) {
			return octets, pieces, nil
		}
	}
}
