package probe

import (
	"context"
	"testing"
	"time"
)

// When packets were lost is known by when they were sent.
func TestWhenPacketsWereLost(t *testing.T) {
	begin := time.Now()
	at := func(ms ...int) (list []time.Time) {
		for _, v := range ms {
			list = append(list, begin.Add(time.Duration(v)*time.Millisecond))
		}
		return list
	}
	for _, tt := range []struct {
		seen        []uint64
		from, until time.Duration
	}{
		{[]uint64{0, 1, 2, 3}, 0, 0},
		{[]uint64{0, 3}, 10 * time.Millisecond, 20 * time.Millisecond},
		{[]uint64{1, 2}, 0, 35 * time.Millisecond},
	} {
		r := received{seen: map[uint64]bool{}}
		for _, n := range tt.seen {
			r.seen[n] = true
		}
		r.count(at(0, 10, 20, 35))
		if r.Sent != 4 || r.Took != 35*time.Millisecond || r.LossFrom != tt.from || r.LossUntil != tt.until {
			t.Errorf("%v arrived: %+v", tt.seen, r.StreamResult)
		}
	}
}

// The kernel says when a datagram arrived, also to a receiver that reads it later.
func TestArrivalIsTheKernels(t *testing.T) {
	left, right := pair(t)
	s := Stream{From: left, At: right, To: right4, Count: 50, Interval: time.Millisecond, Wait: 5 * time.Second}
	result, err := s.Run(t.Context())
	if err != nil || result.Received != 50 || result.P99 <= 0 || result.P99 > s.Wait || result.LossUntil != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// A stream that begins later ends when it would have: its packets are as many as its count.
func TestStreamBeginsLater(t *testing.T) {
	left, right := pair(t)
	s := Stream{From: left, At: right, To: right4, Count: 5, Interval: time.Millisecond, After: 200 * time.Millisecond, Wait: 5 * time.Second}
	start := time.Now()
	result, err := s.Run(t.Context())
	if took := time.Since(start); err != nil || result.Received != 5 || took < s.After || result.Took > took-s.After {
		t.Errorf("after %v: %+v, %v", took, result, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.After = time.Hour
	if result, err := s.Run(ctx); err == nil || result.Sent != 0 {
		t.Errorf("stopped before it began: %+v, %v", result, err)
	}
}
