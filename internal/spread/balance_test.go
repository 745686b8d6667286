package spread

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	ofUEs   = 64
	ofFlows = 16
)

// machine is CPUs that handle what buckets bring, up to a capacity at each look.
type machine struct {
	t        *testing.T
	buckets  []Bucket
	queues   []Queue
	rates    []uint64 // packets per look
	capacity uint64
	stopped  int        // a CPU that takes nothing, if any
	noise    *rand.Rand // nil: none; otherwise a rate is a half more or less at each look
	b        Balancer
	actions  int
	dropped  uint64
}

func newMachine(t *testing.T, cpus int, capacity uint64) *machine {
	m := &machine{t: t, buckets: make([]Bucket, ofUEs+ofFlows), rates: make([]uint64, ofUEs), capacity: capacity}
	for i := range cpus {
		m.queues = append(m.queues, Queue{CPU: 2 + i})
	}
	for i := range m.buckets {
		m.buckets[i].CPU = 2 + i%cpus
	}
	return m
}

// loads are what each CPU is offered at a look, on average.
func (m *machine) loads() map[int]uint64 { return m.loadsOf(m.rates) }

func (m *machine) loadsOf(rates []uint64) map[int]uint64 {
	out := map[int]uint64{}
	for i, rate := range rates {
		if !m.buckets[i].Split {
			out[m.buckets[i].CPU] += rate
			continue
		}
		for f := range ofFlows {
			out[m.buckets[ofUEs+f].CPU] += rate / ofFlows
		}
	}
	return out
}

// run looks n times, and does what the balancer says. A CPU takes no more than its
// capacity.
func (m *machine) run(n int) {
	m.t.Helper()
	m.actions, m.dropped = 0, 0
	for range n {
		rates := slices.Clone(m.rates)
		for i := range rates {
			if m.noise != nil {
				rates[i] = rates[i] * uint64(50+m.noise.IntN(101)) / 100
			}
		}
		load := m.loadsOf(rates)
		for i, rate := range rates {
			if !m.buckets[i].Split {
				m.bring(i, rate, load)
				continue
			}
			for f := range ofFlows {
				m.buckets[i].Packets += m.bring(ofUEs+f, rate/ofFlows, load)
			}
		}
		for _, a := range m.b.Next(m.buckets, ofUEs, m.queues) {
			m.actions++
			k := &m.buckets[a.Bucket]
			k.CPU, k.Split = a.CPU, a.CPU < 0
			if a.CPU < 0 && a.Bucket >= ofUEs {
				m.t.Fatalf("bucket %d of flows is split", a.Bucket)
			}
			if a.CPU >= 0 && (a.CPU < 2 || a.CPU >= 2+len(m.queues)) {
				m.t.Fatalf("bucket %d goes to CPU %d", a.Bucket, a.CPU)
			}
		}
	}
}

// bring has a bucket's CPU take its part of the packets, and returns that.
func (m *machine) bring(bucket int, packets uint64, load map[int]uint64) uint64 {
	k := &m.buckets[bucket]
	taken := packets
	if k.CPU == m.stopped {
		taken = 0
	} else if over := load[k.CPU]; over > m.capacity {
		taken = packets * m.capacity / over
	}
	k.Packets += taken
	for i := range m.queues {
		if m.queues[i].CPU == k.CPU {
			m.queues[i].Full += packets - taken
			m.dropped += packets - taken
		}
	}
	return taken
}

// peak is the load of the busiest CPU, in parts of the mean.
func (m *machine) peak() float64 {
	most, sum := uint64(0), uint64(0)
	for _, n := range m.loads() {
		most, sum = max(most, n), sum+n
	}
	return float64(most) * float64(len(m.queues)) / float64(sum)
}

