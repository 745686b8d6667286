package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Frames are made by hand, as whoever may open a packet socket (CAP_NET_RAW) sends
// them: no kernel looks at them on their way out.
type Frames struct {
	From   Space
	Device string
	// At is where they are looked for: at a UDP socket at Port, or, where that is 0, at all
	// interfaces, in whatever headers they are there, before anything else sees them.
	At   Space
	Port uint16
	// Frame is the frame around data, by which it is found.
	Frame func(data []byte) []byte
	Count int
	Wait  time.Duration // for those that are on their way still
}

// FramesResult is what became of them: Received counts distinct ones.
type FramesResult struct{ Sent, Received int }

// A frame's data is a mark and its number.
const (
	markSize  = 16
	frameData = markSize + 4
)

// wakeTime is how often a receiver looks whether it is to end.
const wakeTime = 20 * time.Millisecond

// Run sends them, and looks for them.
func (f Frames) Run(ctx context.Context) (r FramesResult, err error) {
	mark := make([]byte, markSize)
	_, _ = rand.Read(mark) // it never fails
	receiver := -1
	if err := f.At.Do(func() (err error) {
		receiver, err = f.listen()
		return err
	}); err != nil {
		return r, fmt.Errorf("look for frames: %w", err)
	}
	defer unix.Close(receiver)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var found sync.WaitGroup
	var lost error
	found.Go(func() { r.Received, lost = f.look(ctx, receiver, mark) })
	if err := f.From.Do(func() error { return f.send(mark, &r.Sent) }); err != nil {
		cancel()
		found.Wait()
		return r, fmt.Errorf("send frames by %s: %w", f.Device, err)
	}
	end := time.AfterFunc(f.Wait, cancel)
	defer end.Stop()
	found.Wait()
	return r, lost
}

// listen opens the receiver's socket.
func (f Frames) listen() (fd int, err error) {
	if f.Port == 0 {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(hostToNet(unix.ETH_P_ALL)))
	} else if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0), unix.Bind(fd, &unix.SockaddrInet6{Port: int(f.Port)}))
	}
	if err == nil {
		wake := unix.NsecToTimeval(wakeTime.Nanoseconds())
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wake)
	}
	return fd, err
}

// look receives until all are there, or the context ends.
func (f Frames) look(ctx context.Context, fd int, mark []byte) (int, error) {
	seen := map[uint32]bool{}
	octets := make([]byte, 1<<16)
	for len(seen) < f.Count && ctx.Err() == nil {
		n, from, err := unix.Recvfrom(fd, octets, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return len(seen), err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if i := bytes.Index(octets[:n], mark); i >= 0 && i+frameData <= n {
			seen[binary.BigEndian.Uint32(octets[i+markSize:])] = true
		}
	}
	return len(seen), nil
}

// send sends all frames, and counts them.
func (f Frames) send(mark []byte, sent *int) error {
	device, err := net.InterfaceByName(f.Device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for ; *sent < f.Count; *sent++ {
		data := binary.BigEndian.AppendUint32(bytes.Clone(mark), uint32(*sent))
		if err := unix.Sendto(fd, f.Frame(data), 0, &unix.SockaddrLinklayer{Ifindex: device.Index}); err != nil {
			return err
		}
	}
	return nil
}

func hostToNet(v uint16) uint16 { return v<<8 | v>>8 }
