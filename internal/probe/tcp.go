package probe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Transfer is a TCP connection on which Bytes go there, and Bytes come back.
type Transfer struct {
	From   Space
	At     Space // where the server is; nil: a Server is there already
	Source netip.Addr
	To     netip.Addr
	// Port is where the client connects to, and Listen where the server is:
	// others than the server's port, and To, where something on the way
	// translates addresses.
	Port   uint16
	Listen netip.AddrPort
	Device string // that the client's socket is bound to; any unless set
	Bytes  int64
	Limit  time.Duration // for all of it
	// While, if set, keeps the connection busy with more of the same.
	While func() bool
}

// TransferResult is what became of it.
type TransferResult struct {
	Sent, Received int64 // bytes, both directions
	Duration       time.Duration
	Retransmitted  uint32 // segments, of the client
	// Client is whose address the server saw.
	Client netip.Addr
	Server string // its name
}

// Run transfers, and compares what arrived with what was sent.
func (t Transfer) Run(ctx context.Context) (r TransferResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	if t.At == nil {
		return t.client(ctx, netip.AddrPortFrom(t.To, t.Port).String())
	}
	var listener net.Listener
	err = t.At.Do(func() error {
		listener, err = net.Listen("tcp", listenAt(t.Listen, t.To).String())
		return err
	})
	if err != nil {
		return r, fmt.Errorf("TCP to %v: %w", t.To, err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	var from netip.Addr
	go func() {
		var err error
		from, err = t.serve(ctx, listener)
		served <- err
	}()
	r, err = t.client(ctx, connectTo(t.To, t.Port, listener.Addr().(*net.TCPAddr).AddrPort()).String())
	if err != nil {
		listener.Close()
	}
	err = errors.Join(err, <-served)
	r.Client = from
	return r, err
}

func (t Transfer) client(ctx context.Context, to string) (r TransferResult, err error) {
	dialer := net.Dialer{Control: boundTo(t.Device)}
	if t.Source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.Source, 0))
	}
	start := time.Now()
	var c net.Conn
	err = t.From.Do(func() error {
		c, err = dialer.DialContext(ctx, "tcp", to)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("TCP to %v: %w", t.To, err)
	}
	defer c.Close()
	end, _ := ctx.Deadline() // Run sets one
	if err := c.SetDeadline(end); err != nil {
		return r, err
	}
	if r.Server, err = t.greet(c); err != nil {
		return r, fmt.Errorf("TCP to %v: %w", t.To, err)
	}
	for round := uint64(0); round == 0 || t.While != nil && t.While(); round++ {
		r.Sent += 2 * t.Bytes
		n, err := t.exchange(c, round)
		r.Received += n
		if err != nil {
			return r, fmt.Errorf("TCP to %v: %w", t.To, err)
		}
	}
	r.Duration = time.Since(start)
	err = control(c.(*net.TCPConn), func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			r.Retransmitted = info.Total_retrans
		}
		return err
	})
	return r, err
}

// exchange sends one round and reads the answer: the digest of what the other
// side got, and the same data back.
func (t Transfer) exchange(c net.Conn, round uint64) (received int64, err error) {
	sent := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c, sent), content(t.Bytes, round)); err != nil {
		return 0, err
	}
	theirs := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, theirs); err != nil {
		return 0, err
	}
	if string(theirs) != string(sent.Sum(nil)) {
		return 0, errors.New("other data arrived than was sent")
	}
	back := sha256.New()
	n, err := io.CopyN(back, c, t.Bytes)
	if err == nil && string(back.Sum(nil)) != string(theirs) {
		err = errors.New("other data came back than was sent")
	}
	return t.Bytes + n, err
}

// serve is for one client, and says who that was.
func (t Transfer) serve(ctx context.Context, listener net.Listener) (from netip.Addr, err error) {
	c, err := listener.Accept()
	if err != nil {
		return from, fmt.Errorf("TCP at %v: %w", t.To, err)
	}
	defer c.Close()
	from = c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	end, _ := ctx.Deadline() // Run sets one
	if err := c.SetDeadline(end); err != nil {
		return from, err
	}
	if err := answer(c, ""); err != nil {
		return from, fmt.Errorf("TCP at %v: %w", t.To, err)
	}
	return from, nil
}

// greet sends how much a round has, and reads the server's name.
func (t Transfer) greet(c net.Conn) (string, error) {
	if err := binary.Write(c, binary.BigEndian, t.Bytes); err != nil {
		return "", err
	}
	var length uint8
	if err := binary.Read(c, binary.BigEndian, &length); err != nil {
		return "", err
	}
	name := make([]byte, length)
	_, err := io.ReadFull(c, name)
	return string(name), err
}

// answer is the server's part in a connection, to its end.
func answer(c net.Conn, name string) error {
	var octets int64
	if err := binary.Read(c, binary.BigEndian, &octets); err != nil {
		return err
	}
	if octets <= 0 || octets > mostBytes {
		return fmt.Errorf("a client wants to send %d octets", octets)
	}
	if _, err := c.Write(append([]byte{uint8(len(name))}, name...)); err != nil {
		return err
	}
	for round := uint64(0); ; round++ {
		got := sha256.New()
		n, err := io.CopyN(got, c, octets)
		if errors.Is(err, io.EOF) && n == 0 && round > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := c.Write(got.Sum(nil)); err != nil {
			return err
		}
		if _, err := io.Copy(c, content(octets, round)); err != nil {
			return err
		}
	}
}

// mostBytes is what a server takes in a round.
const mostBytes = 1 << 30

// content is the data of a round: the same on both sides, never twice.
func content(octets int64, round uint64) io.Reader {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("round %d", round))
	return io.LimitReader(rand.NewChaCha8(seed), octets)
}
