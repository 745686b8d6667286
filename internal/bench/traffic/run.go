package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
	"github.com/culvert-net/culvert/internal/netdev"
)

const (
	// quiet is for how long nothing must come before a trial is over, where packets
	// are missing quietMissing, and patience for how long it is waited for that.
	quiet        = 50 * time.Millisecond
	quietMissing = 150 * time.Millisecond
	patience     = time.Second
	// catchUp is how much of the time that something else had the CPU is made up
	// for at once, and burst how many packets at most: less than a queue of a veth
	// holds, so that what is lost is the device's.
	catchUp = 100 * time.Microsecond
	burst   = 64
	// look is how often wrong frames and samples are fetched.
	look = 5 * time.Millisecond
)

// ErrNothing says that no packet came out of the device.
var ErrNothing = errors.New("nothing came in")

// Pair is a generator and a receiver.
type Pair struct {
	options  Options
	tx, rx   netdev.Link
	engine   *trafficrun.Engine
	method   Method
	receiver string
	trial    uint8
	limits   map[string]float64
}

// Open prepares both interfaces. What it does to them is undone by Close.
func Open(ctx context.Context, o Options) (_ *Pair, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("packets are sent and taken by root: use sudo")
	}
	o.CheckEvery = cmp.Or(o.CheckEvery, 1024)
	p := &Pair{options: o, limits: map[string]float64{}}
	defer func() {
		if err != nil && p.engine != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.tx, err = o.TX.link(); err != nil {
		return nil, err
	}
	if p.rx, err = o.RX.link(); err != nil {
		return nil, err
	}
	if p.engine, err = trafficrun.Load(); err != nil {
		return nil, err
	}
	p.receiver, err = p.attach(o.RX, p.rx.Index, false)
	if o.TX != o.RX { // a device answers some packets with errors to where they came from
		_, err2 := p.attach(o.TX, p.tx.Index, true)
		err = errors.Join(err, err2)
	}
	if err != nil {
		return nil, err
	}
	return p, errors.Join(p.choose(ctx), ctx.Err())
}

// choose finds how packets can be sent. The receiver is attached: on the other
// end of a veth it is what makes live frames possible.
func (p *Pair) choose(ctx context.Context) (err error) {
	if p.tx, err = p.options.TX.linkAgain(ctx); err != nil {
		return err
	}
	if p.rx, err = p.options.RX.linkAgain(ctx); err != nil {
		return err
	}
	able := p.tx.XDP&netdev.XDPTransmit != 0
	if !slices.Contains([]Method{Auto, Live, Packet}, p.options.Method) {
		return fmt.Errorf("method %q: there are live and packet", p.options.Method)
	}
	if p.options.Method == Live && !able {
		return fmt.Errorf("interface %s (driver %s) does not send live frames: %s", p.options.TX, p.tx.Driver, p.whyNot())
	}
	if p.options.Method == Packet || !able {
		p.method = Packet
		return nil
	}
	p.method = Live
	return proc.Inside(p.options.TX.Namespace, func() error {
		return p.engine.Device(p.tx.Index, p.tx.Kind != "veth") // whose other end is the device's queue
	})
}

// Sends is how packets are sent, and why not by live frames where that could not
// be.
func (p *Pair) Sends() (m Method, why string) {
	if p.method == Packet && p.tx.XDP&netdev.XDPTransmit == 0 {
		why = p.whyNot()
	}
	return p.method, why
}

func (p *Pair) whyNot() string {
	if p.tx.Kind == "veth" {
		return "its peer has neither an XDP program nor GRO (ethtool -K PEER gro on)"
	}
	return "its driver has no ndo_xdp_xmit (--method packet does without)"
}

// attach has the receiver take what comes in at an interface, the sending one or the
// other, or hands it what the receiver of the pair that shares the interface takes.
func (p *Pair) attach(port Port, index int, sending bool) (receiver string, err error) {
	if with := p.options.With; with != nil && (sending && with.options.TX == port || !sending && with.options.RX == port) {
		return with.receiver, with.engine.HandOver(sending, p.engine)
	}
	receiver = "generic"
	err = proc.Inside(port.Namespace, func() error {
		native, err := p.engine.Receive(index, sending)
		if native {
			receiver = "native"
		}
		return err
	})
	if errors.Is(err, trafficrun.ErrBusy) {
		return "", fmt.Errorf("interface %s: %w: take it off (ip link set dev %s xdp off), or use another interface", port, err, port.Interface)
	}
	if err != nil {
		return "", fmt.Errorf("interface %s: attach the receiver: %w", port, err)
	}
	return receiver, nil
}

// Close detaches everything.
func (p *Pair) Close() error { return p.engine.Close() }

