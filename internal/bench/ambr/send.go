package ambr

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/node"
)

// sent is what a program of traffic says of it.
type sent struct {
	bits        float64 // received, of payload
	took        time.Duration
	retransmits float64
	refused     uint64          // packets, by the meter
	each        []time.Duration // that a short connection took
}

// report is the part of iperf3's JSON that is read.
type report struct {
	End struct {
		Sent     sum `json:"sum_sent"`
		Received sum `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

type sum struct {
	Octets      float64 `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	Retransmits float64 `json:"retransmits"`
}

// datagram is UDP's payload where a T-PDU has 1,400 octets.
const datagram = 1400 - 28

// arguments are those of iperf3's client, at the UE.
func (p point) arguments(congestion string, lasts time.Duration) []string {
	list := []string{"-c", dnAddress, "-B", ueAddress, "-J", "-t", fmt.Sprint(int(lasts.Round(time.Second).Seconds())), "-P", fmt.Sprint(p.traffic.flows)}
	if p.direction == downlink {
		list = append(list, "-R")
	}
	if p.traffic.udp {
		return append(list, "-u", "-l", fmt.Sprint(datagram), "-b", fmt.Sprintf("%dM", 2*p.ambr))
	}
	return append(list, "-C", congestion)
}

// stop is how long a program may take to end by itself.
const stop = 5 * time.Second

// program is one that ends with ctx, by SIGTERM at first.
func program(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "iperf3", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = stop
	return cmd
}

// iperf has iperf3 send. Its server may still be starting, or ending the test before.
func (r *rig) iperf(ctx context.Context, p point) (s sent, err error) {
	for end := time.Now().Add(patience); ; {
		s, err = r.iperfOnce(ctx, p)
		if err == nil || time.Now().After(end) || !strings.Contains(err.Error(), "unable to connect") && !strings.Contains(err.Error(), "busy") {
			return s, err
		}
		if err := node.Wait(ctx, refill); err != nil {
			return s, err
		}
	}
}

func (r *rig) iperfOnce(ctx context.Context, p point) (s sent, err error) {
	lasts := time.Duration(r.params.Time)
	ctx, cancel := context.WithTimeout(ctx, lasts+patience)
	defer cancel()
	var out bytes.Buffer
	var said report
	err = r.network.Do(gnb, ahead(func() error {
		cmd := program(ctx, p.arguments(r.params.Congestion, lasts)...)
		cmd.Stdout = &out
		return cmd.Run()
	}))
	if read := json.Unmarshal(out.Bytes(), &said); err == nil {
		err = read
	}
	if err != nil || said.Error != "" {
		return s, fmt.Errorf("iperf3: %w", errors.Join(err, errors.New(said.Error)))
	}
	in := said.End.Received
	return sent{bits: in.Octets * 8, took: time.Duration(in.Seconds * 1e9), retransmits: said.End.Sent.Retransmits}, nil
}

// shortPort is where short connections go to.
const shortPort = 5202

// short sends connections one after another. The receiver of the payload closes when it
// has all of it, so each takes until the sender knows that.
func (r *rig) short(ctx context.Context, p point) (s sent, err error) {
	lasts := time.Duration(r.params.Time)
	ctx, cancel := context.WithTimeout(ctx, lasts+patience)
	defer cancel()
	serve, call := take, give(p.traffic.octets)
	if p.direction == downlink {
		serve, call = call, serve
	}
	var listener net.Listener
	err = r.network.Do(dn, func() error {
		config := net.ListenConfig{Control: congestion(r.params.Congestion)}
		listener, err = config.Listen(ctx, "tcp4", fmt.Sprintf("%s:%d", dnAddress, shortPort))
		return err
	})
	if err != nil {
		return s, err
	}
	served := make(chan error, 1)
	go func() { served <- accept(listener, serve) }()
	begun := time.Now()
	for err == nil && time.Since(begun) < lasts {
		var took time.Duration
		took, err = r.connection(ctx, call)
		s.each = append(s.each, took)
	}
	s.took, s.bits = time.Since(begun), float64(len(s.each)*p.traffic.octets*8)
	return s, errors.Join(err, listener.Close(), <-served)
}

// connection is one from the UE.
func (r *rig) connection(ctx context.Context, call func(net.Conn) error) (took time.Duration, err error) {
	var c net.Conn
	begun := time.Now()
	err = r.network.Do(gnb, func() error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ueAddress)}, Control: congestion(r.params.Congestion)}
		c, err = d.DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", dnAddress, shortPort))
		return err
	})
	if err != nil {
		return 0, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = c.SetDeadline(deadline)
	}
	err = errors.Join(err, call(c), c.Close())
	return time.Since(begun), err
}

// congestion sets the congestion control of a socket.
func congestion(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		}), err)
	}
}

// accept serves connections until the listener is closed.
func accept(l net.Listener, serve func(net.Conn) error) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := errors.Join(serve(c), c.Close()); err != nil {
			return err
		}
	}
}

// give sends so many octets, and waits until the other end has them.
func give(octets int) func(net.Conn) error {
	payload := make([]byte, octets)
	return func(c net.Conn) error {
		if _, err := c.Write(payload); err != nil {
			return err
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c)
		return err
	}
}

// take receives all that the other end sends.
func take(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}
