package spread

import (
	"math/rand/v2"
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
	b        Balancer
	actions  int
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

// loads are what each CPU is offered at a look.
func (m *machine) loads() map[int]uint64 {
	out := map[int]uint64{}
	for i, rate := range m.rates {
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

// run looks n times, and does what the balancer says.
func (m *machine) run(n int) {
	m.t.Helper()
	m.actions = 0
	for range n {
		load := m.loads()
		for i, rate := range m.rates {
			m.buckets[i].Packets += rate
			if m.buckets[i].Split {
				for f := range ofFlows {
					m.buckets[ofUEs+f].Packets += rate / ofFlows
				}
			}
		}
		for i := range m.queues {
			if over := load[m.queues[i].CPU]; over > m.capacity {
				m.queues[i].Full += over - m.capacity
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
