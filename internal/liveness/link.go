package liveness

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// sockets is the link of the network namespace: it sends through a raw socket, by the kernel's
// routes, and receives what ends at the SID through a packet socket. That socket is asked after
// XDP and tc, so that packets which these forward never meet it.
type sockets struct {
	out, in int
	buffer  []byte
	control []byte
}

func openLink(sid netip.Addr) (link, error) {
	s := &sockets{out: -1, in: -1, buffer: make([]byte, 2048), control: make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))}
	err := s.open(sid)
	if err != nil {
		err = errors.Join(err, s.close())
		return nil, err
	}
	return s, nil
}

func (s *sockets) open(sid netip.Addr) (err error) {
	if s.out, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW); err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	// No protocol yet: nothing arrives before the filter is there.
	if s.in, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	filter, err := bpf.Assemble(endsAt(sid))
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	if err := unix.SetsockoptSockFprog(s.in, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("filter what arrives: %w", err)
	}
	if err := unix.SetsockoptInt(s.in, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for times of arrival: %w", err)
	}
	if err := unix.Bind(s.in, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IPV6)}); err != nil {
		return fmt.Errorf("receive IPv6: %w", err)
	}
	return nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// endsAt takes IPv6 packets to an address, whole.
func endsAt(a netip.Addr) (out []bpf.Instruction) {
	const destination = 24
	words := a.As16()
	for i := 0; i < 16; i += 4 {
		word := uint32(words[i])<<24 | uint32(words[i+1])<<16 | uint32(words[i+2])<<8 | uint32(words[i+3])
		left := uint8(2 * (3 - i/4)) // of instructions, before the one that takes it
		out = append(out, bpf.LoadAbsolute{Off: uint32(destination + i), Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: left + 1})
	}
	return append(out, bpf.RetConstant{Val: 1 << 16}, bpf.RetConstant{Val: 0})
}

func (s *sockets) send(packet []byte, to netip.Addr) error {
	return unix.Sendto(s.out, packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
}

func (s *sockets) receive() ([]byte, time.Time) {
	for {
		n, control, _, _, err := unix.Recvmsg(s.in, s.buffer, s.control, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, time.Time{}
		}
		return s.buffer[:n], arrival(s.control[:control])
	}
}

// arrival is the kernel's time of arrival; now, where it told none.
func arrival(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				t := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
				return time.Unix(t.Unix())
			}
		}
	}
	return time.Now()
}

func (s *sockets) close() error {
	var errs []error
	for _, fd := range []int{s.out, s.in} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
