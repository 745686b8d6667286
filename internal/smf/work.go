package smf

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Pace says for which sessions of a group something is done, and how fast.
type Pace struct {
	// First session, and Count of them; 0: all that follow.
	First, Count int
	// Rate of requests a second; 0: as fast as they are answered.
	Rate float64
	// Window is how many requests may be under way at once; 64 unless set.
	Window int
	// Progress, if set, is called with how far it is, every thousand requests or so.
	Progress func(done, of int)
}

// span is the first session, and the one behind the last.
func (p Pace) span(n int) (first, end int) {
	end = n
	if p.Count > 0 {
		end = min(n, p.First+p.Count)
	}
	return p.First, end
}

// Result is what became of the requests of a procedure.
type Result struct {
	Procedure string  `json:"procedure"`
	Requests  int     `json:"requests"`
	Failures  int     `json:"failures"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"` // requests that were accepted
	// Latency from sending, or, when the window was full at the time at which a
	// request was due by the rate, from then on.
	P50 float64 `json:"p50_us"`
	P90 float64 `json:"p90_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
	// Retransmissions of requests that were not answered in time.
	Retransmissions int `json:"retransmissions"`
	// CPU time that this process had for a request, user and system.
	CPU float64 `json:"cpu_us"`
	// Problems by their words: cause and offending IE, or no answer.
	Problems map[string]int `json:"problems,omitempty"`
	// Usage that the answers reported.
	Usage []SessionUsage `json:"usage,omitempty"`

	first error
}

// SessionUsage is what one session's answer reported.
type SessionUsage struct {
	Session int     `json:"session"`
	Reports []Usage `json:"reports"`
}

// Err is nil if all requests were accepted; otherwise it wraps the first
// failure, a *RefusedError or ErrUnanswered for example.
func (r *Result) Err() error {
	if r.Failures == 0 {
		return nil
	}
	if r.Requests == 1 {
		return r.first
	}
	var kinds []string
	for _, text := range slices.Sorted(maps.Keys(r.Problems)) {
		kinds = append(kinds, fmt.Sprintf("%d times: %s", r.Problems[text], text))
	}
	return &failedError{fmt.Sprintf("%s: %d of %d failed; %s", r.Procedure, r.Failures, r.Requests, strings.Join(kinds, "; ")), r.first}
}

type failedError struct {
	text  string
	first error
}

func (e *failedError) Error() string { return e.text }
func (e *failedError) Unwrap() error { return e.first }

// fail counts failures of one sort.
func (r *Result) fail(err error, n int) {
	if r.first == nil {
		r.first = err
	}
	if r.Problems == nil {
		r.Problems = map[string]int{}
	}
	r.Failures += n
	r.Problems[err.Error()] += n
}

// procedure is what is sent for each session of a group, and what becomes of the
// answers. Its functions run with the client locked; nil: there is nothing to do.
type procedure struct {
	name    string
	kind    uint8 // of the message; a Session Modification Request unless set
	invalid error // why it makes no sense for the group
	// build makes the IEs of a message, prepare changes the session before it is sent.
	build   func(*encoder) []*ie.IE
	prepare func(s *state)
	// access and core are the tunnels that sessions move to; nil: they keep theirs.
	access, core *Tunnel
	// fresh: the procedure is for sessions that are not established.
	fresh bool
	// accept takes in an answer that accepts; keep keeps its usage reports.
	accept func(s *state, i int, a *wire.Answer) error
	keep   bool
}

// move lets session i's message say the tunnels that it moves to.
func (p *procedure) move(id *identity, i int) {
	if p.access != nil {
		id.access = p.access.at(i)
	}
	if p.core != nil {
		id.core = p.core.at(i)
	}
}

// work is a procedure under way. What it counts is guarded by the client.
type work struct {
	procedure
	g        *Group
	pace     Pace
	template *template

	batch     *Batch
	total     Result
	answer    wire.Answer
	underWay  int
	silent    int // requests given up since the last answer
	histogram *hdrhistogram.Histogram
	answers   []keptAnswer
	elapsed   time.Duration
	cpu       time.Duration
	resent    int
	list      [][]byte // messages that are ready to be sent
}

type keptAnswer struct {
	session int
	payload []byte
}

// longest latency that is measured; requests are given up long before.
const longest = 100 * time.Second

// work prepares a procedure for the sessions that p selects.
func (g *Group) work(p Pace, what procedure) (*work, error) {
	if what.invalid != nil {
		return nil, what.invalid
	}
	what.kind, p.Window = cmp.Or(what.kind, message.MsgTypeSessionModificationRequest), cmp.Or(p.Window, 64)
	first, end := p.span(len(g.state))
	if first < 0 || first >= end || p.Window < 1 || p.Window > slots/2 || p.Rate < 0 {
		return nil, fmt.Errorf("%s: give sessions of group %s between 0 and %d, a window of 1 to %d, and no rate below 0", what.name, g.spec.Name, len(g.state)-1, slots/2)
	}
	if what.accept == nil {
		what.accept = func(*state, int, *wire.Answer) error { return nil }
	}
	g.c.mu.Lock()
	id := g.identity(first)
	g.c.mu.Unlock()
	what.move(&id, first)
	t, err := newTemplate(g.encoder, what.kind, id, what.build)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what.name, err)
	}
	return &work{
		procedure: what, g: g, pace: p, template: t,
		batch:     NewBatch(net.UDPAddrFromAddrPort(g.c.options.UPF)),
		total:     Result{Procedure: what.name},
		histogram: hdrhistogram.New(1000, longest.Nanoseconds(), 3),
		list:      make([][]byte, 0, BatchSize),
	}, nil
}

// all are the sessions that the work is for.
func (w *work) all() []int {
	w.g.c.mu.Lock()
	defer w.g.c.mu.Unlock()
	first, end := w.pace.span(len(w.g.state))
	list := make([]int, 0, end-first)
	for i := first; i < end; i++ {
		if w.g.state[i].live != w.fresh {
			list = append(list, i)
		}
	}
	return list
}

// run does the work for sessions, waits for the last answer, and returns what
// came of it so far. The error is ctx's or the socket's; refusals are in the
// result.
func (w *work) run(ctx context.Context, sessions []int) (Result, error) {
	c := w.g.c
	stop := c.wakeWith(ctx)
	defer stop()
	began, cpu, resent := c.now(), cpuTime(), c.resent()
	err := w.send(ctx, sessions, began)
	if err == nil {
		err = w.wait(ctx)
	}
	if err != nil { // what is under way is given up
		c.mu.Lock()
		for _, t := range c.table.pending {
			if t != nil && t.owner == w {
				c.table.drop(t)
				w.underWay--
				w.total.fail(fmt.Errorf("%s: given up", w.name), 1)
			}
		}
		c.mu.Unlock()
	}
	w.elapsed += c.now() - began
	w.cpu += cpuTime() - cpu
	w.resent += c.resent() - resent
	return w.result(), err
}

func (c *Client) resent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retransmissions
}

// wakeWith wakes those who wait for answers when ctx ends, until it is stopped.
func (c *Client) wakeWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answered.Broadcast()
	})
}

// send sends all requests, no earlier than the rate allows.
func (w *work) send(ctx context.Context, sessions []int, began time.Duration) error {
	c := w.g.c
	timer, err := newTimer()
	if err != nil {
		return err
	}
	defer timer.file.Close()
	for sent := 0; sent < len(sessions); {
		if err := ctx.Err(); err != nil {
			return err
		}
		due := len(sessions)
		if w.pace.Rate > 0 {
			if due = min(due, int(w.pace.Rate*(c.now()-began).Seconds())+1); due <= sent {
				if err := timer.sleep(w.due(began, sent) - c.now()); err != nil {
					return err
				}
				continue
			}
		}
		n, err := w.fill(ctx, sessions[sent:due], began, sent)
		if err != nil {
			return err
		}
		if n == 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			left := len(sessions) - sent
			w.total.Requests += left
			w.total.fail(fmt.Errorf("%s: not sent, the UPF does not answer any more: %w", w.name, ErrUnanswered), left)
			return nil
		}
		if err := w.batch.Send(c.socket, w.list); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		sent += n
		if w.pace.Progress != nil && (sent == len(sessions) || sent%1024 < BatchSize) {
			w.pace.Progress(sent, len(sessions))
		}
	}
	return nil
}

// due is the time at which request n is to be sent.
func (w *work) due(began time.Duration, n int) time.Duration {
	return began + time.Duration(float64(n)/w.pace.Rate*float64(time.Second))
}

// fill makes the next requests, as soon as the window has room, and returns how
// many; none: a whole window was given up, without an answer in between.
func (w *work) fill(ctx context.Context, sessions []int, began time.Duration, sent int) (int, error) {
	c := w.g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	full, most := w.underWay >= w.pace.Window, w.pace.Window-1
	if full && w.pace.Rate == 0 {
		most -= w.pace.Window / 4 // many at once: both ends are woken up less often
	}
	for w.underWay > most && ctx.Err() == nil && c.broken == nil {
		c.answered.Wait()
	}
	if err := errors.Join(ctx.Err(), c.broken); err != nil {
		return 0, err
	}
	if w.silent >= w.pace.Window {
		return 0, nil
	}
	now := c.now()
	w.list = w.list[:0]
	n := min(len(sessions), w.pace.Window-w.underWay, BatchSize)
	for k, i := range sessions[:n] {
		t, id := c.table.take(), w.g.identity(i)
		w.move(&id, i)
		if w.prepare != nil {
			w.prepare(&w.g.state[i])
		}
		t.message = w.template.fill(t.message, &id)
		if w.kind != message.MsgTypeSessionEstablishmentRequest {
			binary.BigEndian.PutUint64(t.message[wire.SEIDAt:], w.g.state[i].upSEID)
		}
		wire.SetSequence(t.message, t.sequence)
		t.kind, t.index, t.owner = w.kind, i, w
		t.done = func(t *transaction, h *wire.Header, at time.Duration) { t.owner.done(t, h, at) }
		t.sent, t.next = now, now+c.options.Timeout
		if full && w.pace.Rate > 0 {
			t.sent = min(now, w.due(began, sent+k))
		}
		w.list = append(w.list, t.message)
	}
	w.underWay += n
	w.total.Requests += n
	return n, nil
}

// done records the answer to a transaction; h is nil if the UPF sent none.
func (w *work) done(t *transaction, h *wire.Header, at time.Duration) {
	w.underWay--
	if h == nil {
		w.silent++
		w.total.fail(fmt.Errorf("%s: %w", w.name, ErrUnanswered), 1)
		return
	}
	w.silent = 0
	_ = w.histogram.RecordValue(min(at-t.sent, longest).Nanoseconds()) // within its range
	w.answer.Read(h.Payload)
	err := refusal(w.name, &w.answer)
	if err == nil && h.SEID != w.g.base+uint64(t.index) {
		err = badAnswer(w.name, "is for SEID %#x, not for %#x", h.SEID, w.g.base+uint64(t.index))
	}
	s := &w.g.state[t.index]
	if err == nil {
		err = w.accept(s, t.index, &w.answer)
	}
	if err != nil {
		w.total.fail(err, 1)
		return
	}
	if w.access != nil {
		s.peer = w.g.c.fteidOf(w.access.at(t.index))
	}
	if w.core != nil {
		s.next = w.g.c.fteidOf(w.core.at(t.index))
	}
	if w.keep {
		w.answers = append(w.answers, keptAnswer{t.index, slices.Clone(h.Payload)})
	}
}

// wait waits for the answers to all that was sent.
func (w *work) wait(ctx context.Context) error {
	c := w.g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for w.underWay > 0 {
		if err := errors.Join(ctx.Err(), c.broken); err != nil {
			return err
		}
		c.answered.Wait()
	}
	return nil
}

// result is what came of the work so far.
func (w *work) result() Result {
	w.g.c.mu.Lock()
	defer w.g.c.mu.Unlock()
	r := w.total
	r.Problems = maps.Clone(r.Problems)
	r.Seconds, r.Retransmissions = w.elapsed.Seconds(), w.resent
	if w.histogram.TotalCount() > 0 {
		at := func(quantile float64) float64 { return float64(w.histogram.ValueAtQuantile(quantile)) / 1000 }
		r.P50, r.P90, r.P99, r.Max = at(50), at(90), at(99), float64(w.histogram.Max())/1000
	}
	if r.Requests > 0 && w.elapsed > 0 {
		r.PerSecond = float64(r.Requests-r.Failures) / w.elapsed.Seconds()
		r.CPU = float64(w.cpu.Microseconds()) / float64(r.Requests)
	}
	for _, a := range w.answers {
		reports, err := usages(a.payload)
		if err != nil {
			r.fail(badAnswer(w.name, "has a usage report that cannot be read: %v", err), 1)
		}
		if len(reports) > 0 {
			r.Usage = append(r.Usage, SessionUsage{a.session, reports})
		}
	}
	return r
}

// cpuTime is what this process has had.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// timer sleeps to some microseconds: the runtime's own timers are up to a
// millisecond late, and a thread that sleeps in the kernel keeps a processor
// from the goroutine that reads answers.
type timer struct {
	fd   int      // file's, which asked for it would make it block
	file *os.File // the runtime's poller reads it
}

func newTimer() (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return timer{}, fmt.Errorf("timerfd: %w", err)
	}
	return timer{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep returns after d, or earlier: interrupts are to be seen.
func (t timer) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(min(d, 50*time.Millisecond).Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err
}
