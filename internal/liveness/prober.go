package liveness

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults, and what the probes of all lists come to at most.
const (
	DefaultInterval   = 10 * time.Millisecond
	DefaultMultiplier = 3
	probesPerSecond   = 20_000
)

// Target is a list to probe, by the path that a probe takes before it returns. The key is the
// caller's.
type Target struct {
	Key  string
	Path []netip.Addr
}

// Config is what a Prober needs to know.
type Config struct {
	SID        netip.Addr // where probes end: of this node
	Source     netip.Addr // of probes
	Interval   time.Duration
	Multiplier int
	// Changed is called when something else is found. It must not wait.
	Changed func(Found)
	Log     *slog.Logger
}

// Found is what is found of lists.
type Found struct {
	Dead      map[string]string              // by key of the list, and why
	Standings map[string]map[string]Standing // by key of the choice, and then of the list
}

// link sends and receives packets.
type link interface {
	send(packet []byte, to netip.Addr) error
	// receive returns a packet that has arrived, and when; nil: nothing has.
	receive() ([]byte, time.Time)
	close() error
}

// Status is what is known of a list.
type Status struct {
	Dead  bool
	Delay Delay
}

// Prober probes lists.
type Prober struct {
	config Config
	link   link
	key    []byte

	mu       sync.Mutex
	targets  map[string]*target
	byNumber map[uint32]*target
	choices  map[string]*choice
	last     uint32 // number
	rounds   uint64
	reported Found
}

type target struct {
	monitor
	Target
	number uint32
	failed string // why a probe could not be sent
}

// Open makes a prober, which probes nothing yet. The SID is the caller's to put into the data
// path, so that packets which end there reach the kernel, and to keep the kernel from
// forwarding them.
func Open(c Config) (*Prober, error) {
	l, err := openLink(c.SID)
	if err != nil {
		return nil, fmt.Errorf("probe segment lists: %w", err)
	}
	return newProber(c, l), nil
}

func newProber(c Config, l link) *Prober {
	key := make([]byte, 32)
	rand.Read(key) //nolint:errcheck // it never fails (crypto/rand)
	return &Prober{config: c, link: l, key: key, targets: map[string]*target{}, byNumber: map[uint32]*target{}}
}

// Close ends it. Nobody may run it any more.
func (p *Prober) Close() error { return p.link.close() }

// Set says which lists are probed from now on, and which choices among them are made by delay.
// What is known of those that were there stays.
func (p *Prober) Set(targets []Target, choices []Choice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.Key] = true
		if now := p.targets[t.Key]; now != nil && slices.Equal(now.Path, t.Path) {
			continue
		}
		p.drop(t.Key)
		p.last++
		p.targets[t.Key] = &target{Target: t, number: p.last, monitor: monitor{interval: p.config.Interval, multiplier: p.config.Multiplier}}
		p.byNumber[p.last] = p.targets[t.Key]
	}
	for _, key := range slices.Collect(maps.Keys(p.targets)) {
		if !wanted[key] {
			p.drop(key)
		}
	}
	before := p.choices
	p.choices = make(map[string]*choice, len(choices))
	for _, c := range choices {
		p.choices[c.Key] = newChoice(c, before[c.Key])
	}
}

func (p *Prober) drop(key string) {
	if t := p.targets[key]; t != nil {
		delete(p.byNumber, t.number)
		delete(p.targets, key)
	}
}

// Status is what is known of the lists that are probed.
func (p *Prober) Status() map[string]Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]Status, len(p.targets))
	for key, t := range p.targets {
		_, dead := p.reported.Dead[key]
		out[key] = Status{dead, t.delay()}
	}
	return out
}

// Run probes until ctx ends. It has a thread of its own, ahead of others where that is allowed:
// probes that leave late find faults late.
func (p *Prober) Run(ctx context.Context) error {
	runtime.LockOSThread() // which ends with the goroutine, and its priority with it
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -10); err != nil {
		p.config.Log.Debug("probes leave without priority", "error", err)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-timer.C:
			timer.Reset(p.round(now))
		}
	}
}

// round takes what has arrived, judges, and in every second round sends the next probes: they
// are judged sooner than others leave. It returns when the next round is.
func (p *Prober) round(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeArrived() // all that had arrived by now, before it is judged as lost
	if found := p.judge(now); !found.equal(p.reported) {
		p.reported = found // which nobody changes
		p.config.Changed(found)
	}
	if p.rounds++; p.rounds%2 == 1 {
		for _, t := range p.targets {
			p.sendTo(t)
		}
	}
	slowest := time.Duration(len(p.targets)) * time.Second / probesPerSecond
	return max(p.config.Interval, slowest) / 2
}

func (p *Prober) takeArrived() {
	for {
		b, at := p.link.receive()
		if b == nil {
			return
		}
		of, ok := read(b, p.key)
		if t := p.byNumber[of.list]; ok && t != nil {
			t.receive(of.seq, of.trip(at))
		}
	}
}

func (f Found) equal(g Found) bool {
	return maps.Equal(f.Dead, g.Dead) && maps.EqualFunc(f.Standings, g.Standings, maps.Equal)
}

// judge returns the lists that are dead, and why, and the standings of those that live. Where none
// of several lists that have lived returns, what was reported stays: the way back may be at fault.
func (p *Prober) judge(now time.Time) Found {
	dead := map[string]string{}
	lived := 0
	for key, t := range p.targets {
		t.judge(now)
		if t.trip > 0 {
			lived++
		}
		switch {
		case t.dead && t.failed != "":
			dead[key] = "no probe can be sent: " + t.failed
		case t.dead:
			dead[key] = fmt.Sprintf("no probe returns (%d every %s)", t.multiplier, t.interval)
		}
	}
	if lived > 1 && len(dead) == len(p.targets) {
		return p.reported
	}
	found := Found{Dead: dead, Standings: map[string]map[string]Standing{}}
	for key, c := range p.choices {
		if of := c.judge(now, p.targets); len(of) > 0 {
			found.Standings[key] = of
		}
	}
	return found
}

func (p *Prober) sendTo(t *target) {
	seq := t.send(time.Now())
	packet := probe{t.number, seq, time.Now().UnixNano()}.packet(p.key, t.flow(seq), p.config.Source, t.Path, p.config.SID)
	if err := p.link.send(packet, t.Path[0]); err != nil {
		t.failed = err.Error()
		return
	}
	t.failed = ""
}
