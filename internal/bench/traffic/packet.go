package traffic

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
)

// packetBatch is how many frames a system call sends.
const packetBatch = 32

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// packetSender does the work of bpf/traffic.c through AF_PACKET: it sends the same
// packets.
type packetSender struct {
	job    trafficrun.Job
	socket int
	clock  func() uint64 // ns of CLOCK_MONOTONIC

	stream, sequence uint32
	slot             int

	frames  [packetBatch][]byte
	vectors [packetBatch]unix.Iovec
	list    [packetBatch]mmsghdr
}

// packets sends a job's packets on the calling thread, in whose network
// namespace the interface is.
func (p *Pair) packets(j trafficrun.Job, stop <-chan struct{}) (sending, error) {
	// A clock that costs no system call: Go's is CLOCK_MONOTONIC too, with another zero.
	var ts unix.Timespec
	zero := time.Now()
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	if err != nil {
		return sending{}, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	s := &packetSender{job: j, clock: func() uint64 { return uint64(ts.Nano()) + uint64(time.Since(zero)) }}
	if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err == nil {
		defer unix.Close(s.socket)
		err = errors.Join(unix.SetsockoptInt(s.socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			unix.Bind(s.socket, &unix.SockaddrLinklayer{Ifindex: p.tx.Index}))
	}
	if err != nil {
		return sending{}, fmt.Errorf("interface %s: AF_PACKET: %w", p.options.TX, err)
	}
	for i := range s.frames {
		s.frames[i] = make([]byte, trafficrun.MaxFrame)
		s.vectors[i].Base = &s.frames[i][0]
		s.list[i].header.Iov = &s.vectors[i]
		s.list[i].header.SetIovlen(1)
	}
	out, err := s.run(stop)
	if err != nil {
		return out, fmt.Errorf("interface %s: send by AF_PACKET: %w", p.options.TX, err)
	}
	return out, nil
}

// run sends what is due until the trial is over.
func (s *packetSender) run(stop <-chan struct{}) (sending, error) {
	p := pace{job: s.job}
	begin := s.clock()
	last := begin
	for {
		since := time.Duration(s.clock() - begin)
		if ended(stop) || p.over(since) {
			break
		}
		count := p.count(since)
		if count == 0 {
			continue
		}
		if err := s.send(count); err != nil {
			return p.sending, err
		}
		last = s.clock()
		p.packets += uint64(count)
	}
	p.elapsed = time.Duration(last - begin)
	if p.finished() {
		p.elapsed = max(p.elapsed, s.job.Duration)
	}
	return p.sending, nil
}

// pace says when packets are due, as bpf/traffic.c does.
type pace struct {
	sending
	job  trafficrun.Job
	next float64 // ns after the beginning, when the next packet is due
	idle bool    // it was too early for a packet since the last
}

// finished says that all packets of the rate were sent.
func (p *pace) finished() bool {
	return p.job.Rate > 0 && p.next-float64(p.paused) >= float64(p.job.Duration)
}

// over says that the trial is: it may last longer than asked for where something
// else had the CPU, but not where packets cannot be made in time.
func (p *pace) over(since time.Duration) bool {
	longest := 2*p.job.Duration + 5*time.Second
	if p.job.Rate == 0 || uint64(p.overruns) > p.packets/4+64 {
		longest = p.job.Duration
	}
	return p.finished() || since >= longest
}

// count is how many packets are to be sent now. A pause makes the trial longer.
func (p *pace) count(since time.Duration) int {
	if p.job.Rate == 0 {
		return packetBatch
	}
	interval := 1e9 / p.job.Rate
	if late := since - time.Duration(p.next); late > p.job.CatchUp {
		if !p.idle {
			p.overruns++
		}
		p.paused += late - p.job.CatchUp
		p.next = float64(since - p.job.CatchUp)
	}
	left := float64(p.job.Duration) - (p.next - float64(p.paused))
	n := min(packetBatch, due(float64(since)-p.next, interval), due(left, interval))
	p.next += interval * float64(n)
	p.idle = n == 0
	return n
}

// due is how many packets belong to a time that is not negative; one is due at its beginning.
func due(time, interval float64) int {
	if time < 0 {
		return 0
	}
	return int(time/interval) + 1
}

func ended(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// send makes packets and sends all of them.
func (s *packetSender) send(count int) error {
	for i := range count {
		s.vectors[i].SetLen(s.make(s.frames[i]))
	}
	for done := 0; done < count; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.socket), uintptr(unsafe.Pointer(&s.list[done])), uintptr(count-done), 0, 0, 0)
		switch errno {
		case 0:
			done += int(n)
		case unix.ENOBUFS, unix.EAGAIN, unix.EINTR: // the interface's queue is full: wait for it
		default:
			return errno
		}
	}
	return nil
}

// make writes the packet that is next, and says how long it is.
func (s *packetSender) make(to []byte) int {
	frame := s.job.Frames[s.job.Slots[s.slot]]
	copy(to, frame)
	numbers := numbersOf(s.job, s.stream, s.sequence)
	for _, p := range s.job.Places {
		putNumber(to, p, numbers[p.Key])
	}
	time := uint32(0)
	if s.job.Timed {
		time = uint32(s.clock())
	}
	putTag(to[:len(frame)], s.job.Trial, uint8(s.stream), s.sequence, time)
	if s.slot++; s.slot == len(s.job.Slots) {
		s.slot = 0
	}
	if s.stream++; s.stream>>s.job.StreamBits != 0 {
		s.stream = 0
		s.sequence++
	}
	return len(frame)
}
