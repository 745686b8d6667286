package signalling

import (
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// Each loop gives its own measure, and what spoils one is told.
func TestBeside(t *testing.T) {
	good := Beside{Offered: 0.5, N4: [2]Result{{PerSecond: 1000, P99: 7 * time.Millisecond}, {PerSecond: 5, P99: 2 * time.Millisecond, Unanswered: 6}}, Packets: [2]traffic.Outcome{{Lost: 3}, {Lost: 4}}}
	if err := good.Err(); err != nil {
		t.Error(err)
	}
	want := []Row{{PerSecond, 64, 0.5, 1000}, {P99, 64, 0.5, 2000}, {Unanswered, 64, 0.5, 6}, {Lost, 64, 0.5, 3}}
	if got := good.Rows(64); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, spoil := range map[string]func(*Beside){
		"refused":         func(b *Beside) { b.N4[0].Refused = 1 },
		"wrong":           func(b *Beside) { b.N4[1].Wrong = 1 },
		"fewer packets":   func(b *Beside) { b.Packets[0].Offered, b.Packets[0].Sent = 100, 74 },
		"fewer at a rate": func(b *Beside) { b.Packets[1].Offered, b.Packets[1].Sent = 100, 74 },
	} {
		b := good
		if spoil(&b); b.Err() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The thread's time that is left says whether the generator is the limit.
func TestAtLimit(t *testing.T) {
	for cpu, want := range map[time.Duration]bool{time.Second: true, 950 * time.Millisecond: true, 900 * time.Millisecond: false} {
		c := newTally()
		c.stop(time.Second)
		c.CPU = cpu
		if r := c.result(); r.AtLimit != want {
			t.Errorf("%s of a second: %v", cpu, r.AtLimit)
		}
	}
}
