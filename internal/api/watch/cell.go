package watch

import (
	"sync"
	"time"
)

// Cadence of readings: the least pause, and how much longer than the reading it is. So readings
// take at most 0.5 % of a core.
const (
	period = time.Second
	share  = 200
)

// pause is the time between the start of a reading that took so long and the next one.
func pause(took time.Duration) time.Duration { return max(period, share*took) }

// cell keeps what was read last.
type cell[T any] struct {
	mu    sync.Mutex
	read  func(now time.Time) (T, error)
	value T
	err   error
	next  time.Time
}

// get returns what was read less than a pause ago, or reads.
func (c *cell[T]) get() (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	// Streams wake up once a second, too: a little early is in time.
	if start.Before(c.next.Add(-period / 10)) {
		return c.value, c.err
	}
	c.value, c.err = c.read(start)
	c.next = start.Add(pause(time.Since(start)))
	return c.value, c.err
}
