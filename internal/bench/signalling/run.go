package signalling

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/smf"
)

// Settings say what is asked, and how fast.
type Settings struct {
	// Window is how many requests are under way at once: when a quarter of them is
	// answered, as many are sent. Or Rate: so many are sent a second, whatever is answered.
	Window int
	Rate   float64
	// Duration for which requests are sent. Until ends it earlier.
	Duration time.Duration
	Until    <-chan struct{}
	// T1 is when a request without an answer is sent again; 3 s unless set.
	T1 time.Duration
	// Idle is the share of requests that make a UE idle: up to a half, since the next one
	// makes it active. The others are handovers.
	Idle float64
	// On is the CPU that the thread is on; below 0: any.
	On   int
	Seed uint64
}

// DefaultT1 is when a request is sent again.
const DefaultT1 = 3 * time.Second

func (s *Settings) complete(sessions int) error {
	if s.T1 == 0 {
		s.T1 = DefaultT1
	}
	switch {
	case (s.Window > 0) == (s.Rate > 0) || s.Window < 0 || s.Rate < 0:
		return fmt.Errorf("signalling: window %d, rate %v: give one of them", s.Window, s.Rate)
	case s.Window > sessions:
		return fmt.Errorf("signalling: window %d: there are %d sessions, and each has one request under way", s.Window, sessions)
	case s.Idle < 0 || s.Idle > 0.5:
		return fmt.Errorf("signalling: %v of the requests make UEs idle: at most a half can", s.Idle)
	case s.Duration <= 0 || s.T1 < 0:
		return fmt.Errorf("signalling: duration %s, T1 %s: give times", s.Duration, s.T1)
	}
	return nil
}

// run is a run under way. Times are since its beginning.
type run struct {
	*Load
	Settings
	*pending
	*tally
	began   time.Time
	offered int // requests that were sent or skipped
	turn    int // the SMF whose turn it is
	random  *rand.Rand
	polls   []unix.PollFd
	in      []ipv4.Message
}

// Run sends requests and waits for the last answer. The error is ctx's or a socket's;
// what the UPF did wrong is in the result.
func (l *Load) Run(ctx context.Context, s Settings) (Result, error) {
	sessions := 0
	for _, e := range l.smfs {
		sessions += len(e.sessions)
	}
	if err := s.complete(sessions); err != nil {
		return Result{}, err
	}
	r := &run{
		Load: l, Settings: s, pending: newPending(sessions, l.sequence), tally: newTally(), began: time.Now(),
		random: rand.New(rand.NewPCG(s.Seed, 0)), in: make([]ipv4.Message, smf.BatchSize),
	}
	for i := range r.in {
		r.in[i].Buffers = [][]byte{make([]byte, 2048)}
	}
	for _, e := range l.smfs {
		r.polls = append(r.polls, unix.PollFd{Fd: int32(e.fd), Events: unix.POLLIN})
		for i := range e.sessions {
			e.sessions[i].busy = false // what an earlier run left
		}
	}
	err := proc.Inside("", func() (err error) {
		if err := r.prepareThread(); err != nil {
			return err
		}
		for _, e := range l.smfs {
			err = errors.Join(err, e.client.Pause())
			defer func() { err = errors.Join(err, e.client.Resume()) }()
		}
		if err != nil {
			return err
		}
		r.CPU, err = proc.During(func() (time.Duration, error) { return proc.Time(unix.Gettid()) }, func() error { return r.loop(ctx) })
		return err
	})
	l.sequence = r.next
	return r.result(), err
}

// prepareThread lets the calling thread do what is due at once: at a rate it goes before
// a generator of packets on its CPU, in a closed loop it has no less of it.
func (r *run) prepareThread() error {
	if r.On >= 0 {
		if err := proc.Pin(r.On); err != nil {
			return err
		}
	}
	if r.Rate > 0 {
		if err := proc.GoRealtime(0, proc.Realtime); err != nil {
			return err
		}
	} else if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
		return err
	}
	// Else what is due waits for 50 us more.
	return unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// loop sends and receives until the last answer, or until what lacks one is given up.
func (r *run) loop(ctx context.Context) error {
	for {
		now := r.now()
		if !r.stopped && r.over(now) {
			r.stop(now)
		}
		if r.stopped && r.count == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.send(now); err != nil {
			return err
		}
		if err := r.expire(now); err != nil {
			return err
		}
		if err := r.receive(r.wait()); err != nil {
			return err
		}
	}
}

// over says that no more requests are to be sent.
func (r *run) over(now time.Duration) bool {
	select {
	case <-r.Until:
		return true
	default:
		return now >= r.Duration
	}
}

// room is how many requests are to be sent now.
func (r *run) room(now time.Duration) int {
	switch {
	case r.stopped:
		return 0
	case r.Rate > 0:
		return min(r.late(now), mostAtOnce)
	case r.Window-r.count <= r.Window/4: // many at once: both ends are woken up less often
		return 0
	default:
		return r.Window - r.count
	}
}