// prepare makes a trial's job.
func (p *Pair) prepare(t Trial) (trafficrun.Job, error) {
	template := t.Template
	if err := template.Check(); err != nil {
		return trafficrun.Job{}, fmt.Errorf("template %s: %w", template.Name, err)
	}
	if template.Ethernet.Source == nil {
		template.Ethernet.Source = MAC(p.tx.MAC)
	}
	if template.Ethernet.Destination == nil {
		return trafficrun.Job{}, fmt.Errorf("template %s: ethernet.destination is missing (fix: the address of the device's interface behind %s)", template.Name, p.options.TX)
	}
	if t.Duration <= 0 || t.Rate < 0 {
		return trafficrun.Job{}, fmt.Errorf("a trial of %v at %v packets/s: want a time, and a rate or 0", t.Duration, t.Rate)
	}
	if t.Later < 0 || t.Later > 0 && (t.Rate == 0 || p.method != Live) {
		return trafficrun.Job{}, fmt.Errorf("a trial at %v and later at %v packets/s by %s: want two rates, and live frames", t.Rate, t.Later, p.method)
	}
	j, err := template.job(cmp.Or(t.Expect, p.options.Expect), p.options.Seed)
	if err != nil {
		return j, err
	}
	if p.trial++; p.trial == 0 {
		p.trial = 1 // 0 are the frames before the first trial
	}
	j.Trial, j.Duration, j.Rate, j.Later, j.CatchUp, j.Timed = p.trial, t.Duration, t.Rate, t.Later, catchUp, !t.Untimed
	if t.Rate > 0 {
		j.CatchUp = min(catchUp, time.Duration(burst/max(t.Rate, t.Later)*1e9))
	}
	j.Expect.Every = p.options.CheckEvery
	return j, nil
}

// Run sends a trial's packets and waits for what comes out. Where ctx ends it
// earlier, the outcome is of what was sent until then, beside ctx's error; an
// ErrNothing stands beside an outcome too.
func (p *Pair) Run(ctx context.Context, t Trial) (Outcome, error) {
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	j, err := p.prepare(t)
	if err != nil {
		return Outcome{}, err
	}
	if err := p.engine.Prepare(j); err != nil {
		return Outcome{}, err
	}
	v := newVerifier(j)
	before, err := now(p.options.Watch)
	if err != nil {
		return Outcome{}, err
	}
	full, err := p.queuesFull()
	if err != nil {
		return Outcome{}, err
	}
	sent, err := p.send(ctx, j, v)
	if err != nil {
		return Outcome{}, err
	}
	if err := p.settle(v, sent.packets); err != nil {
		return Outcome{}, err
	}
	o, err := p.outcome(t, sent, v)
	if err != nil {
		return o, err
	}
	fullNow, err := p.queuesFull()
	if err != nil {
		return o, err
	}
	o.Missed = min(fullNow.receiver-full.receiver, o.Lost) // came out of the device
	o.Lost -= o.Missed
	o.Waiting = min(fullNow.device-full.device, o.Lost)
	after, err := now(p.options.Watch)
	o.CPU = after.since(before)
	o.CPU.Generator = sent.ran
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && o.Sent > 0 && v.counts.Seen() == 0 {
		err = fmt.Errorf("%w at %s of %d packets that %s sent: does the device forward to it, are both ends up, and is ethernet.destination the device's address?",
			ErrNothing, p.options.RX, o.Sent, p.options.TX)
	}
	return o, err
}

// sending is what the generator did.
type sending struct {
	packets  uint64
	refused  uint64 // besides them
	elapsed  time.Duration
	paused   time.Duration
	overruns uint32        // packets that were late because of those before
	ran      time.Duration // CPU time
	last     uint64        // when the last packet was sent, ns of CLOCK_MONOTONIC
}

// send sends all packets, and meanwhile looks at frames.
func (p *Pair) send(ctx context.Context, j trafficrun.Job, v *verifier) (sending, error) {
	stop, done := make(chan struct{}), make(chan error, 1)
	var s sending
	go func() {
		done <- proc.Inside(p.options.TX.Namespace, func() (err error) {
			if err := proc.Pin(p.options.CPU); err != nil {
				return fmt.Errorf("the generator: %w: give another CPU with --cpu", err)
			}
			// It goes before others: its pauses are the trial's.
			if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -20); err != nil {
				return fmt.Errorf("set the generator's priority: %w", err)
			}
			send := p.live
			if p.method == Packet {
				send = p.packets
			}
			s.ran, err = proc.During(func() (time.Duration, error) { return proc.Time(unix.Gettid()) }, func() (err error) {
				s, err = send(j, stop)
				return err
			})
			return err
		})
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	ended := ctx.Done()
	for {
		select {
		case <-ended:
			close(stop)
			ended = nil
		case err := <-done:
			return s, err
		case <-tick.C:
			if err := p.engine.Show(v.see); err != nil {
				v.err = err
			}
		}
	}
}

