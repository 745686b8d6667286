package traffic

import (
	"context"
	"testing"
	"time"
)

// A rate that doubles in the middle of a trial sends one and a half times as much.
func TestLater(t *testing.T) {
	p := open(t, joined(t))
	trial := Trial{Template: plain4(), Rate: 10000, Later: 20000, Duration: 100 * time.Millisecond}
	got := whole(t, p, trial)
	if got.Offered != 1500 || got.Sent < 1490 || got.Sent > 1502 || got.Received != got.Sent || got.AtLimit {
		t.Errorf("offered %d, sent %d, received %d, at the limit: %v; want 1500", got.Offered, got.Sent, got.Received, got.AtLimit)
	}
	for elapsed, want := range map[time.Duration]uint64{0: 0, 20 * time.Millisecond: 200, 75 * time.Millisecond: 1000, time.Second: 1500} {
		if n := trial.due(elapsed); n != want {
			t.Errorf("%d are due in %s, want %d", n, elapsed, want)
		}
	}
	trial.Rate = 0
	if _, err := p.Run(context.Background(), trial); err == nil {
		t.Error("as fast as possible, and later at a rate: no error")
	}
	by := joined(t)
	by.Method = Packet
	trial.Rate = 10000
	if _, err := open(t, by).Run(context.Background(), trial); err == nil {
		t.Error("a rate that changes, by AF_PACKET: no error")
	}
}
