package traffic

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Packets go for as long as something takes, and its error ends them.
func TestDuring(t *testing.T) {
	p := open(t, joined(t))
	trial := Trial{Template: plain4(), Rate: 5000}
	o, err := p.During(context.Background(), trial, func(context.Context) error {
		time.Sleep(300 * time.Millisecond)
		return nil
	})
	if err != nil || o.Sent < 100 || o.Sent > 5000 || o.Received != o.Sent {
		t.Errorf("%d sent, %d received: %v", o.Sent, o.Received, err)
	}
	failed := errors.New("failed")
	begun := time.Now()
	if _, err := p.During(context.Background(), trial, func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v, want what failed", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it ended %s after the error", took)
	}
	trial.Rate = -1
	_, err = p.During(context.Background(), trial, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err == nil {
		t.Error("a trial that cannot be: no error")
	}
}