// TestBalance: whatever the loads, they come to rest, evenly where that is possible.
func TestBalance(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newMachine(t, 2+r.IntN(6), 1<<40)
		heaviest, sum := uint64(0), uint64(0)
		for i := range m.rates {
			m.rates[i] = uint64(r.IntN(100)) * uint64(1+r.IntN(1+r.IntN(40)))
			m.buckets[i].CPU = 2 + r.IntN(1+r.IntN(len(m.queues)))
			heaviest, sum = max(heaviest, m.rates[i]), sum+m.rates[i]
		}
		m.run(100)
		mean := float64(sum) / float64(len(m.queues))
		if limit := max(imbalance, float64(heaviest)/mean) * 1.06; m.peak() > limit {
			t.Errorf("seed %d: the busiest CPU has %.2f of the mean, want %.2f", seed, m.peak(), limit)
		}
		if m.run(200); m.actions > 0 {
			t.Errorf("seed %d: %d actions though nothing changes", seed, m.actions)
		}
	}
}

// TestHeavy: others leave a heavy UE's CPU; one that fills its CPU is split, and joined
// once it is light.
func TestHeavy(t *testing.T) {
	m := newMachine(t, 4, 3000)
	for i := range m.rates {
		m.rates[i] = 20
	}
	m.rates[5] = 2500
	home := m.buckets[5].CPU
	m.run(100)
	for i, k := range m.buckets[:ofUEs] {
		if i != 5 && k.CPU == home {
			t.Errorf("bucket %d is still on CPU %d beside the heavy one", i, home)
		}
	}
	if m.buckets[5].Split || m.buckets[5].CPU != home {
		t.Errorf("a UE that its CPU can handle: %+v", m.buckets[5])
	}
	m.rates[5] = 9000
	m.run(100)
	if !m.buckets[5].Split {
		t.Fatal("a UE that fills its CPU is not split")
	}
	if m.peak() > 1.35 {
		t.Errorf("the busiest CPU has %.2f of the mean", m.peak())
	}
	m.rates[5] = 6000
	if m.run(300); !m.buckets[5].Split {
		t.Error("joined though it is heavy")
	}
	m.rates[5] = 30
	if m.run(40); !m.buckets[5].Split {
		t.Error("joined too soon")
	}
	if m.run(60); m.buckets[5].Split {
		t.Error("not joined though it is light")
	}
}

// TestIdle: next to no load is nothing to balance, nor is one CPU.
func TestIdle(t *testing.T) {
	m := newMachine(t, 4, 1<<40)
	m.rates[0], m.rates[4] = 100, 100 // on one CPU
	if m.run(100); m.actions > 0 {
		t.Errorf("%d actions", m.actions)
	}
	m = newMachine(t, 1, 10)
	m.rates[0] = 10000
	if m.run(100); m.actions > 0 {
		t.Errorf("%d actions of one CPU", m.actions)
	}
}

// TestCPUsChange: a CPU that comes gets its share.
func TestCPUsChange(t *testing.T) {
	m := newMachine(t, 2, 1<<40)
	for i := range m.rates {
		m.rates[i] = 50
	}
	m.run(50)
	m.queues = append(m.queues, Queue{CPU: 4})
	m.run(50)
	if m.peak() > imbalance {
		t.Errorf("the busiest CPU has %.2f of the mean", m.peak())
	}
}

// TestWhatFits: no packet is dropped for long while another CPU has room, and loads that
// are uneven from look to look move next to nothing.
func TestWhatFits(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := newMachine(t, 2+r.IntN(6), 10000)
		room := uint64(len(m.queues)) * m.capacity * 85 / 100
		for i := 0; room > 0; i = (i + 1) % ofUEs {
			rate := min(room, uint64(r.IntN(300)))
			m.rates[i] += rate
			room -= rate
		}
		for i := range m.rates {
			m.buckets[i].CPU = 2 + r.IntN(1+r.IntN(len(m.queues)))
		}
		m.run(100)
		if m.run(100); m.dropped > 0 || m.actions > 0 {
			t.Errorf("seed %d: %d packets dropped that had room elsewhere, %d actions", seed, m.dropped, m.actions)
		}
		m.noise = r
		m.run(100)
		if m.run(1000); m.actions > 0 {
			t.Errorf("seed %d: %d actions in 1000 looks though loads only vary", seed, m.actions)
		}
	}
}

