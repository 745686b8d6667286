package liveness

import (
	"testing"
	"time"
)

const interval = 10 * time.Millisecond

// path is a monitor with a clock, whose probes return after a round trip, or not.
type path struct {
	monitor
	now  time.Time
	trip func(seq uint32) time.Duration // negative: it is lost
	back map[time.Time][]uint32
}

func newPath(trip func(uint32) time.Duration) *path {
	return &path{monitor: monitor{interval: interval, multiplier: 3}, now: time.Unix(1, 0), trip: trip, back: map[time.Time][]uint32{}}
}

// step is time that passes, with judgement twice in each interval, and then the next probe.
func (p *path) step(after time.Duration) {
	const tick = 500 * time.Microsecond
	for i := range int(after / tick) {
		p.now = p.now.Add(tick)
		for _, seq := range p.back[p.now] {
			p.receive(seq, p.trip(seq))
		}
		delete(p.back, p.now)
		if after == interval && (i+1)%int(interval/2/tick) == 0 {
			p.judge(p.now)
		}
	}
	p.judge(p.now)
	seq := p.send(p.now)
	if trip := p.trip(seq); trip >= 0 {
		at := p.now.Add(trip)
		p.back[at] = append(p.back[at], seq)
	}
}

func always(trip time.Duration) func(uint32) time.Duration {
	return func(uint32) time.Duration { return trip }
}

// A path that is cut is dead within the time of the multiplier and one probe more, and lives
// again after as many probes of each flow as were lost.
func TestCut(t *testing.T) {
	for _, trip := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 80 * time.Millisecond} {
		p := newPath(always(trip))
		for range 50 {
			p.step(interval)
		}
		if p.dead {
			t.Fatalf("round trip %s: dead without a cut", trip)
		}
		whole := p.trip
		p.trip = always(-1)
		cut := p.now
		for !p.dead && p.now.Sub(cut) < time.Second {
			p.step(interval)
		}
		// probes that are on their way at the cut return in this model
		if took, most := p.now.Sub(cut), 3*interval+max(interval, 2*trip+interval)+trip; took > most {
			t.Errorf("round trip %s: dead after %s, want %s", trip, took, most)
		}
		p.trip = whole
		mended := p.now
		for p.dead && p.now.Sub(mended) < time.Second {
			p.step(interval)
		}
		if took, least, most := p.now.Sub(mended), flows*3*interval, (flows*3+2)*interval+3*trip; took < least || took > most {
			t.Errorf("round trip %s: it lives after %s, want %s to %s", trip, took, least, most)
		}
	}
}

// Probes that are lost one or two at a time, by a queue that is full, are no cut.
func TestLossIsNoCut(t *testing.T) {
	p := newPath(func(seq uint32) time.Duration {
		if seq%5 < 2 {
			return -1
		}
		return time.Millisecond
	})
	for range 10_000 {
		if p.step(interval); p.dead {
			t.Fatalf("dead after %d probes", p.next)
		}
	}
}

// A daemon that does not get to run sends late, and reads late what had come in time.
func TestStall(t *testing.T) {
	p := newPath(always(time.Millisecond))
	for range 50 {
		p.step(interval)
	}
	for range 100 {
		if p.step(500 * time.Millisecond); p.dead {
			t.Fatal("dead, and every probe has returned")
		}
	}
}

// A path that gets slow at once is judged as dead at most for as long as its probes take to say
// so, and not again.
func TestSlower(t *testing.T) {
	p := newPath(always(time.Millisecond))
	for range 50 {
		p.step(interval)
	}
	p.trip = always(200 * time.Millisecond)
	for range 30 {
		p.step(interval)
	}
	for range 1000 {
		if p.step(interval); p.dead {
			t.Fatal("dead, and every probe has returned")
		}
	}
	if d := p.delay(); d.Minimum != 200*time.Millisecond || d.Mean != 200*time.Millisecond || d.P99 != 200*time.Millisecond {
		t.Errorf("delay %+v", d)
	}
}

// A list that has never lived is dead as soon as its first probes had their time.
func TestNeverLived(t *testing.T) {
	p := newPath(always(-1))
	for !p.dead && p.next < 100 {
		p.step(interval)
	}
	if took := time.Duration(p.next) * interval; took > firstAllowance+5*interval {
		t.Errorf("dead after %s", took)
	}
}

// Round trips longer than what is remembered of them lose the oldest probes.
func TestWindow(t *testing.T) {
	p := newPath(always(4 * time.Second))
	for range 2000 {
		p.step(interval)
	}
	if d := p.delay(); !p.dead || d != (Delay{}) {
		t.Errorf("dead %v, delay %+v: probes of %s fit into no window", p.dead, d, 4*time.Second)
	}
}

// What nobody sent, or what came before, says nothing.
func TestForeignNumbers(t *testing.T) {
	m := monitor{interval: interval, multiplier: 3}
	now := time.Unix(1, 0)
	for range 300 {
		m.send(now)
	}
	for _, seq := range []uint32{300, 1 << 31, ^uint32(0), 20} {
		m.receive(seq, time.Millisecond)
	}
	if m.trip != 0 {
		t.Errorf("%d numbers are known", m.trip)
	}
	m.receive(299, time.Millisecond)
	m.receive(299, time.Millisecond)
	if m.trip != 1 {
		t.Errorf("one probe counts %d times", m.trip)
	}
}
