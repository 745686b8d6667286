// Package wheel keeps a timer for each of very many values.
//
// Timers are in lists by the tick at which they end. Set costs the same however
// many timers there are. Take looks at a timer that ends after more than one
// turn of the wheel once in each turn. One mutex guards a Wheel; the package
// starts no goroutines.
package wheel

import (
	"sync"
	"time"
)

// Tick is the resolution of the timers: PFCP's unit of the notification delay.
const Tick = 50 * time.Millisecond

const slots = 4096 // one turn in 205 s

// Timed is a pointer to a value that holds its own timer.
type Timed[T any] interface {
	*T
	Timer() *Timer[T]
}

// Wheel holds the timers that are set. Start makes the zero value ready.
type Wheel[T any, P Timed[T]] struct {
	mu    sync.Mutex
	heads [slots]*T
	done  int64 // the last tick that Take handled
}

// Timer is a value's timer. The zero value is not set.
type Timer[T any] struct {
	next, prev *T
	at         int64 // tick; 0: not set
}

// Start begins at now: Take does not look at earlier ticks.
func (w *Wheel[T, P]) Start(now time.Time) { w.done = now.UnixNano() / int64(Tick) }

// Set replaces the time at which a value is due. The zero time means never.
func (w *Wheel[T, P]) Set(v P, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := int64(0)
	if !t.IsZero() {
		at = max((t.UnixNano()+int64(Tick)-1)/int64(Tick), w.done+1) // rounded up
	}
	timer := v.Timer()
	if at == timer.at {
		return
	}
	w.remove(v)
	if timer.at = at; at == 0 {
		return
	}
	head := &w.heads[at%slots]
	if timer.next = *head; *head != nil {
		P(*head).Timer().prev = v
	}
	*head = v
}

func (w *Wheel[T, P]) remove(v P) {
	timer := v.Timer()
	if timer.at == 0 {
		return
	}
	if timer.prev != nil {
		P(timer.prev).Timer().next = timer.next
	} else {
		w.heads[timer.at%slots] = timer.next
	}
	if timer.next != nil {
		P(timer.next).Timer().prev = timer.prev
	}
	*timer = Timer[T]{}
}

// Take returns the values that are due at now, and unsets their timers.
func (w *Wheel[T, P]) Take(now time.Time) (list []P) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := now.UnixNano() / int64(Tick)
	for at := max(w.done+1, last-slots+1); at <= last; at++ {
		for v := w.heads[at%slots]; v != nil; {
			timer := P(v).Timer()
			next := timer.next
			if timer.at <= last {
				w.remove(v)
				list = append(list, v)
			}
			v = next
		}
	}
	w.done = max(w.done, last)
	return list
}
