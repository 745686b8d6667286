package wheel

import (
	"math/rand/v2"
	"testing"
	"time"
)

type item struct {
	timer Timer[item]
	due   time.Time // zero: never
}

func (i *item) Timer() *Timer[item] { return &i.timer }

// Whatever is set, and set again, comes once, not before its time and at most a
// tick after, also where it is due after several turns.
func TestWheel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	now := time.Unix(1_800_000_000, 0)
	var w Wheel[item, *item]
	w.Start(now)
	items := make([]*item, 300)
	for i := range items {
		items[i] = &item{}
	}
	taken := 0
	for range 20_000 {
		i := items[r.IntN(len(items))]
		switch r.IntN(8) {
		case 0:
			i.due = time.Time{}
			w.Set(i, i.due)
		case 1, 2:
			i.due = now.Add(time.Duration(1 + r.Int64N(int64(3*slots*Tick))))
			w.Set(i, i.due)
		}
		now = now.Add(time.Duration(r.Int64N(int64(4 * Tick))))
		for _, due := range w.Take(now) {
			if due.due.IsZero() || now.Before(due.due) {
				t.Fatalf("taken at %v, due at %v", now, due.due)
			}
			due.due = time.Time{}
			taken++
		}
		for _, i := range items {
			if !i.due.IsZero() && now.Sub(i.due) > Tick {
				t.Fatalf("not taken by %v, due at %v", now, i.due)
			}
		}
	}
	if taken < 300 {
		t.Errorf("%d were taken", taken)
	}
}
