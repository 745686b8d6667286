package watch

import (
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

// stale is how old a reading may be for a rate: nobody has looked since.
const stale = time.Minute

// meter makes rates of counters. It forgets counters that a round did not name.
type meter struct {
	last, now map[string]agent.Counter
	at, next  time.Time
}

// begin begins a round of readings.
func (m *meter) begin(now time.Time) {
	m.last, m.at = m.now, m.next
	m.now, m.next = map[string]agent.Counter{}, now
	if now.Sub(m.at) > stale {
		m.last = nil
	}
}

// rate is what a counter grew by since the last round, per second; nil: that is not known.
func (m *meter) rate(key string, c agent.Counter) *pb.Rate {
	m.now[key] = c
	before, known := m.last[key]
	seconds := m.next.Sub(m.at).Seconds()
	if !known || seconds <= 0 || c.Packets < before.Packets || c.Bytes < before.Bytes {
		return nil
	}
	return &pb.Rate{Packets: float64(c.Packets-before.Packets) / seconds, Bits: 8 * float64(c.Bytes-before.Bytes) / seconds}
}
