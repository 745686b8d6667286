package gtpulink

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lineRoom is how many packets a line holds: 100 ms of 500 Mbit/s are 4,500 packets of
// 1,400 octets.
const lineRoom = 1 << 15

// line is a delay line: it hands on each packet after the same time, in order.
type line struct {
	delay   time.Duration
	deliver func(packet []byte)
	queue   chan held
	end     chan struct{}
	buffers sync.Pool
}

// held is a packet on a line.
type held struct {
	due    time.Time
	packet *[]byte
}

func newLine(delay time.Duration, deliver func([]byte)) *line {
	return &line{
		delay: delay, deliver: deliver, queue: make(chan held, lineRoom), end: make(chan struct{}),
		buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// put copies a packet onto the line. False: the line is full.
func (l *line) put(packet []byte) bool {
	b := l.buffers.Get().(*[]byte)
	*b = append((*b)[:0], packet...)
	select {
	case l.queue <- held{time.Now().Add(l.delay), b}:
		return true
	default:
		l.buffers.Put(b)
		return false
	}
}

// run hands packets on until the line ends. The timers of Go are as coarse as 1 ms, so
// it sleeps on a thread of its own.
func (l *line) run() error {
	runtime.LockOSThread() // never unlocked: the thread's timers stay as fine as this
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	for {
		select {
		case <-l.end:
			return nil
		case h := <-l.queue:
			if err := sleepUntil(h.due); err != nil {
				return err
			}
			select {
			case <-l.end:
				return nil
			default:
			}
			l.deliver(*h.packet)
			l.buffers.Put(h.packet)
		}
	}
}

func sleepUntil(due time.Time) error {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		t := unix.NsecToTimespec(int64(wait))
		if err := unix.Nanosleep(&t, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// lines are those of a link, one for each direction.
type lines struct{ up, down *line }

func (l *lines) close() {
	if l != nil {
		close(l.up.end)
		close(l.down.end)
	}
}

// pass hands a packet on, by a line if the link has one.
func (l *link) pass(packet []byte, by func(*lines) *line, hand func([]byte)) {
	both := l.lines.Load()
	if both == nil {
		hand(packet)
		return
	}
	if !by(both).put(packet) {
		l.overflow.Add(1)
	}
}

func up(l *lines) *line   { return l.up }
func down(l *lines) *line { return l.down }

// Delay holds each packet of the link of Device for Wait, in each direction: a round
// trip takes twice as long. What an earlier delay holds is lost.
func (e *Endpoint) Delay(q Request, _ *Response) error {
	l, err := e.link(q.Device)
	if err != nil {
		return err
	}
	var both *lines
	if q.Wait > 0 {
		both = &lines{newLine(q.Wait, l.send), newLine(q.Wait, l.write)}
		for _, one := range []*line{both.up, both.down} {
			go func() {
				if err := one.run(); err != nil {
					e.fail(err)
				}
			}()
		}
	}
	l.lines.Swap(both).close()
	return nil
}