// TestFull: a CPU that drops is more loaded than what it takes, and sheds load though it
// has little more than another that has room.
func TestFull(t *testing.T) {
	for _, row := range []struct{ first, second, dropped uint64 }{
		{12500, 6200, 0},
		{10900, 8500, 0},
		{12800, 9000, 2400},
		{20000, 20000, 20100},
	} {
		m := newMachine(t, 2, 10000)
		for i := range m.rates {
			m.rates[i] = row.first / 32
			if m.buckets[i].CPU == 3 {
				m.rates[i] = row.second / 32
			}
		}
		m.run(100)
		m.run(100)
		if each := m.dropped / 100; each > row.dropped || m.actions > 0 {
			t.Errorf("%+v: %d packets dropped at each look, %d actions, loads %v", row, each, m.actions, m.loads())
		}
	}
}

// TestStopped: a CPU that takes nothing seems idle, and gets no buckets.
func TestStopped(t *testing.T) {
	m := newMachine(t, 2, 10000)
	for i := range m.rates {
		m.rates[i] = 100
	}
	m.run(50)
	m.stopped = 3
	before := slices.Clone(m.buckets)
	m.run(50)
	for i, k := range m.buckets {
		if k.CPU == m.stopped && before[i].CPU != m.stopped {
			t.Errorf("bucket %d moved to a CPU that takes nothing", i)
		}
	}
	m.stopped = 0
	if m.run(100); m.peak() > imbalance {
		t.Errorf("the busiest CPU has %.2f of the mean after that", m.peak())
	}
}

// TestTwoHeavy: two UEs that fill a CPU each are both split.
func TestTwoHeavy(t *testing.T) {
	m := newMachine(t, 4, 3000)
	m.rates[0], m.rates[1] = 5000, 5000
	if m.run(20); !m.buckets[0].Split || !m.buckets[1].Split {
		t.Errorf("buckets %+v", m.buckets[:2])
	}
}

// TestBesideFlows: a UE on a CPU that flows fill is not too heavy.
func TestBesideFlows(t *testing.T) {
	m := newMachine(t, 2, 10000)
	m.rates[0], m.rates[1] = 3000, 60000
	m.buckets[1].CPU, m.buckets[1].Split = -1, true
	if m.run(100); m.buckets[0].Split {
		t.Errorf("a UE that needs a third of a CPU is split beside the flows of another: loads %v", m.loads())
	}
}

// TestRestart: a balancer that begins where another has split a UE joins that once it is
// light.
func TestRestart(t *testing.T) {
	m := newMachine(t, 4, 3000)
	m.rates[0] = 9000
	m.run(50)
	m.b = Balancer{}
	if m.run(100); !m.buckets[0].Split {
		t.Error("joined though it is heavy")
	}
	m.rates[0] = 100
	if m.run(100); m.buckets[0].Split {
		t.Error("not joined though it is light")
	}
}

// TestCPUIsGone: buckets on a CPU without a queue get one that has, also if that is the
// only one.
func TestCPUIsGone(t *testing.T) {
	for cpus := 1; cpus < 4; cpus++ {
		m := newMachine(t, cpus, 3000)
		m.buckets[0].CPU, m.buckets[ofUEs].CPU = 9, 10
		if m.run(1); m.actions != 2 || m.buckets[0].CPU >= 2+cpus || m.buckets[ofUEs].CPU >= 2+cpus {
			t.Errorf("%d CPUs: %d actions, buckets on CPU %d and %d", cpus, m.actions, m.buckets[0].CPU, m.buckets[ofUEs].CPU)
		}
	}
	m := newMachine(t, 2, 3000)
	m.queues = nil
	if m.run(1); m.actions != 0 {
		t.Errorf("%d actions without any CPU", m.actions)
	}
}

// TestCountGoesBack: a packet that found no room is counted for a moment.
func TestCountGoesBack(t *testing.T) {
	m := newMachine(t, 2, 3000)
	for i := range m.rates {
		m.rates[i] = 30
	}
	m.rates[0] = 0
	m.buckets[0].Packets = 5
	m.run(20)
	m.buckets[0].Packets--
	if m.run(50); m.actions != 0 {
		t.Errorf("%d actions because a bucket of no load counts one packet less", m.actions)
	}
}
