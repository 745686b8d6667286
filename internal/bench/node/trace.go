package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

// unseen is an address that no frame comes from.
const unseen = "198.18.255.254/32"

// tracedSoon is how long the daemon takes from accepting a trace until the data path looks for it.
const tracedSoon = 50 * time.Millisecond

// Traced calls f while a trace runs that matches no packet. The daemon must still have it when f
// returns.
func (d *Daemon) Traced(ctx context.Context, f func() error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := d.Client.Trace(ctx, &pb.TraceRequest{Source: unseen})
	if err != nil {
		return fmt.Errorf("start a trace: %w", err)
	}
	defer stream.Close()
	if len(stream.ResponseHeader()) == 0 {
		return fmt.Errorf("start a trace: %w", stream.Err())
	}
	if err := Wait(ctx, tracedSoon); err != nil {
		return err
	}
	if err := errors.Join(f(), d.stillTraced(ctx)); err != nil {
		return err
	}
	end()
	if stream.Receive() {
		return fmt.Errorf("the trace saw a packet from %s", unseen)
	}
	return nil
}

// stillTraced is an error unless the daemon refuses another trace because one is running.
func (d *Daemon) stillTraced(ctx context.Context) error {
	ctx, end := context.WithTimeout(ctx, 20*tracedSoon)
	defer end()
	stream, err := d.Client.Trace(ctx, &pb.TraceRequest{Source: unseen})
	if err != nil {
		return fmt.Errorf("start another trace: %w", err)
	}
	defer stream.Close()
	stream.Receive()
	if err := stream.Err(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		return errors.Join(errors.New("the trace has ended: another one is not refused"), err)
	}
	return nil
}
