package upf

import (
	"sync"
	"time"
)

const (
	tick  = 50 * time.Millisecond // PFCP's unit of the notification delay
	slots = 4096                  // once around in 205 s
)

// wheel has a timer for each session, in lists by the tick of its end. Setting
// one costs the same however many there are; what ends after more than a turn
// is looked at once in each.
type wheel struct {
	mu    sync.Mutex
	heads [slots]*entry
	done  int64 // the last tick that was handled
}

// timer is a session's place in the wheel.
type timer struct {
	next, prev *entry
	at         int64 // tick; 0: not set
}

func tickOf(t time.Time) int64 { return (t.UnixNano() + int64(tick) - 1) / int64(tick) }

// set replaces the time at which a session is due; zero: never.
func (w *wheel) set(e *entry, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := int64(0)
	if !t.IsZero() {
		at = max(tickOf(t), w.done+1)
	}
	if at == e.timer.at {
		return
	}
	w.remove(e)
	if e.timer.at = at; at == 0 {
		return
	}
	head := &w.heads[at%slots]
	if e.timer.next = *head; *head != nil {
		(*head).timer.prev = e
	}
	*head = e
}

func (w *wheel) remove(e *entry) {
	if e.timer.at == 0 {
		return
	}
	if e.timer.prev != nil {
		e.timer.prev.timer.next = e.timer.next
	} else {
		w.heads[e.timer.at%slots] = e.timer.next
	}
	if e.timer.next != nil {
		e.timer.next.timer.prev = e.timer.prev
	}
	e.timer = timer{}
}

// take appends the sessions that are due to list, and sets their timers no
// more.
func (w *wheel) take(now time.Time, list []*entry) []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := now.UnixNano() / int64(tick)
	for at := max(w.done+1, last-slots+1); at <= last; at++ {
		for e := w.heads[at%slots]; e != nil; {
			next := e.timer.next
			if e.timer.at <= last {
				w.remove(e)
				list = append(list, e)
			}
			e = next
		}
	}
	w.done = max(w.done, last)
	return list
}