// state is what the generator did, of live frames.
func (p *Pair) state() (trafficrun.State, error) {
	s, err := p.engine.State()
	if err == nil && s.Failed > 0 {
		err = fmt.Errorf("interface %s: %d frames could not be made", p.options.TX, s.Failed)
	}
	return s, err
}

// live sends live frames.
func (p *Pair) live(j trafficrun.Job, stop <-chan struct{}) (sending, error) {
	if err := p.engine.Send(stop); err != nil {
		return sending{}, fmt.Errorf("interface %s: %w", p.options.TX, err)
	}
	s, err := p.state()
	if err != nil {
		return sending{}, err
	}
	elapsed := time.Duration(s.Last - s.Begin)
	if s.Over && j.Rate > 0 {
		elapsed = max(elapsed, j.Duration)
	}
	return sending{packets: s.Sent - s.Refused, refused: s.Refused, elapsed: elapsed, paused: s.Paused, overruns: s.Overruns, last: s.Last}, nil
}

// full counts packets that found a queue full.
type full struct {
	device   uint64 // the one that the sending interface fills
	receiver uint64
}

// queuesFull reads the counters of both interfaces. Only of a veth it is known that they
// count nothing else.
func (p *Pair) queuesFull() (n full, err error) {
	if n.receiver, err = counter(p.options.RX, p.rx, func(l procfs.NetDevLine) uint64 { return l.RxDropped }); err != nil {
		return n, err
	}
	n.device, err = counter(p.options.TX, p.tx, func(l procfs.NetDevLine) uint64 { return l.TxDropped })
	return n, err
}

// counter of an interface; 0 where it is no veth.
func counter(at Port, is netdev.Link, of func(procfs.NetDevLine) uint64) (uint64, error) {
	if is.Kind != "veth" {
		return 0, nil
	}
	line, err := proc.NetDev(at.Namespace, is.Name)
	return of(line), err
}

// settle waits for late packets.
func (p *Pair) settle(v *verifier, sent uint64) error {
	seen, wait := uint64(0), quietMissing
	for end, last := time.Now().Add(patience), time.Now(); time.Now().Before(end) && time.Since(last) < wait; time.Sleep(look) {
		counts, err := p.engine.Counts()
		if err != nil {
			return err
		}
		if counts.Seen() != seen {
			seen, last = counts.Seen(), time.Now()
		}
		switch {
		case counts.Received >= sent:
			wait = quiet
		case seen == 0:
			wait = patience // whoever has the packets may not have had the CPU yet
		default:
			wait = quietMissing
		}
		if err := p.engine.Show(v.see); err != nil {
			return err
		}
		v.counts = counts
	}
	return v.err
}

// outcome puts together what is known.
func (p *Pair) outcome(t Trial, s sending, v *verifier) (Outcome, error) {
	c := v.counts
	o := Outcome{
		Method: p.method, Receiver: p.receiver,
		Offered: s.packets, Sent: s.packets, Refused: s.refused, Received: c.Received, Duplicated: c.Duplicated, Reordered: c.Reordered,
		Unreadable: c.Wrong[trafficrun.Unreadable], Unexpected: c.Wrong[trafficrun.Unexpected], Returned: c.Returned,
		Octets: c.Octets, Elapsed: s.elapsed, Paused: s.paused, LongestGap: c.Gap, Faults: v.faults, Checked: v.checked,
	}
	if c.Latest > 0 && s.last > c.Latest { // what is blocked may stay so
		o.LongestGap = max(c.Gap, time.Duration(s.last-c.Latest))
	}
	o.Corruption, o.Corrupt = v.corruption()
	if got := c.Received + o.Unreadable; got < s.packets {
		o.Lost = s.packets - got
	}
	if t.Rate > 0 {
		o.Offered = t.due(s.elapsed)
	}
	if s.elapsed > s.paused {
		o.Rate = float64(o.Sent) / (s.elapsed - s.paused).Seconds()
	}
	// Not a few pauses but the making of packets kept the generator from the rate.
	slow := float64(s.packets) < 0.995*float64(o.Offered) || uint64(s.overruns) > s.packets/4+64
	o.AtLimit = t.Rate == 0 || slow
	if t.Untimed {
		return o, nil
	}
	buckets, err := p.engine.Latency()
	h := &result.Histogram{Unit: "ns"}
	for _, b := range buckets {
		h.Lower, h.Upper, h.Count = append(h.Lower, b.Lower), append(h.Upper, b.Upper), append(h.Count, b.Count)
	}
	o.Latency = h
	return o, err
}