// mostAtOnce is how many requests are sent at once that are late, because something else had the
// CPU: much less than a veth's queue holds, so that what is lost is not the generator's. Before
// more of them are sent there is an answer, or takeBreath has passed.
const (
	mostAtOnce = 64
	takeBreath = time.Millisecond
)

// late is how many requests are due at a rate, and neither sent nor skipped.
func (r *run) late(now time.Duration) int { return int(r.Rate*now.Seconds()) + 1 - r.offered }

// longestWait is how late the end of a run is noticed.
const longestWait = 5 * time.Millisecond

// wait is how long there is nothing to send.
func (r *run) wait() time.Duration {
	now := r.now()
	switch {
	case r.stopped || r.Rate == 0:
		return longestWait
	case r.late(now) >= mostAtOnce:
		return takeBreath
	}
	next := time.Duration(float64(r.offered) / r.Rate * float64(time.Second))
	return min(max(next-now, 0), longestWait)
}

// send has the SMFs send by turns.
func (r *run) send(now time.Duration) error {
	room := r.room(now)
	for range r.smfs {
		if room <= 0 {
			return nil
		}
		e := r.smfs[r.turn]
		want := min(room, smf.BatchSize)
		sent, err := r.burst(e, want, now)
		if err != nil {
			return fmt.Errorf("signalling: send: %w", err)
		}
		if r.Rate > 0 {
			r.Skipped += want - sent
			r.offered += want
		}
		room -= want
		r.turn = (r.turn + 1) % len(r.smfs)
	}
	return nil
}

// burst sends up to n requests of an SMF.
func (r *run) burst(e *endpoint, n int, now time.Duration) (sent int, err error) {
	for ; sent < n; sent++ {
		i := e.pick()
		if i < 0 {
			break
		}
		s := &e.sessions[i]
		r.move(s)
		q := r.add()
		q.smf, q.session, q.sent = int32(r.turn), int32(i), now
		e.out[sent] = r.message(e.out[sent], s, q.wire())
	}
	if r.Sent += sent; sent == 0 {
		return 0, nil
	}
	return sent, e.batch.Send(e.packets, e.out[:sent])
}

// move is what is asked of a session next: an idle one becomes active, an active one idle
// or another gNB's.
func (r *run) move(s *pduSession) {
	s.busy = true
	switch {
	case s.idle:
		s.idle = false
	case r.Idle > 0 && r.random.Float64() < r.Idle/(1-r.Idle):
		s.idle = true
	default:
		s.gnb ^= 1
	}
}

// expire sends requests again after T1, and gives them up after T1 more.
func (r *run) expire(now time.Duration) (err error) {
	r.due(&r.again, now-r.T1, func(q *request) {
		r.Unanswered++
		e := r.smfs[q.smf]
		e.out[0] = r.message(e.out[0], &e.sessions[q.session], q.wire())
		err = errors.Join(err, e.batch.Send(e.packets, e.out[:1]))
	})
	r.due(&r.lost, now-2*r.T1, func(q *request) {
		r.Lost++
		r.finish(q)
	})
	return err
}

// finish makes the session of a request free.
func (r *run) finish(q *request) {
	r.smfs[q.smf].sessions[q.session].busy = false
	r.end(q)
}

// receive waits for answers, and takes those that are there.
func (r *run) receive(wait time.Duration) error {
	timeout := unix.NsecToTimespec(wait.Nanoseconds())
	ready, err := unix.Ppoll(r.polls, &timeout, nil)
	if errors.Is(err, unix.EINTR) || err == nil && ready == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signalling: poll: %w", err)
	}
	for i, p := range r.polls {
		if p.Revents == 0 {
			continue
		}
		n, err := r.smfs[i].packets.ReadBatch(r.in, 0)
		if err != nil {
			return fmt.Errorf("signalling: receive: %w", err)
		}
		now := r.now()
		for _, m := range r.in[:n] {
			r.take(i, m, now)
		}
	}
	return nil
}

// take takes an answer to the SMF with a number.
func (r *run) take(number int, m ipv4.Message, now time.Duration) {
	from, _ := m.Addr.(*net.UDPAddr)
	if from == nil || netip.AddrPortFrom(from.AddrPort().Addr().Unmap(), uint16(from.Port)) != r.upf {
		r.Foreign++
		return
	}
	a, ok := ParseAnswer(m.Buffers[0][:m.N])
	if !ok && ofClient(m.Buffers[0][:m.N]) {
		r.smfs[number].client.Take([]ipv4.Message{m})
		return
	}
	if !ok {
		r.Wrong++
		return
	}
	q := r.find(a.Sequence)
	if q == nil || int(q.smf) != number {
		r.Strange++
		return
	}
	if a.SEID != r.smfs[number].sessions[q.session].cp {
		r.Wrong++
		return
	}
	r.tally.take(a.Cause, q.sent, now)
	r.finish(q)
}
