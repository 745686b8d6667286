package traffic

import (
	"context"
	"errors"
	"time"
)

// longest is for how long packets are sent at most where something else ends the trial.
const longest = time.Hour

// During sends a trial's packets for as long as do takes: its Duration does not count. It
// ends do, by its context, where packets cannot be sent.
func (p *Pair) During(ctx context.Context, t Trial, do func(context.Context) error) (o Outcome, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer stop()
		done <- do(ctx)
	}()
	t.Duration = longest
	o, err = p.Run(running, t)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = nil // what was to be done is done
	}
	if err != nil {
		end()
	}
	return o, errors.Join(<-done, err)
}
